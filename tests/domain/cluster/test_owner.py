"""The manager of an object, and the patch to apply at its source."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.domain.cluster.owner import owner_of, yaml_text
from tests.domain.changes.snapshots import declined, deployment, grade, planned, snapshot, weighed

pytestmark = pytest.mark.fast
CAP = [{"flag": "--max-num-seqs", "value": 6.0}]


def kept(labels: dict[str, str], annotations: dict[str, str] | None = None) -> Any:
    workload = deployment()
    workload["metadata"]["labels"] |= labels
    workload["metadata"]["annotations"] |= annotations or {}
    return snapshot(workload=workload)


@pytest.mark.parametrize(
    ("labels", "annotations", "tool"),
    [
        ({"app.kubernetes.io/managed-by": "Helm"}, {"meta.helm.sh/release-name": "llm"}, "Helm"),
        ({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "llm"}, {}, "Helm"),
        ({}, {"argocd.argoproj.io/tracking-id": "serving:apps/Deployment:serving/llm"}, "Argo CD"),
        ({"kustomize.toolkit.fluxcd.io/name": "serving"}, {}, "Flux"),
        ({"helm.toolkit.fluxcd.io/name": "llm"}, {}, "Flux"),
        ({"serving.kserve.io/inferenceservice": "llm"}, {}, "KServe"),
    ],
)
def test_whoever_keeps_it_is_given_the_edit_as_yaml(
    labels: dict[str, str], annotations: dict[str, str], tool: str
) -> None:
    seen = kept(labels, annotations)
    owner = owner_of(seen.workload or {})
    assert owner is not None
    assert owner.tool == tool
    result = declined("set_flags", {"edits": CAP}, seen)
    assert result.outcome == "impossible"
    assert "would revert the edit" in result.reason
    patch = YAML(typ="safe").load(result.hint)
    kind = "InferenceService" if tool == "KServe" else "Deployment"
    assert (patch["kind"], patch["metadata"]) == (kind, {"name": "llm", "namespace": "serving"})
    (container,) = (patch["spec"]["predictor"] if tool == "KServe" else patch["spec"]["template"]["spec"])["containers"]
    assert "--max-num-seqs=6" in container["args"]
    assert container["name"] == "vllm"


def test_an_unknown_manager_is_a_warning_not_a_refusal() -> None:
    plan = planned("set_flags", {"edits": CAP}, kept({"app.kubernetes.io/managed-by": "Terraform"}))
    assert grade(plan, "owner") == "warning"
    assert "Terraform" in weighed(plan, "owner")


def test_yaml_reads_back_as_what_was_written() -> None:
    value = {"a": {"empty": {}, "list": [{"name": "x", "args": ["--a=1", "yes", "- b"]}, [], "1"]}, "n": 1, "t": True}
    assert YAML(typ="safe").load(yaml_text(value)) == value
