"""The manager of an object, whether it reverts an edit by itself, and the text to apply at its source."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.domain.cluster.owner import owner_of, yaml_text
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.domain.changes.snapshots import declined, deployment, grade, planned, snapshot, weighed

pytestmark = pytest.mark.fast
CAP = [{"flag": "--max-num-seqs", "value": 6.0}]
HELM = {"app.kubernetes.io/managed-by": "Helm"}
TRACKED = {"argocd.argoproj.io/tracking-id": "serving:apps/Deployment:serving/llm"}


def kept(labels: dict[str, str], annotations: dict[str, str] | None = None, **world: Any) -> ClusterSnapshot:
    workload = deployment()
    workload["metadata"]["labels"] |= labels
    workload["metadata"]["annotations"] |= annotations or {}
    return snapshot(workload=workload, **world)


def application(name: str = "serving", namespace: str = "argocd", **automated: bool) -> dict[str, Any]:
    policy = {"automated": automated} if automated else {}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"syncPolicy": policy}}


HEALS, WAITS = application(selfHeal=True, prune=True), application(prune=True)


@pytest.mark.parametrize(
    ("seen", "tool"),
    [
        pytest.param(kept({}, TRACKED, applications=(HEALS,)), "Argo CD", id="argo-self-heal"),
        pytest.param(kept({"kustomize.toolkit.fluxcd.io/name": "serving"}), "Flux", id="flux-kustomization"),
        pytest.param(kept({"helm.toolkit.fluxcd.io/name": "llm"} | HELM), "Flux", id="flux-helm"),
        pytest.param(kept({"serving.kserve.io/inferenceservice": "llm"}), "KServe", id="kserve"),
    ],
)
def test_an_owner_that_reverts_by_itself_is_given_the_edit_as_yaml(seen: ClusterSnapshot, tool: str) -> None:
    owner = owner_of(seen.workload or {}, seen)
    assert owner is not None
    assert (owner.tool, owner.reverts) == (tool, True)
    result = declined("set_flags", {"edits": CAP}, seen)
    assert result.outcome == "impossible"
    assert "would revert the edit" in result.reason
    patch = YAML(typ="safe").load(result.hint)
    kind = "InferenceService" if tool == "KServe" else "Deployment"
    assert (patch["kind"], patch["metadata"]) == (kind, {"name": "llm", "namespace": "serving"})
    (container,) = (patch["spec"]["predictor"] if tool == "KServe" else patch["spec"]["template"]["spec"])["containers"]
    assert "--max-num-seqs=6" in container["args"]
    assert container["name"] == "vllm"


def applied_by(*managers: str, **world: Any) -> ClusterSnapshot:
    """A chart's object, written by these field managers one after the other."""
    seen = kept(HELM | {"app.kubernetes.io/instance": "serving"}, **world)
    assert seen.workload is not None
    seen.workload["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Update", "time": f"2027-01-15T07:00:0{number}Z"}
        for number, manager in enumerate(managers)
    ]
    return seen


@pytest.mark.parametrize(
    ("seen", "owner", "reverts"),
    [
        pytest.param(applied_by("argocd-controller", applications=(HEALS,)), "Argo CD", True, id="heals-itself"),
        pytest.param(applied_by("argocd-controller", applications=(WAITS,)), "Argo CD", False, id="does-not"),
        pytest.param(applied_by("argocd-controller"), "Argo CD", True, id="in-another-cluster"),
        pytest.param(applied_by("helm", "argocd-controller", applications=(HEALS,)), "Argo CD", True, id="taken-over"),
        pytest.param(applied_by("argocd-controller", "helm"), "Helm", False, id="given-back"),
        pytest.param(applied_by("argocd-controller", "kubectl-edit"), "Argo CD", True, id="edited-by-hand"),
        pytest.param(applied_by("helm"), "Helm", False, id="never-argo"),
    ],
)
def test_argo_cd_is_known_by_what_it_wrote_where_it_tracks_by_a_label(
    seen: ClusterSnapshot, owner: str, *, reverts: bool
) -> None:
    found = owner_of(seen.workload or {}, seen)
    assert found is not None
    assert (found.tool, found.reverts) == (owner, reverts)


@pytest.mark.parametrize(
    ("seen", "drift", "how"),
    [
        pytest.param(
            kept(HELM, {"meta.helm.sh/release-name": "prod"}),
            "drift: Helm release prod does not know of the change, and the next helm upgrade reverts it",
            "put it into the values of prod, then: helm upgrade",
            id="helm",
        ),
        pytest.param(
            kept(HELM | {"app.kubernetes.io/instance": "prod"}),
            "drift: Helm release prod does not know of the change",
            "put it into the values of prod",
            id="helm-by-its-label",
        ),
        pytest.param(
            kept({}, TRACKED, applications=(WAITS,)),
            "drift: Argo CD application serving does not know of the change, and its next sync reverts it",
            "commit it to git, then: argocd app sync serving",
            id="argo-without-self-heal",
        ),
    ],
)
def test_an_owner_that_waits_for_its_next_release_gets_the_edit_to_commit(
    seen: ClusterSnapshot, drift: str, how: str
) -> None:
    for verb, arguments in (("set_flags", {"edits": CAP}), ("scale", {"by": 1}), ("rollback", {})):
        plan = planned(verb, arguments, seen)
        assert grade(plan, "owner") == "note"
        assert drift in weighed(plan, "owner")
        assert how in plan.commit
        assert YAML(typ="safe").load(plan.commit)["kind"] == "Deployment"


