"""Probes over the cluster's objects, as tables of small snapshots."""

from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import STARTS_AT
from tests.kit import probes
from tests.kit.probes import Samples, request
from tests.probes.clusters import MINUTES, OLD, OPENED, at, endpoints, revision, snapshot, template

pytestmark = pytest.mark.fast


async def ask(
    probe: str,
    snapshot: ClusterSnapshot,
    *,
    kind: str = "Deployment",
    began: float = OPENED,
    history: Samples | None = None,
    **more: Any,
) -> Reading:
    target = Target(namespace="serving", kind=kind, name="llm")
    moments = {STARTS_AT: began}
    asked = request(probe, snapshot, at=OPENED, incident_id="INC-7", target=target, moments=moments, **more)
    return await probes.ask(asked, **({"history": history} if history else {}))


# --- recent rollout ---------------------------------------------------------------------------------------------------


async def test_a_changed_flag_shortly_before_the_incident_can_be_its_cause() -> None:
    reading = await ask("recent_rollout", snapshot(revision(2, template("--max-num-seqs=256"), minutes_before=20), OLD))
    assert reading.fields == {
        "happened": True,
        "matters": True,
        "by_bot": False,
        "summary": "--max-num-seqs 64 → 256",
        "revision": 2.0,
        "previous_revision": 1.0,
        "earlier": True,
        "config_map": "",
    }
    assert reading.detail == "rolled out 20 min before the incident began: --max-num-seqs 64 → 256"
    just_now = snapshot(revision(2, template("--max-num-seqs=256"), minutes_before=0.5), OLD)
    expected = "rolled out less than a minute before the incident began"
    assert (await ask("recent_rollout", just_now)).detail.startswith(expected)


def started(name: str, *, minutes_before: float, ready_before: float | None, restarts: int = 0) -> Obj:
    """A pod of revision 2 whose engine started so long before the incident, and was Ready so long before it."""
    started_at = at(OPENED - minutes_before * MINUTES)
    ready = {"type": "Ready", "status": "False"}
    if ready_before is not None:
        ready |= {"status": "True", "lastTransitionTime": at(OPENED - ready_before * MINUTES)}
    owner = {"kind": "ReplicaSet", "name": "llm-2", "uid": "rs-2", "controller": True}
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"app": "llm"},
            "ownerReferences": [owner],
            "creationTimestamp": started_at,
        },
        "status": {
            "phase": "Running",
            "conditions": [ready],
            "containerStatuses": [{"restartCount": restarts, "state": {"running": {"startedAt": started_at}}}],
        },
    }


@pytest.mark.parametrize(
    ("pods", "matters"),
    [
        pytest.param([started("a", minutes_before=18, ready_before=5)], True, id="ready-before"),
        pytest.param([started("a", minutes_before=18, ready_before=-3)], False, id="ready-only-after"),
        pytest.param(
            [started("a", minutes_before=18, ready_before=-3), started("b", minutes_before=17, ready_before=1)],
            True,
            id="the-first-one-counts",
        ),
        pytest.param([started("a", minutes_before=18, ready_before=None)], True, id="none-ready-may-lack-capacity"),
        pytest.param([started("a", minutes_before=18, ready_before=-3, restarts=2)], True, id="it-restarted-since"),
        pytest.param([], True, id="its-pods-are-gone"),
    ],
)
async def test_a_deploy_is_the_cause_only_if_it_served_before_the_first_bad_sample(
    pods: list[Obj], matters: bool
) -> None:
    changed = revision(2, template("--max-num-seqs=256"), minutes_before=20)
    reading = await ask("recent_rollout", snapshot(changed, OLD, pods=tuple(pods)))
    assert reading.fields["matters"] is matters
    assert ("its first replica was Ready" in str(reading.detail)) is not matters


async def test_a_replica_whose_sidecar_restarted_had_served_since_its_engine_started() -> None:
    pod = started("a", minutes_before=18, ready_before=-3)
    pod["spec"] = {"containers": [{"name": "vllm"}, {"name": "proxy"}]}
    pod["status"]["containerStatuses"] = [
        pod["status"]["containerStatuses"][0] | {"name": "vllm"},
        {"name": "proxy", "restartCount": 1, "state": {"running": {"startedAt": at(OPENED + 2 * MINUTES)}}},
    ]
    reading = await ask("recent_rollout", snapshot(AT_TWENTY, OLD, pods=(pod,)))
    assert reading.fields["matters"] is True


