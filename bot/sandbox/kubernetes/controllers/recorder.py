"""Events as the components of a cluster write them: a repeated event increments a count.

The scheduler uses the newer events API, whose times differ: `eventTime`, and no first or last timestamp.
"""

import secrets
from typing import Any, Literal

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import EVENTS, NAMESPACES, Resource
from bot.sandbox.kubernetes.store import is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]
EventType = Literal["Normal", "Warning"]


class Recorder:
    def __init__(self, registry: Registry, component: str, *, new_style: bool = False) -> None:
        self._registry = registry
        self._component = component
        self._new_style = new_style

    def record(self, resource: Resource, about: Obj, kind: EventType, reason: str, message: str) -> None:
        namespace = namespace_of(about) or "default"
        parent = self._registry.store.find(NAMESPACES, "", namespace)
        # A terminating namespace accepts no new events.
        if parent is None or is_terminating(parent):
            return
        earlier = self._find_same(namespace, about, reason, message)
        if earlier is not None:
            self._registry.edit(EVENTS, earlier, self._count)
            return
        self._registry.create(EVENTS, namespace, self._event(resource, about, kind, reason, message))

    def _find_same(self, namespace: str, about: Obj, reason: str, message: str) -> Obj | None:
        wanted = (uid_of(about), reason, message, self._component)
        for event in self._registry.store.list(EVENTS, namespace):
            have = (event["involvedObject"].get("uid"), event.get("reason"), event.get("message"))
            if (*have, event.get("reportingComponent")) == wanted:
                return event
        return None

    def _count(self, event: Obj) -> None:
        if self._new_style:
            count = event.get("series", {}).get("count", 1) + 1
            event["series"] = {"count": count, "lastObservedTime": clock.micro_stamp()}
        else:
            event["count"] = event.get("count", 1) + 1
            event["lastTimestamp"] = clock.stamp()

    def _event(self, resource: Resource, about: Obj, kind: EventType, reason: str, message: str) -> Obj:
        event: Obj = {
            "metadata": {"name": f"{name_of(about)}.{secrets.token_hex(8)}"},
            "involvedObject": {
                "kind": resource.kind,
                "apiVersion": resource.api_version,
                "name": name_of(about),
                "uid": uid_of(about),
                "resourceVersion": about["metadata"]["resourceVersion"],
                **({"namespace": namespace_of(about)} if namespace_of(about) else {}),
            },
            "type": kind,
            "reason": reason,
            "message": message,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        if self._new_style:
            return {
                **event,
                "source": {},
                "action": "Scheduling",
                "reportingInstance": f"{self._component}-sandbox",
                "eventTime": clock.micro_stamp(),
            }
        stamp = clock.stamp()
        source = {"component": self._component}
        return {**event, "source": source, "count": 1, "firstTimestamp": stamp, "lastTimestamp": stamp}
