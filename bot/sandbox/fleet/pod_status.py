"""The status that a kubelet writes for a pod, as a value: phase, conditions and the main container's states. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from bot.sandbox.fleet.pod_spec import PodSpec


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class Container:
    """The present and the previous run of the main container."""

    state: Literal["waiting", "running", "terminated"] = "waiting"
    reason: str = "ContainerCreating"
    message: str = ""
    started_at: float | None = None
    ready: bool = False
    restarts: int = 0
    last: dict[str, Any] | None = None
    number: int = 0

    def ended(self, exit_code: int, now: float, spec: PodSpec) -> None:
        """Records how the run that just ended went."""
        self.last = {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "startedAt": stamp(self.started_at or now),
            "finishedAt": stamp(now),
            "containerID": self.identity(spec),
        }
        self.ready = False

    def identity(self, spec: PodSpec) -> str:
        return f"containerd://{spec.uid.replace('-', '')}{self.number:032x}"


@dataclass(slots=True)
class PodStatus:
    """Builds the status; a condition's transition time moves only when the condition does."""

    spec: PodSpec
    host_ip: str
    pod_ip: str
    started_at: float
    container: Container = field(default_factory=Container)
    _since: dict[str, tuple[bool, float]] = field(default_factory=dict)

    def body(self, now: float) -> dict[str, Any]:
        container = self.container
        running = container.state == "running" or container.last is not None
        conditions = {
            "PodReadyToStartContainers": True,
            "Initialized": True,
            "Ready": container.ready,
            "ContainersReady": container.ready,
            "PodScheduled": True,
        }
        status: dict[str, Any] = {
            "phase": self._phase(running=running),
            "hostIP": self.host_ip,
            "hostIPs": [{"ip": self.host_ip}],
            "startTime": stamp(self.started_at),
            "conditions": [self._condition(kind, value, now) for kind, value in conditions.items()],
            "containerStatuses": [
                self._main() if name == self.spec.container else self._other(name, image)
                for name, image in self.spec.all_containers
            ],
        }
        if running or container.reason in ("CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff"):
            status |= {"podIP": self.pod_ip, "podIPs": [{"ip": self.pod_ip}]}
        return {"status": status}

    def _phase(self, *, running: bool) -> str:
        if self.container.state == "terminated" and not self.spec.is_restarted and self.container.last:
            return "Failed" if self.container.last["exitCode"] else "Succeeded"
        return "Running" if running else "Pending"

    def _condition(self, kind: str, value: bool, now: float) -> dict[str, Any]:
        before = self._since.get(kind)
        if before is None or before[0] != value:
            self._since[kind] = (value, now)
        condition: dict[str, Any] = {
            "type": kind,
            "status": "True" if value else "False",
            "lastProbeTime": None,
            "lastTransitionTime": stamp(self._since[kind][1]),
        }
        if not value:
            condition["reason"] = "ContainersNotReady"
            condition["message"] = f"containers with unready status: [{self.spec.container}]"
        return condition

    def _main(self) -> dict[str, Any]:
        container = self.container
        running = container.state == "running"
        return {
            "name": self.spec.container,
            "image": self.spec.image,
            "imageID": f"sandbox.registry/{self.spec.image}" if running or container.last else "",
            "containerID": container.identity(self.spec) if running or container.last else "",
            "ready": container.ready,
            "started": running,
            "restartCount": container.restarts,
            "state": self._state(),
            "lastState": {"terminated": container.last} if container.last else {},
        }

    def _state(self) -> dict[str, Any]:
        container = self.container
        if container.state == "running":
            return {"running": {"startedAt": stamp(container.started_at or self.started_at)}}
        if container.state == "terminated":
            return {"terminated": container.last}
        waiting = {"reason": container.reason}
        return {"waiting": {**waiting, "message": container.message} if container.message else waiting}

    def _other(self, name: str, image: str) -> dict[str, Any]:
        return {
            "name": name,
            "image": image,
            "imageID": f"sandbox.registry/{image}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": stamp(self.started_at)}},
            "lastState": {},
        }