def crashed(name: str, *starts_before: float) -> Obj:
    """As `started`, with an engine that started so many minutes before the incident, and serves again by now."""
    first, *again = starts_before
    pod = started(name, minutes_before=first, ready_before=again[-1] - 1, restarts=len(again))
    (engine,) = pod["status"]["containerStatuses"]
    engine["state"] = {"running": {"startedAt": at(OPENED - again[-1] * MINUTES)}}
    engine["lastState"] = {"terminated": {"startedAt": at(OPENED - ([first, *again][-2]) * MINUTES)}}
    return pod


@pytest.mark.parametrize(
    ("pods", "matters"),
    [
        pytest.param([crashed("a", 18, -1), crashed("b", 17, -2)], True, id="each-crashed-once"),
        pytest.param([crashed("a", 18, -1, -3, -6)], True, id="a-crash-loop"),
        pytest.param([crashed("a", -1, -6)], False, id="it-started-only-after"),
    ],
)
async def test_a_deploy_whose_replicas_all_crashed_had_served_before(pods: list[Obj], matters: bool) -> None:
    reading = await ask("recent_rollout", snapshot(AT_TWENTY, OLD, pods=tuple(pods)))
    assert reading.fields["matters"] is matters


def thrash(*, since: float, until: float = 0.0, replica: str = "a", healthy_from: float = 60.0) -> list[Scrape]:
    """Samples each 15 s up to the alert: one request finishes a second.

    From `since` to `until` minutes before the alert each of them is preempted twice.
    """
    found, preemptions = [], 0.0
    for step in range(int(healthy_from * 4) + 1):
        before = healthy_from - step / 4
        preemptions += 30.0 if since >= before > until else 0.0
        ranks = {"0": {"request_success": 15.0 * step, "num_preemptions": preemptions}}
        found.append(Scrape(replica=replica, uid=replica, at=OPENED - before * MINUTES, started_at=0.0, ranks=ranks))
    return found


THRASHES: dict[str, Any] = {"parameters": {"thrash_above": "settings.thrash_ratio"}, "settings": {"thrash_ratio": 0.1}}
AT_TWENTY = revision(2, template("--max-num-seqs=256"), minutes_before=20)


@pytest.mark.parametrize(
    ("samples", "ready_before", "matters"),
    [
        pytest.param(thrash(since=8), 10, True, id="served-before-the-first-bad-sample"),
        pytest.param(thrash(since=15), 10, False, id="served-after-it-and-before-the-alert"),
        pytest.param([], 10, True, id="no-samples-so-the-alert-counts"),
        pytest.param(thrash(since=40, until=30), 10, True, id="an-earlier-thrash-had-ended"),
        pytest.param(thrash(since=40, healthy_from=4), 10, True, id="samples-begin-late"),
        pytest.param(
            [one for one in thrash(since=40) if not OPENED - 16 * MINUTES < one.at < OPENED - 8 * MINUTES],
            10, True, id="nothing-is-known-of-the-time-between",
        ),
        pytest.param(thrash(since=15) + thrash(since=0, replica="b"), 10, False, id="one-bad-replica-is-enough"),
    ],
)  # fmt: skip
async def test_a_deploy_that_served_only_after_the_first_bad_sample_is_not_the_cause(
    samples: list[Scrape], ready_before: float, matters: bool
) -> None:
    pods = (started("a", minutes_before=18, ready_before=ready_before),)
    reading = await ask("recent_rollout", snapshot(AT_TWENTY, OLD, pods=pods), history=Samples(*samples), **THRASHES)
    assert reading.fields["matters"] is matters
    assert ("Ready 5 min after the first bad sample" in str(reading.detail)) is not matters


async def test_a_rollout_belongs_to_the_time_of_the_first_bad_sample() -> None:
    """Ninety minutes of trouble before the alert: the deploy before them is the suspect."""
    samples = thrash(since=90, healthy_from=125)
    early = revision(2, template("--max-num-seqs=256"), minutes_before=130)
    reading = await ask("recent_rollout", snapshot(early, OLD), history=Samples(*samples), **THRASHES)
    assert reading.fields["matters"] is True
    assert "rolled out 40 min before the first bad sample" in str(reading.detail)


async def test_without_a_rollout_the_time_that_was_searched_is_named() -> None:
    samples = Samples(*thrash(since=90, healthy_from=125))
    reading = await ask("recent_rollout", snapshot(OLD), history=samples, **THRASHES)
    assert reading.detail == "no rollout from 2 h before the first bad sample to 10 min after"


