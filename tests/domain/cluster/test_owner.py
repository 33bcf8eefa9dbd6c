"""The manager of an object, whether it reverts an edit by itself, and the text to apply at its source."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.domain.changes.planning import plan_change
from bot.domain.cluster.owner import owner_of, yaml_text
from bot.domain.cluster.snapshot import ClusterSnapshot
from tests.domain.changes.snapshots import CONTEXT, declined, deployment, grade, planned, snapshot, weighed

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


def flux(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name, "namespace": "serving"}, "spec": spec}


def release(mode: str = "", **spec: Any) -> tuple[dict[str, Any], ...]:
    return (flux("HelmRelease", "llm", **({"driftDetection": {"mode": mode}} if mode else {}), **spec),)


CORRECTS = release("enabled")
HEALS, WAITS = application(selfHeal=True, prune=True), application(prune=True)


@pytest.mark.parametrize(
    ("seen", "tool"),
    [
        pytest.param(kept({}, TRACKED, applications=(HEALS,)), "Argo CD", id="argo-self-heal"),
        pytest.param(kept({"kustomize.toolkit.fluxcd.io/name": "serving"}), "Flux", id="flux-kustomization"),
        pytest.param(kept({"helm.toolkit.fluxcd.io/name": "llm"} | HELM, flux=CORRECTS), "Flux", id="flux-helm"),
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
    assert owner.how not in result.reason, "people read it above the patch, which begins with it"
    assert owner.how in result.hint.splitlines()[0]
    patch = YAML(typ="safe").load(result.hint)
    kind = "InferenceService" if tool == "KServe" else "Deployment"
    assert (patch["kind"], patch["metadata"]) == (kind, {"name": "llm", "namespace": "serving"})
    (container,) = (patch["spec"]["predictor"] if tool == "KServe" else patch["spec"]["template"]["spec"])["containers"]
    assert "--max-num-seqs=6" in container["args"]
    assert container["name"] == "vllm"


FLUX = "kustomize.toolkit.fluxcd.io"
OF_FLUX, OF_RELEASE = {f"{FLUX}/name": "serving"}, {"helm.toolkit.fluxcd.io/name": "llm"} | HELM


@pytest.mark.parametrize(
    ("seen", "reverts"),
    [
        pytest.param(kept(OF_FLUX, {f"{FLUX}/reconcile": "disabled"}), "without kustomize.toolkit.fluxcd.io/reconcile=",
                     id="not-reconciled"),
        pytest.param(kept(OF_FLUX | {f"{FLUX}/ssa": "ignore"}), "without kustomize.toolkit.fluxcd.io/ssa=",
                     id="ignored"),
    ],
)  # fmt: skip
def test_what_a_mark_excludes_from_flux_is_edited(seen: ClusterSnapshot, reverts: str) -> None:
    plan = planned("set_flags", {"edits": CAP}, seen)
    assert grade(plan, "owner") == "note"
    assert reverts in weighed(plan, "owner")
    assert "--max-num-seqs=6" in plan.commit


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(kept(OF_FLUX, {f"{FLUX}/reconcile": "enabled"}), id="reconciled"),
        pytest.param(kept(OF_FLUX, {f"{FLUX}/ssa": "Merge"}), id="merged"),
        # Flux obeys these only where git or the chart has them.
        pytest.param(kept(OF_FLUX, {f"{FLUX}/ssa": "IfNotPresent"}), id="only-created"),
        pytest.param(
            kept(OF_RELEASE, {"helm.toolkit.fluxcd.io/driftDetection": "disabled"}, flux=CORRECTS),
            id="no-drift-detection",
        ),
        pytest.param(
            kept(OF_RELEASE, {f"{FLUX}/reconcile": "disabled"}, flux=CORRECTS), id="mark-of-the-other-controller"
        ),
    ],
)
def test_other_marks_keep_flux_from_nothing(seen: ClusterSnapshot) -> None:
    assert "would revert" in declined("set_flags", {"edits": CAP}, seen).reason


@pytest.mark.parametrize(
    ("seen", "reverts"),
    [
        pytest.param(kept(OF_RELEASE, flux=release()), "its next upgrade reverts it", id="default"),
        pytest.param(kept(OF_RELEASE, flux=release("disabled")), "its next upgrade reverts it", id="disabled"),
        pytest.param(kept(OF_RELEASE, flux=release("warn")), "its next upgrade reverts it", id="only-warns"),
        pytest.param(kept(OF_RELEASE, flux=release("enabled", suspend=True)), "after it is resumed", id="suspended"),
        pytest.param(kept(OF_FLUX, flux=(flux("Kustomization", "serving", suspend=True),)), "after it is resumed",
                     id="suspended-kustomization"),
    ],
)  # fmt: skip
def test_what_flux_does_not_correct_by_itself_is_edited(seen: ClusterSnapshot, reverts: str) -> None:
    plan = planned("set_flags", {"edits": CAP}, seen)
    assert grade(plan, "owner") == "note"
    assert reverts in weighed(plan, "owner")
    assert "flux reconcile" in weighed(plan, "owner")
    assert "--max-num-seqs=6" in plan.commit


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        pytest.param(kept(OF_RELEASE, unreadable={"flux": "no role grants it"}), "no role grants it", id="not-read"),
        pytest.param(kept(OF_RELEASE, flux=(flux("HelmRelease", "other"),)), "not in this cluster", id="elsewhere"),
    ],
)
def test_a_release_that_is_not_known_counts_as_one_that_corrects(seen: ClusterSnapshot, why: str) -> None:
    reason = declined("set_flags", {"edits": CAP}, seen).reason
    assert "may revert the edit" in reason
    assert why in reason


def test_a_kustomization_that_is_not_suspended_reverts_an_edit() -> None:
    seen = kept(OF_FLUX, flux=(flux("Kustomization", "serving", suspend=False),))
    assert "would revert the edit" in declined("set_flags", {"edits": CAP}, seen).reason


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


# --- fields that an Argo CD application ignores -----------------------------------------------------------------------

REPLICAS = {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
RESPECTS = "RespectIgnoreDifferences=true"


def ignoring(*rules: dict[str, Any], options: tuple[str, ...] = (), heals: bool = True) -> dict[str, Any]:
    made = application(selfHeal=heals)
    made["spec"]["ignoreDifferences"] = list(rules)
    made["spec"]["syncPolicy"]["syncOptions"] = list(options)
    return made


def tracked_by(*applications: dict[str, Any], options: str = "") -> ClusterSnapshot:
    annotations = {"argocd.argoproj.io/sync-options": options} if options else {}
    return kept({}, TRACKED | annotations, applications=applications)


def scaled_where(*rules: dict[str, Any]) -> str:
    """The outcome of scaling where a self-healing application has these rules."""
    return plan_change("scale", {"by": 1}, tracked_by(ignoring(*rules)), CONTEXT).outcome


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        pytest.param((REPLICAS,), "planned", id="its-pointer"),
        pytest.param((REPLICAS | {"jsonPointers": ["/spec"]},), "planned", id="a-pointer-around-it"),
        pytest.param((REPLICAS | {"group": "*", "kind": "*"},), "planned", id="any-kind"),
        pytest.param((REPLICAS | {"name": "llm", "namespace": "serving"},), "planned", id="this-one"),
        pytest.param(
            ({"group": "apps", "kind": "Deployment", "jqPathExpressions": [".spec.replicas"]},), "planned", id="jq"
        ),
        pytest.param(
            ({"group": "*", "kind": "*", "managedFieldsManagers": ["incident-bot"]},), "planned", id="what-we-write"
        ),
        pytest.param((), "impossible", id="none"),
        pytest.param((REPLICAS | {"name": "other"},), "impossible", id="another-name"),
        pytest.param((REPLICAS | {"namespace": "other"},), "impossible", id="another-namespace"),
        pytest.param((REPLICAS | {"kind": "StatefulSet"},), "impossible", id="another-kind"),
        pytest.param((REPLICAS | {"group": ""},), "impossible", id="the-core-group"),
        pytest.param((REPLICAS | {"jsonPointers": ["/spec/replicasX", "/spec/template"]},), "impossible", id="other"),
        pytest.param(
            ({"group": "apps", "kind": "Deployment", "jqPathExpressions": [".spec.replicas | select(. > 3)"]},),
            "impossible",
            id="jq-that-is-not-understood",
        ),
        pytest.param(
            ({"group": "*", "kind": "*", "managedFieldsManagers": ["kube-controller-manager"]},),
            "impossible",
            id="what-an-autoscaler-writes",
        ),
    ],
)
def test_self_heal_leaves_alone_what_its_application_ignores(rules: tuple[dict[str, Any], ...], outcome: str) -> None:
    assert scaled_where(*rules) == outcome


def test_what_is_ignored_only_in_comparisons_lasts_until_the_next_sync() -> None:
    plan = planned("scale", {"by": 1}, tracked_by(ignoring(REPLICAS)))
    assert grade(plan, "owner") == "note"
    assert weighed(plan, "owner") == (
        "drift: Argo CD application serving ignores /spec/replicas (ignoreDifferences), but its next sync of the object"
        " writes it, without RespectIgnoreDifferences; commit it to git, then: argocd app sync serving"
    )
    assert YAML(typ="safe").load(plan.commit)["spec"] == {"replicas": 5}


@pytest.mark.parametrize("heals", [True, False])
def test_what_is_ignored_in_syncs_too_lasts(*, heals: bool) -> None:
    plan = planned("scale", {"by": 1}, tracked_by(ignoring(REPLICAS, options=(RESPECTS,), heals=heals)))
    assert (grade(plan, "owner"), plan.commit) == ("fine", "")
    assert weighed(plan, "owner") == (
        "Argo CD application serving leaves /spec/replicas alone, in syncs too (ignoreDifferences,"
        " RespectIgnoreDifferences): there is nothing to commit"
    )


def test_one_object_may_be_left_out_of_what_syncs_respect() -> None:
    seen = tracked_by(ignoring(REPLICAS, options=(RESPECTS,)), options="Prune=false,RespectIgnoreDifferences=false")
    assert grade(planned("scale", {"by": 1}, seen), "owner") == "note"


def test_each_application_of_that_name_has_to_ignore_it() -> None:
    other = application(namespace="b", selfHeal=True)
    assert declined("scale", {"by": 1}, tracked_by(ignoring(REPLICAS), other)).outcome == "impossible"


def test_ignored_replicas_let_no_flag_be_edited() -> None:
    seen = tracked_by(ignoring(REPLICAS, {"group": "*", "kind": "*", "managedFieldsManagers": ["incident-bot"]}))
    assert "would revert the edit" in declined("set_flags", {"edits": CAP}, seen).reason
    template_only = tracked_by(ignoring(REPLICAS | {"jsonPointers": ["/spec/template"]}))
    assert declined("set_flags", {"edits": CAP}, template_only).outcome == "impossible", "its strategy is put back"
    everything = tracked_by(ignoring(REPLICAS | {"jsonPointers": ["/spec"]}))
    assert "ignores /spec (ignoreDifferences)" in weighed(planned("set_flags", {"edits": CAP}, everything), "owner")


def test_an_application_that_cannot_be_read_ignores_nothing() -> None:
    assert declined("scale", {"by": 1}, kept({}, TRACKED, unreadable={"applications": "403"})).outcome == "impossible"


def test_a_release_that_helm_applies_on_the_server_is_upgraded_with_force() -> None:
    """Helm 4 does, and its next plain upgrade would fail on each field that the bot wrote."""
    seen = applied_by("helm")
    assert seen.workload is not None
    seen.workload["metadata"]["managedFields"][0]["operation"] = "Apply"
    plan = planned("set_flags", {"edits": CAP}, seen)
    assert "then: helm upgrade --force-conflicts" in plan.commit
    assert "the next helm upgrade with --force-conflicts reverts it" in weighed(plan, "owner")
    assert "without the option it fails on the fields that the bot wrote" in weighed(plan, "owner")
