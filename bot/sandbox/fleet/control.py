"""The fleet's own endpoints below `/__sandbox__/`: load, faults of a replica, faults of a node's GPUs.

Only tests, the demo and people use them; the bot does not know that they exist.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bot.sandbox.fleet.engines import Fault
from bot.sandbox.fleet.gpus import GpuTrouble
from bot.sandbox.fleet.kubelet import Kubelets
from bot.sandbox.fleet.traffic import Traffic
from bot.sandbox.fleet.workload import Load


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoadAsked(_Asked):
    """What is not named keeps the defaults of `Load`, so that one payload always means one load."""

    workers: int = Field(default=0, ge=0, le=5000)
    arrivals_per_second: float = Field(default=0.0, ge=0, le=500)
    prompt_tokens: tuple[int, int] = Load().prompt_tokens
    output_tokens: tuple[int, int] = Load().output_tokens
    ramp_seconds: float = Field(default=0.0, ge=0)
    burst: int = Field(default=0, ge=0, le=5000)
    pause_seconds: float = Field(default=Load().pause_seconds, ge=0)

    @model_validator(mode="after")
    def _ranges_go_up(self) -> Self:
        for low, high in (self.prompt_tokens, self.output_tokens):
            if not 1 <= low <= high:
                raise ValueError(f"[{low}, {high}] is not a range of tokens; give [lowest, highest]")
        return self

    def load(self) -> Load:
        return Load(**self.model_dump())


class StandingFault(_Asked):
    """Lasts until another one replaces it; the pod keeps it over a restart of its container."""

    kind: Literal["none", "small_pool", "slow", "stuck", "metrics_down", "dies"]
    blocks: int = Field(default=32, ge=2)
    factor: float = Field(default=4.0, gt=0)
    after: float = Field(default=20.0, gt=0)


class Death(_Asked):
    """Happens once: the engine dies, the container restarts."""

    kind: Literal["engine_dead", "engine_killed", "worker_killed", "cuda_oom"]


class Hang(_Asked):
    """Happens once: the engine hangs, its liveness probe fails, and the kubelet ends the container."""

    kind: Literal["hangs"]


class FaultAsked(BaseModel):
    fault: Annotated[StandingFault | Death | Hang, Field(discriminator="kind")]


class GpuAsked(_Asked):
    """Trouble of one GPU, or of all when `gpu` is left out; a field that is not named stays as it is."""

    gpu: int | None = Field(default=None, ge=0)
    full_csv: bool | None = None
    xid: int | None = None
    clock_event_reasons: int | None = None
    temperature: float | None = None
    hot_under_load: float | None = None
    memory_temperature: float | None = None
    sm_clock: float | None = None
    power: float | None = None
    fb_used: float | None = None
    row_remap_failure: int | None = None
    uncorrectable_remapped_rows: int | None = None
    correctable_remapped_rows: int | None = None
    ecc_dbe_volatile: int | None = None
    clear: bool = False


M = TypeVar("M", bound=BaseModel)


class Control:
    """The handlers; `routes` plugs them into an application."""

    def __init__(self, traffic: Traffic, kubelets: Kubelets) -> None:
        self._traffic = traffic
        self._kubelets = kubelets

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get("/__sandbox__/load", self._get_load),
            web.post("/__sandbox__/load", self._post_load),
            web.get("/__sandbox__/nodes", self._get_nodes),
            web.post("/__sandbox__/nodes/{node}/gpu", self._post_gpu),
            web.post("/__sandbox__/replicas/{pod}/fault", self._post_fault),
        ]

    async def _get_load(self, _request: web.Request) -> web.Response:
        return web.json_response(await self._traffic.state())

    async def _post_load(self, request: web.Request) -> web.Response:
        asked = await _parse(request, LoadAsked)
        self._traffic.change(asked.load(), time.time())
        return web.json_response(await self._traffic.state())

    async def _post_fault(self, request: web.Request) -> web.Response:
        worker = self._kubelets.worker_of(request.match_info["pod"])
        if worker is None:
            raise _refusal(web.HTTPNotFound, f"no pod {request.match_info['pod']} runs on this fleet")
        fault = (await _parse(request, FaultAsked, wrap="fault")).fault
        if worker.server is not None and (reason := worker.server.refusal(fault.kind)):
            raise _refusal(web.HTTPConflict, f"{worker.spec.name}: {reason}")
        if isinstance(fault, StandingFault):
            await worker.suffer(Fault(**fault.model_dump()))
        elif worker.server is None:
            raise _refusal(web.HTTPConflict, f"{worker.spec.name} has no running engine that could die")
        elif isinstance(fault, Hang):
            await worker.fail_liveness()
        else:
            worker.server.die(fault.kind, time.time())
        return web.json_response({"pod": worker.spec.name, "fault": fault.model_dump()})

    async def _get_nodes(self, _request: web.Request) -> web.Response:
        nodes = {
            name: {
                "address": node.address,
                "full_csv": node.gpus.full_csv,
                "gpus": [
                    {"gpu": gpu.index, "pod": gpu.user.pod if gpu.user else None, **asdict(gpu.trouble)}
                    for gpu in node.gpus.gpus
                ],
            }
            for name, node in self._kubelets.nodes.items()
        }
        return web.json_response(nodes)

    async def _post_gpu(self, request: web.Request) -> web.Response:
        node = self._kubelets.nodes.get(request.match_info["node"])
        if node is None:
            raise _refusal(web.HTTPNotFound, f"no node {request.match_info['node']}")
        asked = await _parse(request, GpuAsked)
        if asked.gpu is not None and asked.gpu >= len(node.gpus.gpus):
            raise _refusal(web.HTTPNotFound, f"{node.name} has {len(node.gpus.gpus)} GPUs")
        changes = asked.model_dump(exclude_none=True, exclude={"gpu", "full_csv", "clear"})
        for gpu in node.gpus.gpus:
            if asked.gpu in (None, gpu.index):
                gpu.trouble = replace(GpuTrouble() if asked.clear else gpu.trouble, **changes)
        if asked.full_csv is not None:
            node.gpus.full_csv = asked.full_csv
        return await self._get_nodes(request)


async def _parse(request: web.Request, model: type[M], wrap: str | None = None) -> M:
    text = await request.text() or "{}"
    try:
        return model.model_validate_json(f'{{"{wrap}": {text}}}' if wrap else text)
    except ValidationError as error:
        faults: list[dict[str, Any]] = [dict(one) for one in error.errors(include_url=False, include_context=False)]
        detail = "; ".join(f"{'.'.join(str(p) for p in one['loc'])}: {one['msg']}" for one in faults)
        raise _refusal(web.HTTPUnprocessableEntity, detail) from None


def _refusal(kind: type[web.HTTPException], text: str) -> web.HTTPException:
    return kind(text=text + "\n")