async def test_a_history_that_does_not_answer_leaves_the_alerts_start() -> None:
    class Silent(Samples):
        async def between(self, *window: object, step: float = 0.0) -> list[Scrape]:
            raise SourceError("Prometheus: connection refused")

    pods = (started("a", minutes_before=18, ready_before=10),)
    reading = await ask("recent_rollout", snapshot(AT_TWENTY, OLD, pods=pods), history=Silent(), **THRASHES)
    assert reading.fields["matters"] is True
    assert "the first bad sample is not known: Prometheus: connection refused" in str(reading.detail)


@pytest.mark.parametrize("minutes_before", [121, -11])
async def test_a_rollout_outside_of_its_time_did_not_happen(minutes_before: float) -> None:
    changed = revision(2, template("--max-num-seqs=256"), minutes_before=minutes_before)
    reading = await ask("recent_rollout", snapshot(changed, OLD))
    assert (reading.fields["happened"], reading.fields["matters"]) == (False, False)


@pytest.mark.parametrize(
    ("minutes_before", "who", "summary"),
    [
        (20, "kubectl-edit", "ConfigMap flags was written by kubectl-edit 20 min before the incident began"),
        (200, "kubectl-edit", ""),
        (20, "incident-bot", ""),
    ],
)
async def test_flags_that_changed_beside_the_template_are_reported(
    minutes_before: float, who: str, summary: str
) -> None:
    written = at(OPENED - minutes_before * MINUTES)
    metadata = {"creationTimestamp": at(0), "managedFields": [{"manager": who, "time": written}]}
    reading = await ask("recent_rollout", snapshot(OLD, config_maps={"flags": {"metadata": metadata}}))
    assert (reading.fields["happened"], reading.fields["summary"]) == (False, summary)


@pytest.mark.parametrize(
    ("pods", "config_map"),
    [
        pytest.param([started("a", minutes_before=15, ready_before=10)], "flags", id="read-and-served-before"),
        pytest.param([started("a", minutes_before=15, ready_before=-5)], "", id="served-only-after"),
        pytest.param([started("a", minutes_before=300, ready_before=290)], "", id="no-replica-has-read-it"),
        pytest.param([crashed("a", 300, -1)], "", id="read-only-after-the-crash"),
        pytest.param([crashed("a", 15, -1)], "flags", id="read-before-the-crash"),
    ],
)
async def test_a_config_map_that_replicas_have_read_since_counts_as_a_deploy(pods: list[Obj], config_map: str) -> None:
    entry = {"manager": "kubectl-edit", "time": at(OPENED - 20 * MINUTES)}
    metadata = {"creationTimestamp": at(0), "managedFields": [entry]}
    running = revision(2, template("--max-num-seqs=64"), minutes_before=60 * 24 * 9)
    seen = snapshot(running, config_maps={"flags": {"metadata": metadata}}, pods=tuple(pods))
    fields = (await ask("recent_rollout", seen)).fields
    assert (fields["config_map"], fields["matters"]) == (config_map, bool(config_map))
    assert fields["by_bot"] is False


@pytest.mark.parametrize(
    ("minutes_before", "happened"),
    [
        pytest.param(200, True, id="20-minutes-before-the-alert"),
        pytest.param(301, False, id="more-than-two-hours-before-the-alert"),
        pytest.param(20, False, id="hours-after-the-alert"),
    ],
)
async def test_a_deploys_time_counts_from_the_alert_and_not_from_when_the_bot_received_it(
    minutes_before: float, happened: bool
) -> None:
    changed = revision(2, template("--max-num-seqs=256"), minutes_before=minutes_before)
    reading = await ask("recent_rollout", snapshot(changed, OLD), began=OPENED - 180 * MINUTES)
    assert reading.fields["happened"] is happened


@pytest.mark.parametrize(
    ("new", "matters"),
    [
        pytest.param(template("--max-num-seqs=64", image="vllm/vllm-openai:v0.33.0"), True, id="image"),
        pytest.param(template("--max-num-seqs=64", volumes=[{"name": "v"}]), True, id="volumes"),
        pytest.param(template("--max-num-seqs=64", terminationGracePeriodSeconds=90), False, id="grace"),
        pytest.param(
            {**template("--max-num-seqs=64"), "metadata": {"annotations": {"restartedAt": "now"}}}, False, id="restart"
        ),
    ],
)
async def test_only_what_the_engine_runs_on_can_matter(new: Obj, matters: bool) -> None:
    reading = await ask("recent_rollout", snapshot(revision(2, new, minutes_before=20), OLD))
    assert reading.fields["happened"] is True
    assert reading.fields["matters"] is matters


