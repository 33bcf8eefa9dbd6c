"""The result of planning: a plan that the bot may and can carry out, or the reason for none; never a guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.changes.plan import Call, Plan, PlanResult
from bot.domain.cluster.objects import INCIDENT_ANNOTATION
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.incidents.effect import PlanChange
from bot.domain.incidents.event import Planned
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import subjects
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.planned_window import PlannedWindow
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.signal import Reading
from bot.flow.handlers.plan import AGAIN_SECONDS, ATTEMPTS, GRANT_IT, PlanHandler
from bot.flow.handlers.read import ReadHandler
from bot.flow.hot_halls import refused_by_heat
from bot.flow.perform_effect import EffectContext, Later
from bot.flow.ports.readings import ReadContext
from bot.flow.ports.repositories import Proposal, Repositories
from bot.flow.ports.storage import Owed
from bot.flow.snapshot_reader import SnapshotReader
from tests import builders
from tests.domain.changes.snapshots import node, snapshot
from tests.domain.incidents.machine.steps import PLAYBOOK, TEXT, Story
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.fakes.signals import Script, ScriptedSignals
from tests.flow.press_histories import Claims

pytestmark = pytest.mark.fast

AT = builders.START
LACKING = "may not patch deployments.apps in namespace serving"
SECRET = "api_key=sk-abcdefghijklmnopqrstuvwxyz123456"


class Asked(MemoryCluster):
    """Answers about permissions and rehearsals as configured; `asked` is what was asked, in order."""

    def __init__(self, *, lacking: str = "", refusal: str = "", down: str = "") -> None:
        super().__init__(lambda: AT)
        self._lacking, self._refusal, self._down = lacking, refusal, down
        self.asked: list[tuple[str, int]] = []

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        self._must_answer("snapshot")
        return await super().snapshot(target, incident_id=incident_id)

    async def lacking(self, calls: Sequence[Call]) -> str:
        self._must_answer("permissions")
        self.asked.append(("permissions", len(calls)))
        return self._lacking

    async def dry_run(self, call: Call) -> str:
        self._must_answer("rehearsal")
        self.asked.append(("rehearsal", 1))
        return self._refusal

    def _must_answer(self, what: str) -> None:
        if what == self._down:
            raise ClusterError("nobody answers")


class NoHistory:
    """`History` of a fleet that was never sampled."""

    source = "nothing"
    has_whole_pages = True

    async def sample(self, read_context: ReadContext) -> None: ...

    async def between(
        self, read_context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        return ()


class PastRun:
    """`PastRuns` of a bot that has closed this incident last, or is new."""

    def __init__(self, run: Run | None) -> None:
        self._run = run

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        return [self._run.incident_id] if self._run else []

    async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
        return [self._run.incident_id] if self._run and subject in subjects(self._run) else []

    async def last_incident(self, target_key: str) -> str | None:
        return self._run.incident_id if self._run and self._run.target.key == target_key else None

    async def load(self, incident_id: str) -> Run | None:
        return self._run

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        return [self._run] if self._run and incident_ids else []


class OpenUntil(Claims):
    """The breaker is open until then; 0: it is not."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    async def breaker_open_until(self, workload_key: str, disruption: str, *, at: float) -> float:
        return self._until


def planner(
    cluster: MemoryCluster,
    script: Script,
    earlier: Run | None = None,
    *,
    playbook: CompiledPlaybook = PLAYBOOK,
    breaker_until: float = 0.0,
    windows: Sequence[PlannedWindow] = (),
    repositories: Repositories | None = None,
) -> PlanHandler:
    async def playbook_of(run: Run) -> CompiledPlaybook:
        del run
        return playbook

    read = ReadHandler(ScriptedSignals(script, lambda: AT), playbook_of)
    return PlanHandler(
        read, SnapshotReader(cluster, NoHistory()), cluster, playbook_of, PastRun(earlier),
        restrictions=restrictions(*windows), claims=OpenUntil(breaker_until), repositories=repositories,
    )  # fmt: skip