def test_the_values_of_a_release_are_named_as_far_as_charts_agree() -> None:
    assert "(in most charts: replicaCount: 5)" in planned("scale", {"by": 1}, kept(HELM)).commit
    flags = planned("set_flags", {"edits": CAP}, kept(HELM)).commit
    assert "the chart decides which of its values sets it" in flags
    assert '- "--max-num-seqs=6"' in flags


def test_a_restart_leaves_nothing_to_commit() -> None:
    plan = planned("restart", {}, kept(HELM))
    assert (plan.commit, grade(plan, "owner")) == ("", "fine")


def test_the_text_to_commit_is_masked_and_does_not_change_what_was_approved() -> None:
    seen, by_hand = kept(HELM), kept({})
    for world in (seen, by_hand):
        args = (world.workload or {})["spec"]["template"]["spec"]["containers"][0]["args"]
        args.append("--hf-token=hf_abcdefghijklmnop")
    plan = planned("set_flags", {"edits": CAP}, seen)
    assert "hf_abcdefghijklmnop" not in plan.commit
    assert plan.digest == planned("set_flags", {"edits": CAP}, by_hand).digest


@pytest.mark.parametrize(
    ("found", "tracked", "reverts"),
    [
        pytest.param((HEALS,), "serving", True, id="self-heal"),
        pytest.param((WAITS,), "serving", False, id="automated"),
        pytest.param((application(),), "serving", False, id="by-hand"),
        pytest.param((application(selfHeal=True, enabled=False),), "serving", False, id="switched-off"),
        pytest.param((application(selfHeal=True, enabled=True),), "serving", True, id="switched-on"),
        pytest.param((application("other", selfHeal=True), WAITS), "serving", False, id="of-another"),
        pytest.param((application(namespace="team-a", selfHeal=True),), "team-a_serving", True, id="in-any-namespace"),
        pytest.param((WAITS, application(namespace="b", selfHeal=True)), "serving", True, id="one-of-two-by-name"),
        pytest.param((), "serving", True, id="elsewhere"),
    ],
)
def test_argo_cd_reverts_only_with_self_heal(found: tuple[Any, ...], tracked: str, *, reverts: bool) -> None:
    seen = kept({}, {"argocd.argoproj.io/tracking-id": f"{tracked}:apps/Deployment:serving/llm"}, applications=found)
    owner = owner_of(seen.workload or {}, seen)
    assert owner is not None
    assert owner.reverts is reverts


@pytest.mark.parametrize(
    ("world", "why"),
    [
        pytest.param({}, "it is not in this cluster", id="elsewhere"),
        pytest.param({"unreadable": {"applications": "403"}}, "it could not be read: 403", id="forbidden"),
    ],
)
def test_where_self_heal_is_not_known_nothing_is_edited(world: dict[str, Any], why: str) -> None:
    result = declined("scale", {"by": 1}, kept({}, TRACKED, **world))
    assert f"may revert the edit, since whether it heals itself is not known ({why})" in result.reason
    assert YAML(typ="safe").load(result.hint)["spec"] == {"replicas": 5}


def test_an_autoscaler_of_a_release_gets_its_floor_and_the_text_to_commit() -> None:
    scaler = {
        "metadata": {"name": "llm", "namespace": "serving", "uid": "hpa", "labels": HELM},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 4, "maxReplicas": 8},
    }
    plan = planned("scale", {"by": 1}, snapshot(autoscalers=(scaler,)))
    assert grade(plan, "owner") == "note"
    assert YAML(typ="safe").load(plan.commit)["spec"] == {"minReplicas": 5}


def test_an_unknown_manager_is_a_warning_not_a_refusal() -> None:
    plan = planned("set_flags", {"edits": CAP}, kept({"app.kubernetes.io/managed-by": "Terraform"}))
    assert grade(plan, "owner") == "warning"
    assert "Terraform" in weighed(plan, "owner")


def test_yaml_reads_back_as_what_was_written() -> None:
    value = {"a": {"empty": {}, "list": [{"name": "x", "args": ["--a=1", "yes", "- b"]}, [], "1"]}, "n": 1, "t": True}
    assert YAML(typ="safe").load(yaml_text(value)) == value
