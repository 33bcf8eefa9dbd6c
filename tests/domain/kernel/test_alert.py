"""Whether an alert is about models, or about workloads of any kind."""

from __future__ import annotations

import pytest

from bot.domain.kernel.alert import Alert
from tests import builders

pytestmark = pytest.mark.fast


def named(name: str, **labels: str) -> Alert:
    return builders.alert().model_copy(update={"labels": {"alertname": name, "namespace": "shop", "pod": "x"} | labels})


@pytest.mark.parametrize(
    "name",
    [
        "VLLMHighMemoryUsage", "LLMGatewayErrorBudgetBurn", "InferenceHighLatency", "TTFTSLOBurn", "KVCacheThrash",
        "ServingPodsCrashLooping", "GpuXidError", "DCGMThermalViolation", "NodePowerBrake", "ModelServerOOMKilled",
    ],
)  # fmt: skip
def test_its_name_says_that_it_is_about_models(name: str) -> None:
    assert named(name).names_models


@pytest.mark.parametrize("label", ["model_name", "gpu", "inference_pool"])
def test_a_label_says_that_it_is_about_models(label: str) -> None:
    assert named("HighLatency", **{label: "x"}).names_models


@pytest.mark.parametrize(
    "name",
    ["KubePodCrashLooping", "KubeContainerOOMKilled", "PodOutOfMemory", "ErrorBudgetBurn", "FrontendHighLatencySLO"],
)
def test_others_are_about_workloads_of_any_kind(name: str) -> None:
    labels = {
        "container": "app",
        "service": "kube-state-metrics",
        "job": "kube-state-metrics",
        "uid": "1",
        "reason": "x",
    }
    assert not named(name, **labels).names_models