def growing() -> Run:
    """A run that is to scale by one, while usage is above its ceiling."""
    return Story().opened().reads(0.95).chooses("grow").run


async def result(cluster: MemoryCluster, script: Script = lambda: {"usage": 0.95}) -> PlanResult:
    found, _ = await planner(cluster, script).plan(growing(), at=AT)
    return found


async def test_right_before_the_call_it_is_planned_with_the_numbers_that_people_approved() -> None:
    """Readings move all the time: 953 and 956 tokens would be asked about again and again."""
    playbook = load_text(TEXT.replace("{by: 1}", "{by: '${ceil(usage)}'}"))
    story = Story(Bundle.of(playbook)).opened().reads(0.95).chooses("grow")
    usage = [0.95]
    plans = planner(MemoryCluster(lambda: AT), lambda: {"usage": usage[-1]}, playbook=playbook)
    shown, readings = await plans.plan(story.run, at=AT)
    usage.append(1.95)
    anew, _ = await plans.plan(story.run, at=AT)
    story.happens(Planned(event_id="p", effect_id=story.wanted(PlanChange).effect_id, result=shown, readings=readings))
    approved, _ = await plans.plan(story.run, at=AT)
    assert shown.plan is not None
    assert (approved.plan, anew.plan == shown.plan) == (shown.plan, False)


async def test_every_call_is_allowed_before_the_first_dry_run() -> None:
    cluster = Asked()
    found = await result(cluster)
    assert found.plan is not None
    assert (found.outcome, found.plan.verb) == ("planned", "scale")
    assert cluster.asked == [("permissions", len(found.plan.calls)), ("rehearsal", 1)]


async def test_a_permission_that_is_lacking_makes_it_impossible_and_says_what_to_grant() -> None:
    cluster = Asked(lacking=LACKING)
    found = await result(cluster)
    assert (found.outcome, found.plan, found.reason, found.hint) == ("impossible", None, LACKING, GRANT_IT)
    assert [what for what, _ in cluster.asked] == ["permissions"]


async def test_what_the_api_server_refuses_is_impossible_and_its_words_carry_no_secret() -> None:
    found = await result(Asked(refusal=f"denied: {SECRET}"))
    assert (found.outcome, found.plan) == ("impossible", None)
    assert found.reason.startswith("the API server refuses it: denied")
    assert "sk-abcdef" not in found.reason


@pytest.mark.parametrize(
    ("down", "reason"),
    [
        pytest.param("snapshot", "the cluster cannot be read: nobody answers", id="reading"),
        pytest.param("permissions", "did not dry-run the change: nobody answers", id="permissions"),
        pytest.param("rehearsal", "did not dry-run the change: nobody answers", id="rehearsal"),
    ],
)
async def test_no_answer_is_neither_a_plan_nor_a_refusal(down: str, reason: str) -> None:
    found = await result(Asked(down=down))
    assert (found.outcome, found.plan) == ("failed", None)
    assert found.reason.endswith(reason)


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        pytest.param(
            lambda: {"usage": 0.2},
            "not_needed",
            "the reason for this change is gone: KV cache in use 0.2",
            id="the reason is gone",
        ),
        pytest.param(
            dict,
            "unknown",
            "whether its reason still holds: KV cache in use could not be read",
            id="the reason cannot be read",
        ),
    ],
)
async def test_a_change_whose_reason_does_not_hold_is_not_planned(script: Script, outcome: str, reason: str) -> None:
    cluster = Asked()
    found = await result(cluster, script)
    assert (found.outcome, found.plan) == (outcome, None)
    assert reason in found.reason
    assert cluster.asked == []


# --- a hall that is too hot -------------------------------------------------------------------------------------------


def too_hot(scope: str = "facility", zone: str = "", **more: Any) -> Run:
    """Another workload's incident about heat."""
    fields: dict[str, float | bool | str] = {"scope": scope, "zone": zone}
    heat = Reading(name="heat", value=None, fields=fields, at=AT)
    target = builders.TARGET.model_copy(update={"name": "other"})
    return builders.run(**{"incident_id": "INC-9", "target": target, "latest": {"heat": heat}} | more)


