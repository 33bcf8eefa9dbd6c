"""Loopback addresses for pods and nodes: one second octet for each fleet process, so that fleets can share a machine.

Pods get 127.X.1.1 and up, nodes 127.X.250.1 and up. Addresses are not reused: as in a cluster, a late reader of an old
address must get no answer, not another pod's metrics.
"""

from __future__ import annotations

import socket
from random import SystemRandom

NODE_OCTET = 250
PROBE_PORT = 9400


class Addresses:
    """Hands out addresses below one free second octet."""

    def __init__(self, octet: int | None = None) -> None:
        self.octet = octet if octet is not None else free_octet()
        self._pods = 0
        self._nodes = 0

    def next_pod(self) -> str:
        self._pods += 1
        third, fourth = divmod(self._pods - 1, 250)
        return f"127.{self.octet}.{1 + third}.{1 + fourth}"

    def next_node(self) -> str:
        self._nodes += 1
        return f"127.{self.octet}.{NODE_OCTET}.{self._nodes}"


def free_octet() -> int:
    """A second octet whose first node address is free."""
    candidates = list(range(2, 255))
    SystemRandom().shuffle(candidates)
    for octet in candidates:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((f"127.{octet}.{NODE_OCTET}.1", PROBE_PORT))
            except OSError:
                continue
            return octet
    raise OSError("no free loopback range 127.2.x.x to 127.254.x.x; on macOS add aliases to lo0 first")
