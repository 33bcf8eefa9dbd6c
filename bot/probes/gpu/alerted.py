"""The XIDs that the incident's own alerts name, and the nodes that they are about.

An alert dates an XID: its rule saw the register change. A rule on the register itself also fires for an old XID, so an
alert does not count against a history that shows the XID from before the incident's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bot.domain.cluster.objects import dig, name_of, namespace_of
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.alert import Alert
from bot.probes.gpu.exporters import NodeGpus
from bot.probes.gpu.node_events import xid_named_in

_CODES = ("xid", "XID", "err_code", "error_code")
_NODES = ("Hostname", "hostname", "node", "kubernetes_node", "exported_node")
_PODS = (("exported_namespace", "exported_pod"), ("namespace", "pod"))


def alerted_xids(
    alerts: Iterable[Alert], pods: Sequence[Obj], pages: Mapping[str, NodeGpus]
) -> Mapping[str, tuple[int, ...]]:
    """XIDs by node. `pods`: our replicas; `pages`: the GPUs of their nodes."""
    found: dict[str, tuple[int, ...]] = {}
    for alert in alerts:
        xids, node = _xids_of(alert), _node_of(alert, pods, pages)
        if xids and node:
            found[node] = tuple(dict.fromkeys((*found.get(node, ()), *xids)))
    return found


def _xids_of(alert: Alert) -> tuple[int, ...]:
    named = [value for key in _CODES for value in (alert.labels.get(key), alert.annotations.get(key)) if value]
    codes = [int(value) for value in named if value.isdigit()]
    mentioned = [xid for text in alert.annotations.values() if (xid := xid_named_in(text)) is not None]
    return tuple(dict.fromkeys(xid for xid in (*codes, *mentioned) if xid))


def _node_of(alert: Alert, pods: Sequence[Obj], pages: Mapping[str, NodeGpus]) -> str:
    labels = alert.labels
    for space, name in _PODS:
        if pod := next((pod for pod in pods if labels.get(name) == name_of(pod)), None):
            return str(dig(pod, "spec", "nodeName") or "") if labels.get(space) in (None, namespace_of(pod)) else ""
    if node := next((labels[key] for key in _NODES if labels.get(key) in pages), ""):
        return node
    return next(
        (node for node, page in pages.items() if any(gpu.uuid and gpu.uuid == labels.get("UUID") for gpu in page.gpus)),
        "",
    )