async def test_in_a_hot_hall_no_replica_is_added_for_any_incident() -> None:
    cluster = Asked()
    found, _ = await planner(cluster, lambda: {"usage": 0.95}, too_hot()).plan(growing(), at=AT)
    assert (found.outcome, found.plan) == ("impossible", None)
    assert found.reason == "the hall is too hot (INC-9), and a new replica could land there"
    assert cluster.asked == []


@pytest.mark.parametrize(
    "earlier",
    [
        pytest.param(too_hot("one"), id="one-node"),
        pytest.param(too_hot("none"), id="cool-again"),
        pytest.param(too_hot(zone="b"), id="another-zone"),
        pytest.param(too_hot(target=builders.TARGET.model_copy(update={"cluster": "west"})), id="another-cluster"),
        pytest.param(too_hot(closed_at=AT), id="closed"),
        pytest.param(too_hot(incident_id=builders.run().incident_id), id="its-own-incident"),
    ],
)
async def test_where_no_hall_is_hot_a_replica_may_be_added(earlier: Run) -> None:
    found, _ = await planner(Asked(), lambda: {"usage": 0.95}, earlier).plan(growing(), at=AT)
    assert found.outcome == "planned"


@pytest.mark.parametrize(
    ("verb", "to", "adds"),
    [("canary", None, True), ("scale", 5, True), ("scale", 3, False), ("cordon_node", None, False)],
)
async def test_only_what_adds_a_replica_is_refused_in_a_hot_hall(verb: str, to: int | None, adds: bool) -> None:
    plan = builders.plan(verb=verb, choices={} if to is None else {"to": to})
    llm = {"metadata": {"name": "llm"}, "spec": {"replicas": 4}}
    seen = ClusterSnapshot(at=AT, workload=llm, unreadable={"nodes": "403"})
    assert bool(await refused_by_heat(PastRun(too_hot()), growing(), plan, seen, at=AT)) is adds


@pytest.mark.parametrize(("replicas", "adds"), [(4, True), (5, False), (6, False)])
async def test_the_undo_of_a_scale_in_is_refused_in_a_hot_hall(replicas: int, adds: bool) -> None:
    plan = builders.plan(verb="undo", choices={"of": []}, steps=(builders.call(subresource="scale"),))
    llm = {"metadata": {"name": "llm"}, "spec": {"replicas": replicas}}
    seen = ClusterSnapshot(at=AT, workload=llm, unreadable={"nodes": "403"})
    assert bool(await refused_by_heat(PastRun(too_hot()), growing(), plan, seen, at=AT)) is adds


async def test_no_node_is_added_while_the_hall_of_any_zone_is_hot() -> None:
    karpenters = node(1, gpus=2)
    karpenters["metadata"]["labels"]["karpenter.sh/nodepool"] = "gpu"
    full = (karpenters, node(2, gpus=1), node(3, gpus=1))
    plan, run = builders.plan(verb="scale", choices={"to": 5}), PastRun(too_hot(zone="b"))
    refusal = await refused_by_heat(run, growing(), plan, snapshot(nodes=full), at=AT)
    assert refusal == "the hall of zone b is too hot (INC-9), and the node that is added could stand there"
    assert not await refused_by_heat(run, growing(), plan, snapshot(), at=AT), "room elsewhere needs no node"


def refused(incident_id: str, plan: Plan, *, at: float) -> Run:
    earlier = builders.request(plan=plan, digest=plan.digest, status="refused", decided_at=at)
    return builders.run(incident_id=incident_id, requests={earlier.request_id: earlier}, closed_at=at)


