"""EndpointSlices: the pods that receive a Service's traffic, one slice per Service.

A terminating pod is never ready here, yet it may still serve: a draining replica has these conditions.
"""

from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.ownership import controlled, reference_to
from bot.sandbox.kubernetes.controllers.pods import is_ready, is_terminal
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES
from bot.sandbox.kubernetes.selectors import labels_of
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


class EndpointSliceController:
    name = "endpointslice"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is SERVICES:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is PODS:
            for service in self._store.list(SERVICES, namespace_of(change.obj)):
                if any(pod is not None and _selects(service, pod) for pod in (change.obj, change.previous)):
                    yield namespace_of(service), name_of(service)
        elif change.resource is ENDPOINT_SLICES:
            service_name = labels_of(change.obj).get(SERVICE_NAME)
            if service_name is not None:
                yield namespace_of(change.obj), service_name

    def reconcile(self, key: Key) -> float | None:
        service = self._store.find(SERVICES, *key)
        if service is None or is_terminating(service) or not service["spec"].get("selector"):
            return None
        pods = [pod for pod in self._store.list(PODS, key[0]) if _selects(service, pod)]
        content = {
            "addressType": "IPv4",
            "endpoints": [self._endpoint(service, pod) for pod in pods if _has_address(pod)],
            "ports": _ports(service, pods),
        }
        mine = controlled(self._store, ENDPOINT_SLICES, service)
        if mine:
            self._registry.edit(ENDPOINT_SLICES, mine[0], lambda new: new.update(content))
        else:
            self._registry.create(ENDPOINT_SLICES, key[0], {**_head(service), **content})
        return None

    def _endpoint(self, service: Obj, pod: Obj) -> Obj:
        ready, terminating = is_ready(pod), is_terminating(pod)
        publish_all = bool(service["spec"].get("publishNotReadyAddresses"))
        endpoint: Obj = {
            "addresses": [_address(pod)],
            "conditions": {
                "ready": publish_all or (ready and not terminating),
                "serving": ready,
                "terminating": terminating,
            },
            "targetRef": {
                "kind": "Pod",
                "namespace": namespace_of(pod),
                "name": name_of(pod),
                "uid": uid_of(pod),
            },
        }
        if node_name := pod["spec"].get("nodeName"):
            endpoint["nodeName"] = node_name
            node = self._store.find(NODES, "", node_name)
            zone = labels_of(node or {}).get("topology.kubernetes.io/zone")
            if zone:
                endpoint["zone"] = zone
        return endpoint


def _address(pod: Obj) -> str:
    """The fleet's pods listen on loopback, which an EndpointSlice must not contain; these addresses are never used."""
    address = str(pod["status"]["podIP"])
    return f"10.{address.removeprefix('127.')}" if address.startswith("127.") else address


def _selects(service: Obj, pod: Obj) -> bool:
    selector = service["spec"].get("selector")
    return bool(selector) and selector.items() <= labels_of(pod).items()


def _has_address(pod: Obj) -> bool:
    return bool(pod["status"].get("podIP")) and not is_terminal(pod)


def _head(service: Obj) -> Obj:
    return {
        "metadata": {
            "generateName": f"{name_of(service)}-",
            "labels": {SERVICE_NAME: name_of(service), MANAGED_BY: "endpointslice-controller.k8s.io"},
            "ownerReferences": [reference_to(SERVICES, service)],
        }
    }


def _ports(service: Obj, pods: list[Obj]) -> list[Obj]:
    ports: list[Obj] = []
    for port in service["spec"].get("ports") or []:
        number = _target_port(port, pods)
        if number is not None:
            ports.append({"name": port.get("name", ""), "port": number, "protocol": port["protocol"]})
    return ports


def _target_port(port: Obj, pods: list[Obj]) -> int | None:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for one in container.get("ports") or []:
                if one.get("name") == target:
                    return int(one["containerPort"])
    return None