async def test_a_rollout_is_described_flag_by_flag_with_variables_image_and_config_maps() -> None:
    def with_parts(seqs: str, token: str, level: str, config: str, image: str) -> Obj:
        made = template(f"--max-num-seqs={seqs}", "--api-key", token, image=image)
        made["spec"]["containers"][0] |= {
            "env": [
                {"name": "HF_TOKEN", "value": token},
                {"name": "LEVEL", "value": level},
                {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": config, "key": "mode"}}},
            ],
            "envFrom": [{"configMapRef": {"name": config}}],
        }
        made["spec"]["volumes"] = [{"name": "c", "configMap": {"name": config}}]
        return made

    before = with_parts("64", "old-secret-1", "info", "config-a", "vllm/vllm-openai:v0.31.0")
    after = with_parts("256", "new-secret-2", "debug", "config-b", "vllm/vllm-openai:v0.32.0")
    newer, older = revision(2, after, minutes_before=20), revision(1, before, minutes_before=999)
    reading = await ask("recent_rollout", snapshot(newer, older))
    assert reading.detail.split(": ", 1)[1].split("; ") == [
        "--api-key (masked) → (masked)",
        "--max-num-seqs 64 → 256",
        "env HF_TOKEN (masked) → (masked)",
        "env LEVEL info → debug",
        "env MODE $ConfigMap config-a/mode → $ConfigMap config-b/mode",
        "envFrom ConfigMap config-a all → (not set)",
        "envFrom ConfigMap config-b (not set) → all",
        "image vllm/vllm-openai:v0.31.0 → vllm/vllm-openai:v0.32.0",
        "volumes/c/configMap/name: config-a → config-b",
    ]
    assert reading.fields["matters"] is True


async def test_words_that_are_not_understood_are_shown_as_a_whole_without_their_secrets() -> None:
    hidden = [
        {**template(), "spec": {"containers": [{"name": "vllm", "image": "i", "command": ["sh", "-c", script]}]}}
        for script in ("vllm serve m $(cat /x) --api-key old-secret", "vllm serve m $(cat /x) --api-key new-secret")
    ]
    newer, older = revision(2, hidden[1], minutes_before=20), revision(1, hidden[0], minutes_before=999)
    reading = await ask("recent_rollout", snapshot(newer, older))
    assert "containers/0/command:" in reading.detail
    assert "-secret" not in f"{reading.detail}{reading.fields}"


async def test_the_bots_own_rollout_is_never_the_suspect() -> None:
    ours = revision(2, template("--max-num-seqs=6"), minutes_before=-5, stamp="INC-7/c1/1")
    reading = await ask("recent_rollout", snapshot(ours, OLD))
    assert (reading.fields["by_bot"], reading.fields["matters"]) == (True, False)


async def test_behind_the_bots_own_rollout_the_deploy_before_it_is_still_seen() -> None:
    ours = revision(3, template("--max-num-seqs=6"), minutes_before=-5, stamp="INC-7/c1/1")
    theirs = revision(2, template("--max-num-seqs=256"), minutes_before=30)
    reading = await ask("recent_rollout", snapshot(ours, theirs, OLD))
    assert (reading.fields["revision"], reading.fields["matters"], reading.fields["by_bot"]) == (2.0, True, False)


async def test_a_stamp_that_the_controller_carried_on_does_not_make_a_persons_rollout_ours() -> None:
    ours = revision(2, template("--max-num-seqs=6"), minutes_before=300, stamp="INC-3/c1/1")
    theirs = revision(3, template("--max-num-seqs=256"), minutes_before=30, stamp="INC-3/c1/1")
    reading = await ask("recent_rollout", snapshot(theirs, ours, OLD))
    assert (reading.fields["by_bot"], reading.fields["matters"]) == (False, True)


async def test_a_later_call_that_stamped_the_deploy_does_not_make_it_ours() -> None:
    theirs = revision(2, template("--max-num-seqs=256"), minutes_before=30, stamp="INC-7/c1/1")
    reading = await ask("recent_rollout", snapshot(theirs, OLD))
    assert (reading.fields["by_bot"], reading.fields["matters"]) == (False, True)


async def test_a_rollback_by_a_person_is_dated_by_the_deployment() -> None:
    again = revision(3, template("--max-num-seqs=64"), minutes_before=60 * 24 * 9, reused=True)
    before = revision(2, template("--max-num-seqs=256"), minutes_before=300)
    progressing = {"type": "Progressing", "lastUpdateTime": at(OPENED - 15 * MINUTES)}
    reading = await ask("recent_rollout", snapshot(again, before, status={"conditions": [progressing]}))
    assert (reading.fields["happened"], reading.fields["revision"]) == (True, 3.0)


BLOCKS = "--num-gpu-blocks-override=66"
CAPPED = template("--max-num-seqs=6")


def taken_again(number: int, pods: Obj, *, minutes_before: float, stamp: str = "") -> tuple[Obj, dict[str, Any]]:
    """A rollback to what was first rolled out days ago, and the Deployment's status that dates it."""
    progressing = {"type": "Progressing", "lastUpdateTime": at(OPENED - minutes_before * MINUTES)}
    reused = revision(number, pods, minutes_before=60 * 24 * 9, stamp=stamp, reused=True)
    return reused, {"conditions": [progressing]}


@pytest.mark.parametrize("stamp", ["", "INC-3/c1/1"])
@pytest.mark.parametrize("minutes_before", [15, -30])
async def test_a_deploy_that_was_rolled_back_is_not_the_suspect(stamp: str, minutes_before: float) -> None:
    """Its revision was made after that of the bot's cap, which has the higher number since the rollback."""
    before, status = taken_again(3, CAPPED, minutes_before=minutes_before, stamp=stamp)
    bad = revision(2, template("--max-num-seqs=6", BLOCKS), minutes_before=30)
    first = revision(0, template("--max-num-seqs=64"), minutes_before=60 * 24 * 20)
    reading = await ask("recent_rollout", snapshot(before, bad, first, status=status))
    assert (reading.fields["happened"], reading.fields["matters"]) == (True, False)
    assert "--max-num-seqs" not in f"{reading.detail}{reading.fields['summary']}", "that was the bot's"
    assert "rolled back since" in reading.detail or "takes an earlier rollout back" in reading.detail


async def test_a_deploy_that_was_rolled_back_is_not_the_suspect_though_the_bot_set_the_same_flag_later() -> None:
    capped = revision(4, CAPPED, minutes_before=5, stamp="INC-3/c2/1")
    before = revision(3, template("--max-num-seqs=64"), minutes_before=60 * 24 * 9, stamp="INC-3/c1/1", reused=True)
    bad = revision(2, template("--max-num-seqs=256"), minutes_before=30)
    assert (await ask("recent_rollout", snapshot(capped, before, bad))).fields["matters"] is False


async def test_a_rollback_that_keeps_a_part_of_the_deploy_leaves_the_suspect() -> None:
    half = revision(3, template("--max-num-seqs=256"), minutes_before=10)
    bad = revision(2, template("--max-num-seqs=256", BLOCKS), minutes_before=30)
    reading = await ask("recent_rollout", snapshot(half, bad, OLD))
    assert (reading.fields["happened"], reading.fields["matters"]) == (True, True)


async def test_a_deploy_is_compared_with_what_ran_before_it_though_that_was_taken_again_since() -> None:
    again, status = taken_again(3, CAPPED, minutes_before=15)
    other = revision(4, template("--max-num-seqs=6", "--seed=1"), minutes_before=5)
    bad = revision(2, template("--max-num-seqs=6", BLOCKS), minutes_before=300)
    first = revision(1, template("--max-num-seqs=64"), minutes_before=60 * 24 * 20)
    reading = await ask("recent_rollout", snapshot(other, again, bad, first, status=status))
    assert reading.fields["summary"] == "--seed (not set) → 1"


async def test_the_first_revision_has_nothing_to_go_back_to() -> None:
    reading = await ask("recent_rollout", snapshot(revision(1, template(), minutes_before=20)))
    assert (reading.fields["happened"], reading.fields["matters"]) == (True, False)
    assert reading.unknown_parts == {"previous_revision": "there is no earlier revision"}


async def test_what_cannot_be_listed_is_not_taken_for_no_rollout() -> None:
    reading = await ask("recent_rollout", snapshot(OLD, unreadable={"replica_sets": "403"}))
    assert reading.unknown == "replica_sets: 403"


async def test_a_kind_without_revisions_is_unknown() -> None:
    assert (await ask("recent_rollout", snapshot(OLD), kind="DaemonSet")).unknown == "its controller keeps no revisions"
    assert "kept no revision" in (await ask("recent_rollout", snapshot(OLD), kind="LeaderWorkerSet")).unknown


# --- recent rollout of a StatefulSet or LeaderWorkerSet ---------------------------------------------------------------


def kept(number: int, data: Obj, *, minutes_before: float, stamp: str = "") -> Obj:
    """A ControllerRevision, which keeps the spec as a patch that replaces it."""
    return {
        "metadata": {
            "name": f"llm-{number}",
            "creationTimestamp": at(OPENED - minutes_before * MINUTES),
            "annotations": {"incident-bot/call": stamp} if stamp else {},
            "ownerReferences": [{"kind": "StatefulSet", "uid": "d", "controller": True}],
        },
        "revision": number,
        "data": {"spec": data},
    }


def numbered(*args: str) -> Obj:
    return {"template": template(*args) | {"$patch": "replace"}}


def numbered_world(*revisions: Obj, kind: str = "StatefulSet", stamp: str = "", **parts: Any) -> ClusterSnapshot:
    seen = snapshot(revisions=revisions, **parts)
    assert seen.workload is not None
    seen.workload["kind"] = kind
    seen.workload["metadata"]["annotations"] = {"incident-bot/call": stamp} if stamp else {}
    return seen


FIRST = kept(1, numbered("--max-num-seqs=64"), minutes_before=9999)


async def test_a_deploy_of_a_stateful_set_is_described_as_that_of_a_deployment() -> None:
    seen = numbered_world(FIRST, kept(2, numbered("--max-num-seqs=256"), minutes_before=20))
    reading = await ask("recent_rollout", seen, kind="StatefulSet")
    assert reading.fields == {
        "happened": True,
        "matters": True,
        "by_bot": False,
        "revision": 2.0,
        "previous_revision": 1.0,
        "earlier": True,
        "summary": "--max-num-seqs 64 → 256",
        "config_map": "",
    }


async def test_the_bots_own_revision_of_a_stateful_set_is_known_by_its_stamp() -> None:
    ours = kept(2, numbered("--max-num-seqs=6"), minutes_before=20, stamp="INC-6/cap/1")
    reading = await ask("recent_rollout", numbered_world(FIRST, ours, stamp="INC-6/cap/1"), kind="StatefulSet")
    assert (reading.fields["by_bot"], reading.fields["matters"]) == (True, False)


def pod_of(name: str, minutes_before: float) -> Obj:
    created = at(OPENED - minutes_before * MINUTES)
    return {"metadata": {"name": "p", "labels": {"controller-revision-hash": name}, "creationTimestamp": created}}


async def test_a_revision_that_is_taken_again_is_dated_by_its_first_new_pod() -> None:
    again = FIRST | {"revision": 3}
    between = kept(2, numbered("--max-num-seqs=256"), minutes_before=600)
    pods = (pod_of("llm-1", 9000), pod_of("llm-1", 30), pod_of("llm-1", 10))
    reading = await ask("recent_rollout", numbered_world(again, between, pods=pods), kind="StatefulSet")
    assert (reading.fields["happened"], reading.fields["revision"]) == (True, 3.0)
    assert reading.detail.startswith("rolled out 30 min before")
    undated = await ask("recent_rollout", numbered_world(again, between), kind="StatefulSet")
    assert "is not known" in undated.unknown


@pytest.mark.parametrize("to_what", ["what ran before", "half of it"])
async def test_a_deploy_of_a_stateful_set_that_was_rolled_back_is_not_the_suspect(to_what: str) -> None:
    capped = kept(3, numbered("--max-num-seqs=6"), minutes_before=600)
    bad = kept(2, numbered("--max-num-seqs=256", BLOCKS), minutes_before=30)
    revisions = [FIRST | {"revision": 0}, bad, capped]
    if to_what == "half of it":
        revisions = [FIRST, bad, kept(3, numbered("--max-num-seqs=64", BLOCKS), minutes_before=20)]
    pods = (pod_of("llm-3", 700), pod_of("llm-3", 15))
    reading = await ask("recent_rollout", numbered_world(*revisions, pods=pods), kind="StatefulSet")
    assert reading.fields["matters"] is (to_what == "half of it")


def group(*args: str) -> Obj:
    return {"leaderWorkerTemplate": {"$patch": "replace", "size": 2, "workerTemplate": template(*args)}}


async def test_of_a_leader_worker_set_only_the_present_revision_is_left_and_what_it_changed_is_unknown() -> None:
    seen = numbered_world(kept(4, group("--max-num-seqs=256"), minutes_before=20), kind="LeaderWorkerSet")
    reading = await ask("recent_rollout", seen, kind="LeaderWorkerSet")
    assert (reading.fields["happened"], reading.fields["by_bot"]) == (True, False)
    assert reading.fields["summary"] == "the revision before it is not kept"
    assert set(reading.unknown_parts) == {"matters", "previous_revision"}


async def test_while_a_leader_worker_set_rolls_both_of_its_revisions_are_there() -> None:
    revisions = (
        kept(4, group("--max-num-seqs=256"), minutes_before=5),
        kept(3, group("--max-num-seqs=64"), minutes_before=9999),
    )
    reading = await ask("recent_rollout", numbered_world(*revisions, kind="LeaderWorkerSet"), kind="LeaderWorkerSet")
    assert (reading.fields["matters"], reading.fields["summary"]) == (True, "--max-num-seqs 64 → 256")
    stamped = numbered_world(*revisions, kind="LeaderWorkerSet", stamp="INC-6/scale/1")
    reading = await ask("recent_rollout", stamped, kind="LeaderWorkerSet")
    assert {"by_bot", "matters"} <= set(reading.unknown_parts)


# --- rotation, drain mode, capacity -----------------------------------------------------------------------------------


def pod(name: str, *, ready: bool = True, node: str = "n1") -> Obj:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"app": "llm", "serving": "active"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "rs-1", "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "vllm"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


async def test_rotation_counts_who_is_ready_and_who_gets_requests() -> None:
    pods = (pod("a"), pod("b"), pod("c", ready=False))
    reading = await ask("rotation", snapshot(OLD, pods=pods, endpoint_slices=(endpoints("a"),)))
    assert reading.fields == {"in_rotation": 1.0, "ready": 2.0, "wanted": 4.0, "only": "a", "readable": True}
    assert reading.detail == "ready but out of rotation: b"


async def test_of_several_in_rotation_none_is_the_only_one() -> None:
    slices = (endpoints("a", "b"),)
    assert (await ask("rotation", snapshot(OLD, pods=(pod("a"), pod("b")), endpoint_slices=slices))).fields[
        "only"
    ] == ""


async def test_rotation_without_its_endpoints_is_unknown() -> None:
    assert "403" in (await ask("rotation", snapshot(OLD, unreadable={"endpoint_slices": "403"}))).unknown


async def test_drain_mode_says_how_and_why() -> None:
    service = {"metadata": {"name": "llm"}, "spec": {"selector": {"app": "llm", "serving": "active"}}}
    reading = await ask("drain_mode", snapshot(OLD, pods=(pod("a"),), services=(service,)))
    assert reading.fields["mode"] == "label"
    assert "serving" in str(reading.fields["detail"])


async def test_drain_mode_without_the_services_is_unknown() -> None:
    assert (await ask("drain_mode", snapshot(OLD, unreadable={"services": "timeout"}))).unknown == "services: timeout"


def node(name: str, gpus: int) -> Obj:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": [ready]}}


async def test_capacity_counts_free_gpus_on_nodes_that_would_take_a_replica() -> None:
    asks = template()
    asks["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    taken = pod("a")
    taken["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    current = revision(1, asks, minutes_before=9999)
    reading = await ask("capacity", snapshot(current, nodes=(node("n1", 5), node("n2", 2)), all_pods=(taken,)))
    assert reading.fields == {"free_gpus": 5.0, "replicas_that_fit": 2.0, "can_grow": False}
    assert reading.detail == "n1: 3 free, n2: 2 free"


async def test_capacity_without_the_nodes_is_unknown_and_not_full() -> None:
    asks = template()
    asks["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    current = revision(1, asks, minutes_before=9999)
    assert (await ask("capacity", snapshot(current, unreadable={"nodes": "nodes: 403"}))).unknown == "nodes: 403"


@pytest.mark.parametrize("probe", ["rotation", "drain_mode", "capacity", "owner", "recent_rollout"])
async def test_without_its_workload_no_probe_claims_anything(probe: str) -> None:
    reading = await ask(probe, ClusterSnapshot(at=OPENED, workload=None))
    assert not reading.is_known
    assert reading.unknown


# --- owner ------------------------------------------------------------------------------------------------------------


def kept_by(labels: dict[str, str]) -> Obj:
    return {"kind": "Deployment", "metadata": {"name": "llm", "namespace": "serving", "labels": labels}, "spec": {}}


async def test_the_owner_of_a_workload_is_named_with_the_way_to_change_it() -> None:
    workload = kept_by({"kustomize.toolkit.fluxcd.io/name": "serving"})
    found = await ask("owner", ClusterSnapshot(at=OPENED, workload=workload))
    assert (found.fields["managed"], found.fields["tool"], found.fields["autoscaler"]) == (True, "Flux", "")
    assert "flux reconcile" in str(found.fields["how"])


async def test_a_workload_applied_by_hand_has_no_owner() -> None:
    found = await ask("owner", ClusterSnapshot(at=OPENED, workload=kept_by({})))
    assert found.fields == {
        "managed": False,
        "reverts": False,
        "reverts_replicas": False,
        "tool": "",
        "name": "",
        "how": "",
        "autoscaler": "",
    }


async def test_a_helm_release_is_named_with_the_way_through_it() -> None:
    workload = kept_by({"app.kubernetes.io/managed-by": "Helm"})
    workload["metadata"]["annotations"] = {"meta.helm.sh/release-name": "prod"}
    found = await ask("owner", ClusterSnapshot(at=OPENED, workload=workload))
    assert (found.fields["managed"], found.fields["reverts"], found.fields["tool"]) == (True, False, "Helm")
    assert found.fields["how"] == "put it into the values of prod, then: helm upgrade"


async def test_an_application_that_ignores_the_replica_count_reverts_flags_only() -> None:
    workload = kept_by({"argocd.argoproj.io/instance": "serving"})
    rule = {"group": "apps", "kind": "Deployment", "jsonPointers": ["/spec/replicas"]}
    spec = {"syncPolicy": {"automated": {"selfHeal": True}}, "ignoreDifferences": [rule]}
    application = {"metadata": {"name": "serving", "namespace": "argocd"}, "spec": spec}
    found = await ask("owner", ClusterSnapshot(at=OPENED, workload=workload, applications=(application,)))
    assert (found.fields["reverts"], found.fields["reverts_replicas"]) == (True, False)


async def test_what_owns_the_replica_count_is_named_too() -> None:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "llm"}, "minReplicas": 2, "maxReplicas": 6}
    snapshot = ClusterSnapshot(
        at=OPENED, workload=kept_by({}), autoscalers=({"metadata": {"name": "llm"}, "spec": spec},)
    )
    found = await ask("owner", snapshot)
    assert found.fields["managed"] is False
    assert found.fields["autoscaler"] == "HorizontalPodAutoscaler llm (min 2, max 6)"


@pytest.mark.parametrize("source", ["autoscalers", "scaled_objects"])
async def test_an_autoscaler_that_cannot_be_read_is_unknown_not_absent(source: str) -> None:
    snapshot = ClusterSnapshot(at=OPENED, workload=kept_by({}), unreadable={source: "403 forbidden"})
    found = await ask("owner", snapshot)
    assert found.unknown_parts == {"autoscaler": "403 forbidden"}


# --- the template of a Job --------------------------------------------------------------------------------------------


def cron_job(name: str) -> Obj:
    return {"metadata": {"name": name, "namespace": "serving", "uid": name}, "spec": {"suspend": True}}


@pytest.mark.parametrize(
    ("named", "cron_jobs", "found", "detail"),
    [
        pytest.param("settings.load_test_job", ("load-test",), True, "", id="by-a-setting"),
        pytest.param("load-test", ("other", "load-test"), True, "", id="by-its-name"),
        pytest.param(
            "load-test", ("other",), False, "there is no CronJob load-test in serving (there: other)", id="another-one"
        ),
        pytest.param("load-test", (), False, "there is no CronJob load-test in serving (there: none)", id="none"),
    ],
)
async def test_the_template_of_a_job_is_found_by_its_name(
    named: str, cron_jobs: tuple[str, ...], found: bool, detail: str
) -> None:
    seen = snapshot(cron_jobs=tuple(map(cron_job, cron_jobs)))
    settings = {"load_test_job": "load-test"}
    reading = await ask("job_template", seen, parameters={"name": named}, settings=settings)
    assert reading.fields == {"found": found, "name": "load-test", "detail": detail}


@pytest.mark.parametrize("named", ["", "settings.load_test_job"])
async def test_a_template_that_nobody_names_is_not_known(named: str) -> None:
    reading = await ask("job_template", snapshot(), parameters={"name": named})
    assert reading.unknown == "the playbook names no CronJob"


async def test_templates_that_cannot_be_listed_are_not_known() -> None:
    seen = snapshot(unreadable={"cron_jobs": "403 Forbidden"})
    assert "403" in (await ask("job_template", seen, parameters={"name": "load-test"})).unknown