@pytest.mark.parametrize(
    ("incident", "minutes", "known"),
    [
        pytest.param("INC-0", 29, "INC-0/R1", id="another incident, lately"),
        pytest.param("INC-0", 31, "", id="another incident, long ago"),
        pytest.param("INC-1", 29, "", id="its own are looked through elsewhere"),
    ],
)
async def test_what_the_targets_last_incident_asked_for_lately_is_known(
    incident: str, minutes: int, known: str
) -> None:
    """The call is the same whichever incident asks for it, so a plan's digest does not name the incident."""
    script = lambda: {"usage": 0.95}  # noqa: E731 - the same reading throughout
    first = (await result(Asked())).plan
    assert first is not None
    earlier = refused(incident, first, at=AT - minutes * 60)
    again, _ = await planner(Asked(), script, earlier).plan(growing(), at=AT)
    assert again.asked_before == known
    other = earlier.with_(target=earlier.target.model_copy(update={"name": "other"}))
    assert (await planner(Asked(), script, other).plan(growing(), at=AT))[0].asked_before == ""


async def test_a_change_that_declines_needs_no_permission() -> None:
    cluster = Asked(lacking=LACKING)
    del cluster.objects["Deployment", "llm"]
    assert (await result(cluster)).outcome == "impossible"
    assert cluster.asked == []


async def test_without_a_change_under_way_there_is_nothing_to_plan() -> None:
    found, readings = await planner(Asked(), dict).plan(builders.run(), at=AT)
    assert (found.outcome, found.reason, dict(readings)) == ("failed", "no change is under way", {})


async def test_what_a_person_wrote_is_planned_in_place_of_the_playbooks_number() -> None:
    run = growing()
    assert run.change is not None
    edited = run.with_(change=run.change.model_copy(update={"values": {"replicas": 7}, "edited_by": "ben"}))
    found, _ = await planner(Asked(), lambda: {"usage": 0.95}).plan(edited, at=AT)
    assert found.plan is not None
    assert found.plan.choices["to"] == 7
    assert (await result(Asked())).plan != found.plan


@pytest.mark.parametrize("lacking", ["", LACKING], ids=["planned", "lacking"])
async def test_the_answer_goes_to_the_run_with_what_it_rests_on(lacking: str) -> None:
    effect = PlanChange(effect_id="v3/plan/0", visit=3, state="grow")
    asked = planner(Asked(lacking=lacking), lambda: {"usage": 0.95})
    done = await asked(EffectContext(growing(), Owed("INC-1", effect, 0, ""), AT), effect)
    (event,) = done.events
    assert isinstance(event, Planned)
    assert (event.effect_id, event.readings["usage"].value) == ("v3/plan/0", 0.95)
    assert event.result.reason == lacking


ROLLS = "    change: set_flags\n    with: {edits: [{flag: --max-num-seqs, value: 6}]}\n    against: kv_thrash\n"
ROLLING = load_text(TEXT.replace("    change: scale\n    with: {by: 1}\n", ROLLS), file="small.yaml")


@pytest.mark.parametrize(
    ("playbook", "until", "warned"),
    [
        pytest.param(ROLLING, AT + 1800, True, id="a rollout under an open breaker"),
        pytest.param(ROLLING, 0.0, False, id="a rollout that the breaker lets through"),
        pytest.param(PLAYBOOK, AT + 1800, False, id="a change that the breaker does not count"),
    ],
)
async def test_nobody_is_asked_to_approve_what_the_breaker_would_not_send_without_a_warning(
    playbook: CompiledPlaybook, until: float, warned: bool
) -> None:
    run = Story(Bundle.of(playbook)).opened().reads(0.95).chooses("grow").run
    effect = PlanChange(effect_id="v3/plan/0", visit=3, state="grow")
    asked = planner(Asked(), lambda: {"usage": 0.95}, playbook=playbook, breaker_until=until)
    (event,) = (await asked(EffectContext(run, Owed("INC-1", effect, 0, ""), AT), effect)).events
    assert isinstance(event, Planned)
    assert event.result.plan is not None
    warnings = [each.text for each in event.result.plan.circumstances if each.name == "breaker"]
    assert bool(warnings) is warned
    assert all("the breaker is open" in text and "it lets nothing through before" in text for text in warnings)


