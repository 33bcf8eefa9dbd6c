"""What a kubelet reads from a pod: its command line, image, ports, preStop and GPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.domain.kernel.quantity import whole
from bot.sandbox.fleet.serve_flags import is_vllm

VLLM_IMAGE = "vllm/vllm-openai"
LOG_ANNOTATION = "sandbox/log"
SIMULATED_VERSION = "0.32.0"


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The parts of one pod that decide how it runs. Only the main container is simulated; the others only exist."""

    namespace: str
    name: str
    uid: str
    node: str
    container: str
    image: str
    argv: tuple[str, ...]
    port: int
    pre_stop_seconds: float
    grace_seconds: float
    gpus: int
    all_containers: tuple[tuple[str, str], ...]
    is_restarted: bool = True
    """Whether it is meant to run forever; a Job's pod runs once."""
    env: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    """The log of a pod that serves no engine, from the annotation `sandbox/log`."""

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def serves_vllm(self) -> bool:
        return is_vllm(self.argv)

    @property
    def version(self) -> str:
        found = re.search(r":v(\d+\.\d+\.\d+)", self.image)
        return found[1] if found else SIMULATED_VERSION

    @property
    def image_exists(self) -> bool:
        """The registry of this world has every release of vLLM, and every image except those named bad."""
        repository, _, tag = self.image.partition(":")
        if repository.endswith(VLLM_IMAGE):
            return bool(re.fullmatch(r"v\d+\.\d+\.\d+", tag))
        return not repository.startswith("bad")


def read_pod(pod: Mapping[str, Any]) -> PodSpec:
    metadata, spec = pod["metadata"], pod["spec"]
    containers = spec["containers"]
    main = next((one for one in containers if is_vllm(_argv(one))), containers[0])
    argv = _argv(main)
    return PodSpec(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec["nodeName"],
        container=main["name"],
        image=main["image"],
        argv=argv,
        port=_port(main, argv),
        pre_stop_seconds=_pre_stop(main),
        grace_seconds=float(spec.get("terminationGracePeriodSeconds", 30)),
        gpus=whole(main.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)),
        all_containers=tuple((one["name"], one["image"]) for one in containers),
        is_restarted=spec.get("restartPolicy", "Always") == "Always",
        env=_env(main),
        log=(metadata.get("annotations") or {}).get(LOG_ANNOTATION, ""),
    )


def _argv(container: Mapping[str, Any]) -> tuple[str, ...]:
    env = _env(container)
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    return tuple(re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), word) for word in words)


def _env(container: Mapping[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env") or [] if "value" in one}


def _port(container: Mapping[str, Any], argv: tuple[str, ...]) -> int:
    given = re.findall(r"(?:^|\s)--port[= ](\d+)", " ".join(argv))
    if given:
        return int(given[-1])
    ports = container.get("ports") or []
    return int(ports[0]["containerPort"]) if ports else 8000


def _pre_stop(container: Mapping[str, Any]) -> float:
    sleep = (container.get("lifecycle") or {}).get("preStop", {}).get("sleep", {})
    return float(sleep.get("seconds", 0))
