"""Ports that pods take on their nodes, by hostPort or hostNetwork: a node gives each to one pod only."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.objects import dig, is_finished, name_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True)
class HostPort:
    number: int
    protocol: str
    address: str

    def clashes(self, other: HostPort) -> bool:
        is_same = (self.number, self.protocol) == (other.number, other.protocol)
        return is_same and (self.address == other.address or EVERY_ADDRESS in (self.address, other.address))


def host_ports(pod: Obj) -> list[HostPort]:
    """Returns the ports that such a pod needs on its node: with hostNetwork, all that its containers declare.

    Init containers that restart always run beside them; others count for no node (kubernetes, scheduler/util).
    """
    sidecars = [one for one in dig(pod, "spec", "initContainers") or [] if one.get("restartPolicy") == "Always"]
    containers = [*(dig(pod, "spec", "containers") or []), *sidecars]
    ports = [port for one in containers for port in one.get("ports") or []]
    own = "containerPort" if dig(pod, "spec", "hostNetwork") else "hostPort"
    numbered = [(port.get("hostPort") or port.get(own), port) for port in ports]
    return [
        HostPort(int(number), port.get("protocol") or "TCP", port.get("hostIP") or EVERY_ADDRESS)
        for number, port in numbered
        if number
    ]


def nodes_without_port(snapshot: ClusterSnapshot, template: Obj) -> dict[str, str]:
    """Maps each node to the port there that such a pod needs and another pod holds."""
    wanted = host_ports(template)
    taken: dict[str, str] = {}
    for pod in snapshot.all_pods if wanted else ():
        node = dig(pod, "spec", "nodeName")
        held = [] if not node or is_finished(pod) else host_ports(pod)
        clash = next((port for port in held if any(port.clashes(one) for one in wanted)), None)
        if clash is not None:
            taken.setdefault(node, f"port {clash.number} is held by {name_of(pod)}")
    return taken