class OneFile:
    """`Repositories` with a file for every target."""

    def file_of(self, target: Target) -> str:
        return f"example/deploy: {target.name}.yaml"

    async def propose(self, proposal: Proposal) -> str:
        raise AssertionError(proposal)


FREEZE = PlannedWindow(kind="freeze", targets=("*",), starts_at=AT - 1, ends_at=AT + 1, why="release", by="ana")


@pytest.mark.parametrize(
    ("repositories", "windows", "file"),
    [
        pytest.param(OneFile(), (), "example/deploy: llm.yaml", id="a-file"),
        pytest.param(None, (), "", id="no-file"),
        pytest.param(OneFile(), (FREEZE,), None, id="in-a-freeze"),
    ],
)
async def test_what_the_owner_has_to_change_may_be_a_pull_request_where_its_file_is_known(
    repositories: Repositories | None, windows: Sequence[PlannedWindow], file: str | None
) -> None:
    cluster, effect = Asked(), PlanChange(effect_id="v3/plan/0", visit=3, state="grow")
    cluster.objects["Deployment", "llm"]["metadata"]["labels"] |= {"kustomize.toolkit.fluxcd.io/name": "llm"}
    asked = planner(cluster, lambda: {"usage": 0.95}, windows=windows, repositories=repositories)
    (event,) = (await asked(EffectContext(growing(), Owed("INC-1", effect, 0, ""), AT), effect)).events
    assert isinstance(event, Planned)
    assert (event.result.owners_edit.file if event.result.owners_edit is not None else None) == file


@pytest.mark.parametrize(
    ("cluster", "script"),
    [
        pytest.param(Asked(down="snapshot"), lambda: {"usage": 0.95}, id="the cluster does not answer"),
        pytest.param(Asked(), dict, id="the reason cannot be read"),
    ],
)
async def test_what_cannot_be_read_is_tried_again_before_people_are_asked(cluster: Asked, script: Script) -> None:
    effect, asked = PlanChange(effect_id="v3/plan/0", visit=3, state="grow"), planner(cluster, script)
    outcomes = [
        await asked(EffectContext(growing(), Owed("INC-1", effect, attempts, ""), AT), effect)
        for attempts in range(ATTEMPTS)
    ]
    assert outcomes[:-1] == [Later(AGAIN_SECONDS, failed=True)] * (ATTEMPTS - 1)
    (event,) = outcomes[-1].events
    assert isinstance(event, Planned)
    assert event.result.plan is None


@pytest.mark.parametrize(
    ("annotations", "is_advised"),
    [
        pytest.param({INCIDENT_ANNOTATION: "INC-7"}, False, id="what-the-bot-cordoned"),
        pytest.param({}, True, id="what-somebody-else-cordoned"),
    ],
)
async def test_a_freeze_stops_an_uncordon_unless_the_bot_cordoned_the_node(
    annotations: dict[str, str], *, is_advised: bool
) -> None:
    cordoned = node(1, unschedulable=True)
    cordoned["metadata"]["annotations"] = annotations
    cluster = Asked()
    cluster.objects["Node", "gpu-node-1"] = cordoned
    text = TEXT.replace("change: scale", "change: uncordon_node").replace("{by: 1}", "{node: gpu-node-1}")
    playbook = load_text(text)
    run = Story(Bundle.of(playbook)).opened().reads(0.95).chooses("grow").run
    freeze = PlannedWindow(kind="freeze", targets=("*",), starts_at=AT - 1, ends_at=AT + 1, why="release", by="ana")
    plans = planner(cluster, lambda: {"usage": 0.95}, playbook=playbook, windows=[freeze])
    effect = PlanChange(effect_id="v3/plan/0", visit=3, state="grow")
    (event,) = (await plans(EffectContext(run, Owed("INC-1", effect, 0, ""), AT), effect)).events
    assert isinstance(event, Planned)
    assert event.result.plan is not None, event.result
    assert (event.only_advice is not None) == is_advised
