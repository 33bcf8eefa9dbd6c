"""A kubelet for all nodes, for tests without the simulated fleet: pods start, become ready and end, and run nothing.

`sandbox/ready: "false"` keeps a pod unready; an image called `bad` cannot be pulled. A pod that is not always restarted
runs for one step and ends with `sandbox/exit-code`. `sandbox/log` is a pod's log.
"""

import time
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.sandbox.kubernetes import clock
from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.controllers.pods import is_terminal, with_condition
from bot.sandbox.kubernetes.controllers.recorder import Recorder
from bot.sandbox.kubernetes.registry import DeleteOptions, Registry
from bot.sandbox.kubernetes.resources import NODES, PODS
from bot.sandbox.kubernetes.store import Change, is_terminating, name_of, namespace_of, uid_of

Obj = dict[str, Any]

READY_ANNOTATION = "sandbox/ready"
EXIT_ANNOTATION = "sandbox/exit-code"
LOG_ANNOTATION = "sandbox/log"
END_NOW = DeleteOptions(grace_seconds=0)


class Kubelet:
    name = "kubelet"

    def __init__(self, registry: Registry, port: int, seconds_per_step: float = 0.15) -> None:
        self._registry = registry
        self._store = registry.store
        self._port = port
        self._seconds_per_step = seconds_per_step
        # When a pod's present step will be over; by uid, and separately for starting and for ending.
        self._started_at: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._finished_at: dict[str, float] = {}
        self._addresses = 0
        self._events = Recorder(registry, "kubelet")

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is NODES and change.kind != "DELETED":
            yield "", name_of(change.obj)
        elif change.resource is PODS and change.kind != "DELETED" and change.obj["spec"].get("nodeName"):
            yield namespace_of(change.obj), name_of(change.obj)

    def reconcile(self, key: Key) -> float | None:
        if not key[0]:
            self._register(key[1])
            return None
        pod = self._store.find(PODS, *key)
        if pod is None or is_terminal(pod) or not pod["spec"].get("nodeName"):
            return None
        return self._end(pod) if is_terminating(pod) else self._start(pod)

    def _register(self, node_name: str) -> None:
        node = self._store.find(NODES, "", node_name)
        if node is not None:
            self._registry.edit(NODES, node, self._announce, "status")

    def _announce(self, node: Obj) -> None:
        node["status"]["addresses"] = [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": name_of(node)},
        ]
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._port}}

    def _start(self, pod: Obj) -> float | None:
        if uid_of(pod) not in self._started_at:
            self._registry.edit(PODS, pod, _create_containers, "status")
        if (left := self._seconds_left(self._started_at, pod)) > 0:
            return left
        pod = self._store.get(PODS, namespace_of(pod), name_of(pod))
        if any(_is_unpullable(one["image"]) for one in pod["spec"]["containers"]):
            self._fail_pull(pod)
            return None
        is_ready = (pod["metadata"].get("annotations") or {}).get(READY_ANNOTATION) != "false"
        if "podIP" not in pod["status"]:
            self._addresses += 1
        address = f"10.244.{self._addresses // 250}.{self._addresses % 250 + 1}"
        self._registry.edit(PODS, pod, lambda new: _run(new, address, is_ready=is_ready), "status")
        return None if pod["spec"]["restartPolicy"] == "Always" else self._finish(pod)

    def _finish(self, pod: Obj) -> float | None:
        if (left := self._seconds_left(self._finished_at, pod)) > 0:
            return left
        code = int((pod["metadata"].get("annotations") or {}).get(EXIT_ANNOTATION, "0"))
        self._registry.edit(PODS, pod, lambda new: _exit(new, code), "status")
        return None

    def _seconds_left(self, steps: dict[str, float], pod: Obj) -> float:
        """Of the step that begins at the first call. Waking early must not shorten it."""
        now = time.monotonic()
        return steps.setdefault(uid_of(pod), now + self._seconds_per_step) - now

    def _fail_pull(self, pod: Obj) -> None:
        before = pod["status"].get("containerStatuses") or []
        if any(one["state"].get("waiting", {}).get("reason") == "ImagePullBackOff" for one in before):
            return
        self._registry.edit(PODS, pod, _back_off, "status")
        for container in pod["spec"]["containers"]:
            if _is_unpullable(container["image"]):
                text = f'Back-off pulling image "{container["image"]}"'
                self._events.record(PODS, pod, "Normal", "BackOff", text)
                self._events.record(PODS, pod, "Warning", "Failed", "Error: ImagePullBackOff")

    def _end(self, pod: Obj) -> float | None:
        if uid_of(pod) not in self._ended_at:
            for container in pod["spec"]["containers"]:
                text = f"Stopping container {container['name']}"
                self._events.record(PODS, pod, "Normal", "Killing", text)
        has_grace = pod["metadata"].get("deletionGracePeriodSeconds", 0) > 0
        if (left := self._seconds_left(self._ended_at, pod)) > 0 and has_grace:
            return left
        self._started_at.pop(uid_of(pod), None)
        del self._ended_at[uid_of(pod)]
        self._registry.delete(PODS, pod, END_NOW)
        return None


