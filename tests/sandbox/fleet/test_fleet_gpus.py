"""The metrics of a node's dcgm-exporter, with its stock CSV and with all of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.sandbox.fleet.gpus import GpuTrouble, GpuUser, NodeGpus

pytestmark = pytest.mark.fast


def node(*, busy: float = 1.0) -> NodeGpus:
    gpus = NodeGpus("gpu-node-1")
    gpus.assign(GpuUser("serving", "llm-0", "vllm", lambda: busy), 1)
    return gpus


def values(gpus: NodeGpus, name: str) -> dict[str, float]:
    samples = [s for f in text_string_to_metric_families(gpus.metrics_text()) for s in f.samples]
    return {s.labels["gpu"]: s.value for s in samples if s.name == name}


def test_a_gpu_names_the_pod_that_holds_it_and_a_free_one_names_none() -> None:
    samples = [s for f in text_string_to_metric_families(node().metrics_text()) for s in f.samples]
    held = {s.labels["gpu"]: s.labels.get("pod") for s in samples if s.name == "DCGM_FI_DEV_GPU_TEMP"}
    assert held == {"0": "llm-0", "1": None, "2": None, "3": None}
    first = next(s for s in samples if s.name == "DCGM_FI_DEV_GPU_TEMP")
    assert {"gpu", "UUID", "device", "modelName", "Hostname", "container", "namespace", "pod"} <= set(first.labels)


def test_the_stock_csv_shows_no_throttle_reasons_and_no_volatile_ecc() -> None:
    gpus = node()
    assert "CLOCK" not in gpus.metrics_text().replace("SM_CLOCK", "").replace("MEM_CLOCK", "")
    assert "ECC_DBE" not in gpus.metrics_text()
    gpus.full_csv = True
    assert values(gpus, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS") == {"0": 0, "1": 1, "2": 1, "3": 1}


def test_trouble_shows_in_the_readings_and_throttling_lowers_the_clock() -> None:
    gpus = node()
    sick = gpus.gpus[0]
    assert values(gpus, "DCGM_FI_DEV_SM_CLOCK")["0"] == 1980
    sick.trouble = replace(GpuTrouble(), xid=79, clock_event_reasons=64, temperature=88)
    assert values(gpus, "DCGM_FI_DEV_SM_CLOCK")["0"] < 1000
    assert values(gpus, "DCGM_FI_DEV_GPU_TEMP")["0"] == 88
    assert values(gpus, "DCGM_FI_DEV_XID_ERRORS") == {"0": 79, "1": 0, "2": 0, "3": 0}


def test_window_counts_appear_with_the_full_csv_only() -> None:
    gpus = node()
    gpus.gpus[0].trouble = GpuTrouble(xid=48, clock_event_reasons=0x40)
    assert values(gpus, "DCGM_EXP_XID_ERRORS_COUNT") == {}
    gpus.full_csv = True
    assert values(gpus, "DCGM_EXP_XID_ERRORS_COUNT") == {"0": 1}
    assert values(gpus, "DCGM_EXP_CLOCK_EVENTS_COUNT")["0"] == 1


def test_a_released_gpu_is_free_again() -> None:
    gpus = node()
    gpus.release("serving", "llm-0")
    assert all(gpu.user is None for gpu in gpus.gpus)
