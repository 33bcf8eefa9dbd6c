"""Loopback addresses for pods and nodes: one second octet for each fleet process, so that fleets can share a machine.

Pods get 127.X.1.1 and up, nodes 127.X.250.1 and up. Addresses are not reused: as in a cluster, a late reader of an old
address must get no answer, not another pod's metrics.
"""

from __future__ import annotations

import socket
from random import SystemRandom

NODE_OCTET = 250
EXPORTER_PORT, CLAIM_PORT = 9400, 9399
"""A fleet claims its octet by a port that it keeps: two that start at once may both find the first one free."""


class Addresses:
    """Hands out addresses below one free second octet."""

    def __init__(self, octet: int | None = None) -> None:
        self._claim: socket.socket | None = None
        if octet is None:
            octet, self._claim = free_octet()
        self.octet = octet
        self._pods = 0
        self._nodes = 0

    def close(self) -> None:
        """Another fleet may take the octet from now on."""
        if self._claim is not None:
            self._claim.close()

    def next_pod(self) -> str:
        self._pods += 1
        third, fourth = divmod(self._pods - 1, 250)
        return f"127.{self.octet}.{1 + third}.{1 + fourth}"

    def next_node(self) -> str:
        self._nodes += 1
        return f"127.{self.octet}.{NODE_OCTET}.{self._nodes}"


def free_octet() -> tuple[int, socket.socket]:
    """A second octet whose first node address is free, and the socket that claims it until it is closed."""
    candidates = list(range(2, 255))
    SystemRandom().shuffle(candidates)
    for octet in candidates:
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((f"127.{octet}.{NODE_OCTET}.1", CLAIM_PORT))
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind((f"127.{octet}.{NODE_OCTET}.1", EXPORTER_PORT))
        except OSError:
            claim.close()
            continue
        return octet, claim
    raise OSError("no free loopback range 127.2.x.x to 127.254.x.x; on macOS add aliases to lo0 first")