def log_route(registry: Registry) -> Route:
    """The endpoint that the API server calls on its kubelets."""

    async def container_logs(request: Request) -> Response:
        asked = request.path_params
        pod = registry.store.find(PODS, asked["namespace"], asked["pod"]) or {"metadata": {}}
        written = (pod["metadata"].get("annotations") or {}).get(LOG_ANNOTATION)
        lines = [f"{asked['container']} started", "listening"] if written is None else written.splitlines()
        tail = request.query_params.get("tailLines")
        kept = lines[-int(tail) :] if tail and int(tail) else lines
        return PlainTextResponse("".join(f"{line}\n" for line in kept))

    return Route("/containerLogs/{namespace}/{pod}/{container}", container_logs)


def _is_unpullable(image: str) -> bool:
    return image.rpartition("/")[2].partition(":")[0] == "bad"


def _conditions(pod: Obj, truths: dict[str, bool]) -> list[Obj]:
    conditions: list[Obj] = pod["status"].get("conditions") or []
    for kind, truth in truths.items():
        new: Obj = {"type": kind, "status": str(truth), "lastProbeTime": None, "lastTransitionTime": clock.stamp()}
        if not truth:
            new["reason"] = "ContainersNotReady"
        conditions = with_condition(conditions, new)
    return conditions


def _container_status(pod: Obj, container: Obj, state: Obj, *, is_ready: bool) -> Obj:
    is_running = "running" in state
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"sandbox://{container['image']}" if is_running else "",
        **({"containerID": f"sandbox://{uid_of(pod)}/{container['name']}/0"} if is_running else {}),
        "ready": is_ready,
        "started": is_running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _create_containers(pod: Obj) -> None:
    status = pod["status"]
    status["startTime"] = clock.stamp()
    status["hostIP"] = "127.0.0.1"
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    status["containerStatuses"] = [
        _container_status(pod, one, waiting, is_ready=False) for one in pod["spec"]["containers"]
    ]
    truths = {"Initialized": True, "ContainersReady": False, "Ready": False}
    status["conditions"] = _conditions(pod, truths)


def _back_off(pod: Obj) -> None:
    statuses = []
    for container in pod["spec"]["containers"]:
        text = f'Back-off pulling image "{container["image"]}"'
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": text}}
        if not _is_unpullable(container["image"]):
            waiting = {"waiting": {"reason": "ContainerCreating"}}
        statuses.append(_container_status(pod, container, waiting, is_ready=False))
    pod["status"]["containerStatuses"] = statuses


def _run(pod: Obj, address: str, *, is_ready: bool) -> None:
    status = pod["status"]
    status["phase"] = "Running"
    status.setdefault("podIP", address)
    status["podIPs"] = [{"ip": status["podIP"]}]
    running = {"running": {"startedAt": status["startTime"]}}
    status["containerStatuses"] = [
        _container_status(pod, one, running, is_ready=is_ready) for one in pod["spec"]["containers"]
    ]
    status["conditions"] = _conditions(pod, {"ContainersReady": is_ready, "Ready": is_ready})


def _exit(pod: Obj, code: int) -> None:
    status = pod["status"]
    status["phase"] = "Failed" if code else "Succeeded"
    started = status["startTime"]
    reason = "Error" if code else "Completed"
    ended = {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": clock.stamp()}
    status["containerStatuses"] = [
        _container_status(pod, one, {"terminated": ended}, is_ready=False) for one in pod["spec"]["containers"]
    ]
    status["conditions"] = _conditions(pod, {"ContainersReady": False, "Ready": False})
