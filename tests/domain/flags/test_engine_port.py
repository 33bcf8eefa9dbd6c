"""The port of the engine: every reading of a fleet comes from there."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.engine_port import engine_port
from tests.domain.changes import real_fleets
from tests.domain.changes.snapshots import container

pytestmark = pytest.mark.fast

EXPORTER = {"name": "exporter", "image": "exporter:1", "ports": [{"name": "metrics", "containerPort": 9400}]}


def pod(*containers: Obj) -> Obj:
    return {"spec": {"containers": list(containers)}}


def engine(*args: str, ports: list[dict[str, Any]] | None = None, **more: Any) -> Obj:
    return container(*args, **more) | {"ports": ports or []}


@pytest.mark.parametrize(
    ("made", "port"),
    [
        pytest.param(engine(), 8000, id="nothing-says-it"),
        pytest.param(engine("--port=8080"), 8080, id="flag"),
        pytest.param(engine("--port", "8080", ports=[{"name": "http", "containerPort": 80}]), 8080, id="flag-first"),
        pytest.param(engine(command=["sh", "-c", "exec vllm serve m --port 8080"]), 8080, id="in-a-script"),
        pytest.param(engine("--port=$(PORT)", ports=[{"containerPort": 8080}]), 8080, id="variable-and-one-port"),
        pytest.param(engine(ports=[{"containerPort": 9}, {"name": "http", "containerPort": 81}]), 81, id="named"),
        pytest.param(engine(ports=[{"containerPort": 9}, {"containerPort": 81}]), 8000, id="two-without-a-name"),
    ],
)
def test_the_port_is_that_of_the_engine_and_not_that_of_a_sidecar(made: Obj, port: int) -> None:
    assert engine_port(pod(made)) == port
    assert engine_port(pod(EXPORTER, made)) == port


def test_among_strangers_the_port_with_the_name_is_the_engines() -> None:
    strangers: list[Obj] = [{"name": "a", "image": "x:1", "args": ["--port=1"]}, {"name": "b", "image": "y:1"}]
    assert engine_port(pod(*strangers)) == 8000
    assert engine_port(pod(*strangers, EXPORTER)) == 9400


@pytest.mark.parametrize("fleet", ["kueue_groups", "karpenter_zones"])
def test_the_ports_of_real_fleets_are_read(fleet: str) -> None:
    assert engine_port(getattr(real_fleets, fleet)().pods[0]) == 8080
