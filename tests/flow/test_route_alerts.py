"""Where an accepted alert goes: it opens, joins or reopens an incident, is reported, or is kept as unmatched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.incidents.event import AlertChanged, Commanded
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import ClusterError, NotServingError, RefusedError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.advance_run import AdvanceRun
from bot.flow.ports.storage import Intake, Joining, Routed
from bot.flow.route_alerts import ANSWER_WITHIN_SECONDS, BATCH, RouteAlerts
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.flow.harness import RULES, compiled_once
from tests.flow.scenes import DRILL, drill_playbook
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
REOPEN_SECONDS = 900.0
LATER = builders.START + 300

FREE = restrictions()


@pytest.fixture
def cluster(time: VirtualTime) -> MemoryCluster:
    return MemoryCluster(time.now)


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def route(store: RedisStore, cluster: MemoryCluster, woken: list[str]) -> RouteAlerts:
    library = Library({"drill": drill_playbook()})
    return RouteAlerts(
        store, store, library, {"test": cluster},
        restrictions=FREE, reopen_within_seconds=REOPEN_SECONDS, wake=lambda incident, *_: woken.append(incident),
    )  # fmt: skip


Accept = Callable[..., Coroutine[Any, Any, None]]


@pytest.fixture
def arrives(store: RedisStore, route: RouteAlerts) -> Accept:
    async def arrive(*alerts: Alert) -> None:
        await store.accept(alerts, truncated=0)
        await route()
        assert await store.intake(10) == []

    return arrive


def router(store: RedisStore, cluster: MemoryCluster) -> RouteAlerts:
    library = Library({"drill": drill_playbook()})
    return RouteAlerts(store, store, library, {"test": cluster}, restrictions=FREE, wake=lambda *_: None)


async def arrive_and_wait(store: RedisStore, time: VirtualTime, cluster: MemoryCluster, *alerts: Alert) -> None:
    """They are routed once the cluster has had its time to answer."""
    await store.accept(alerts, truncated=0)
    await time.advance(ANSWER_WITHIN_SECONDS)
    await router(store, cluster)()


async def close(store: RedisStore, time: VirtualTime, incident: str = "INC-1") -> None:
    run = await store.load(incident)
    assert run is not None
    closed = run.with_(version=run.version + 1, closed_at=time.now(), ending="fixed")
    await store.commit(closed, consumed=len(await store.inbox(incident)), entries=(), effects=())


async def inbox(store: RedisStore, incident: str) -> list[str]:
    return [event.event_id.split("/", 2)[2] for event in await store.inbox(incident)]


async def reasons(store: RedisStore) -> list[str]:
    return [reason for _alert, reason in await store.unmatched(10)]


async def test_an_alert_opens_an_incident_on_its_workload_and_wakes_it(
    store: RedisStore, arrives: Accept, woken: list[str]
) -> None:
    await arrives(builders.alert())
    run = await store.load("INC-1")
    assert run is not None
    assert (run.target, run.playbook, run.visit.number, run.visit.state) == (builders.TARGET, "drill", 0, "look")
    assert run.digest == Bundle.of(drill_playbook()).digest
    assert await store.bundle(run.digest) == Bundle.of(drill_playbook()).stored()
    assert await store.open_incident(builders.TARGET.key) == "INC-1"
    assert woken == ["INC-1"]


async def test_a_further_alert_of_the_same_workload_joins_its_incident(store: RedisStore, arrives: Accept) -> None:
    await arrives(builders.alert(), builders.alert(fingerprint="f2"))
    await arrives(builders.alert("resolved"))
    assert list(await store.open_incidents()) == ["INC-1"]
    assert [key.split("/")[0] + "/" + key.split("/")[2] for key in await inbox(store, "INC-1")] == [
        "f1/firing",
        "f2/firing",
        "f1/resolved",
    ]


async def test_trouble_from_the_future_began_when_its_alert_came(store: RedisStore, arrives: Accept) -> None:
    await arrives(builders.alert(starts_at=builders.START + 10**9))
    run = await store.load("INC-1")
    assert run is not None
    assert run.starts_at == run.opened_at


async def test_alerts_that_came_together_join_in_one_step_and_in_order(
    store: RedisStore, route: RouteAlerts, arrives: Accept, woken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await arrives(builders.alert())
    assert await store.load("INC-1") is not None
    woken.clear()
    joined: list[int] = []
    join = store.join

    async def counted(alerts: Sequence[Joining], run: Run) -> Routed | None:
        joined.append(len(alerts))
        return await join(alerts, run)

    monkeypatch.setattr(store, "join", counted)
    other = builders.alert(fingerprint="f3", deployment="other")
    await arrives(
        builders.alert(fingerprint="f2"),
        other,
        builders.alert("resolved"),
        builders.alert("resolved", fingerprint="f2"),
    )
    assert joined == [3]
    assert woken == ["INC-1", "INC-2"]
    assert [key.split("/")[0] + "/" + key.split("/")[2] for key in await inbox(store, "INC-1")] == [
        "f1/firing", "f2/firing", "f1/resolved", "f2/resolved",
    ]  # fmt: skip


async def test_where_joining_together_fails_each_is_routed_by_itself(
    store: RedisStore, arrives: Accept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await arrives(builders.alert())
    assert await store.load("INC-1") is not None

    async def broken(alerts: Sequence[Joining], run: Run) -> None:
        raise KeyError("offer")

    monkeypatch.setattr(store, "join", broken)
    await arrives(builders.alert(fingerprint="f2"), builders.alert(fingerprint="f3"))
    assert len(await inbox(store, "INC-1")) == 3


async def test_an_alert_of_a_workload_with_an_open_incident_is_expected_there(
    store: RedisStore, route: RouteAlerts, arrives: Accept
) -> None:
    assert route.expected(builders.alert()) is None
    await arrives(builders.alert())
    assert route.expected(builders.alert(fingerprint="f2", alertname="Another")) == "INC-1"
    assert route.expected(builders.alert(deployment="other")) is None
    assert route.expected(builders.alert(namespace="other")) is None


async def test_another_workload_has_an_incident_of_its_own(store: RedisStore, arrives: Accept) -> None:
    await arrives(builders.alert(), builders.alert(fingerprint="f2", deployment="other"))
    assert list(await store.open_incidents()) == ["INC-1", "INC-2"]


@pytest.mark.parametrize(
    ("alert", "reason"),
    [
        pytest.param(builders.alert(alertname="DiskFull"), "no playbook's opens_on matches", id="no playbook wants it"),
        pytest.param(builders.alert(cluster="east"), "about cluster 'east'", id="another cluster"),
        pytest.param(builders.alert("resolved"), "no incident of its target is open", id="a straggler of nothing"),
    ],
)
async def test_what_opens_nothing_is_kept_with_its_reason(
    store: RedisStore, arrives: Accept, alert: Alert, reason: str
) -> None:
    await arrives(alert)
    assert list(await store.open_incidents()) == []
    (kept,) = await reasons(store)
    assert reason in kept


async def test_a_straggler_of_a_closed_incident_is_noted_in_it_and_opens_nothing(
    store: RedisStore, arrives: Accept, time: VirtualTime
) -> None:
    await arrives(builders.alert())
    await close(store, time)
    await arrives(builders.alert("resolved"))
    assert list(await store.open_incidents()) == []
    assert len(await inbox(store, "INC-1")) == 1


@pytest.mark.parametrize(
    ("after_seconds", "incident"),
    [pytest.param(REOPEN_SECONDS - 1, "INC-1", id="soon"), pytest.param(REOPEN_SECONDS + 1, "INC-2", id="later")],
)
async def test_the_same_trouble_soon_again_reopens_and_later_opens_anew(
    store: RedisStore, arrives: Accept, time: VirtualTime, after_seconds: float, incident: str
) -> None:
    await arrives(builders.alert())
    await close(store, time)
    await time.advance(after_seconds)
    await arrives(builders.alert(starts_at=LATER))
    assert await store.open_incident(builders.TARGET.key) == incident


async def test_an_alert_that_fires_after_it_resolved_is_accepted_though_it_has_the_same_start(
    store: RedisStore, arrives: Accept
) -> None:
    """Alertmanager sends this when Prometheus could not reach it for a while."""
    for status in ("firing", "resolved", "firing"):
        await arrives(builders.alert(status))
    await AdvanceRun(store, compiled_once, RULES)("INC-1")
    run = await store.load("INC-1")
    assert run is not None
    assert run.alerts["f1"].status == "firing"


@pytest.mark.parametrize(
    ("close_after_seconds", "incident"),
    [pytest.param(3000, "INC-1", id="closed soon before"), pytest.param(10, "INC-2", id="closed long before")],
)
async def test_a_repeat_of_an_alert_that_outlived_its_incident_is_in_an_open_incident(
    store: RedisStore, arrives: Accept, time: VirtualTime, close_after_seconds: float, incident: str
) -> None:
    advance = AdvanceRun(store, compiled_once, RULES)
    await arrives(builders.alert())
    await time.advance(close_after_seconds)
    await store.append("INC-1", [Commanded(event_id="enough", command="resolve", user="U0LEA", text="done")])
    await advance("INC-1")
    assert list(await store.open_incidents()) == []
    await time.advance(3700 - close_after_seconds)
    await arrives(builders.alert())
    await advance(incident)
    run = await store.load(incident)
    assert run is not None
    assert run.is_open
    assert await store.open_incident(builders.TARGET.key) == incident


async def test_an_incident_that_is_about_to_be_reopened_keeps_its_target(
    store: RedisStore, arrives: Accept, time: VirtualTime
) -> None:
    """What closes it once more has not seen the alert that waits in its inbox."""
    advance = AdvanceRun(store, compiled_once, RULES)
    await arrives(builders.alert())
    await advance("INC-1")
    await store.append("INC-1", [Commanded(event_id="enough", command="resolve", user="U0LEA", text="done")])
    await arrives(builders.alert(starts_at=LATER))
    run, (resolve, _firing) = await store.load("INC-1"), await store.inbox("INC-1")
    assert run is not None
    closed = run.with_(version=run.version + 1, closed_at=resolve.at, ending="resolved_by_hand")
    await store.commit(closed, consumed=1, entries=(), effects=())
    assert await store.open_incident(builders.TARGET.key) == "INC-1"
    await arrives(builders.alert(fingerprint="f2"))
    await advance("INC-1")
    assert list(await store.open_incidents()) == ["INC-1"]
    again = await store.load("INC-1")
    assert again is not None
    assert again.is_open


async def test_an_incident_that_stays_closed_gives_its_target_back_with_its_last_event(
    store: RedisStore, arrives: Accept, time: VirtualTime
) -> None:
    advance = AdvanceRun(store, compiled_once, RULES)
    await arrives(builders.alert(starts_at=LATER))
    await advance("INC-1")
    await close(store, time)
    await arrives(builders.alert(starts_at=builders.START))
    assert await store.open_incident(builders.TARGET.key) == "INC-1"
    await advance("INC-1")
    assert list(await store.open_incidents()) == []


async def test_a_person_reopens_it_once_by_one_command(store: RedisStore, arrives: Accept, time: VirtualTime) -> None:
    advance = AdvanceRun(store, compiled_once, RULES)
    command = Commanded(event_id="again", command="reopen", user="U0LEA", text="it came back")
    await arrives(builders.alert())
    await advance("INC-1")
    for _ in range(2):
        await store.append("INC-1", [Commanded(event_id=f"done{_}", command="resolve", user="U0LEA", text="done")])
        await advance("INC-1")
        run = await store.load("INC-1")
        assert run is not None
        assert await store.reopen(run, command)
        await advance("INC-1")
    assert list(await store.open_incidents()) == []


class SlowCluster(MemoryCluster):
    """One that does not say in time whose alert it is."""

    async def resolve(self, alert: Alert) -> Target | None:
        raise TimeoutError


class SilentCluster(MemoryCluster):
    """One that does not answer; `asked` counts how often it was tried."""

    asked = 0

    async def resolve(self, alert: Alert) -> Target | None:
        self.asked += 1
        raise ClusterError("nobody answers")


class IgnorantCluster(MemoryCluster):
    async def resolve(self, alert: Alert) -> Target | None:
        return None


@pytest.mark.parametrize("kind", [SlowCluster, SilentCluster, IgnorantCluster], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    ("alert", "target"),
    [
        pytest.param(builders.alert(), builders.TARGET, id="named outright"),
        pytest.param(
            builders.alert(deployment="", service="llm"),
            Target(cluster="test", namespace="serving", kind="Unknown", name="llm", resolved=False),
            id="hinted at",
        ),
    ],
)
async def test_a_workload_that_the_cluster_does_not_name_is_what_the_labels_say(
    store: RedisStore, time: VirtualTime, kind: type[MemoryCluster], alert: Alert, target: Target
) -> None:
    await arrive_and_wait(store, time, kind(time.now), alert)
    run = await store.load("INC-1")
    assert run is not None
    assert run.target == target


async def test_a_cluster_that_answers_again_soon_is_asked_which_workload_has_the_pod(
    store: RedisStore, time: VirtualTime
) -> None:
    """An incident on what the labels say can read nothing, for as long as it is open."""
    of_pod = builders.alert(deployment="", pod="llm-1")
    for cluster in (SilentCluster(time.now), OfPods(time.now)):
        route = router(store, cluster)
        await store.accept([of_pod, builders.alert(fingerprint="f2", deployment="other")], truncated=0)
        await route()
    assert await store.open_targets() == {builders.TARGET.key: "INC-2", builders.TARGET.key[:-3] + "other": "INC-1"}
    assert await store.intake(10) == []


async def test_a_cluster_that_did_not_answer_is_left_alone_for_a_moment(store: RedisStore, time: VirtualTime) -> None:
    cluster = SilentCluster(time.now)
    route = router(store, cluster)
    storm = [builders.alert(fingerprint=f"f{number}", deployment=f"llm-{number}") for number in range(5)]
    await store.accept(storm, truncated=0)
    await route()
    assert len(await store.open_incidents()) == len(storm)
    assert cluster.asked == 1


class OfPods(MemoryCluster):
    """One whose alerts name pods; `pods` are those that exist."""

    pods: frozenset[str] = frozenset({"llm-1"})

    async def resolve(self, alert: Alert) -> Target | None:
        return builders.TARGET if alert.labels["pod"] in self.pods else None


@pytest.mark.parametrize("joins", [pytest.param(False, id="that opened it"), pytest.param(True, id="that joined it")])
async def test_an_incident_hears_that_an_alert_resolved_whose_pod_is_gone(
    store: RedisStore, time: VirtualTime, *, joins: bool
) -> None:
    cluster = OfPods(time.now)
    route = router(store, cluster)
    for name in ["f0", "f1"] if joins else ["f1"]:
        await store.accept([builders.alert(fingerprint=name, deployment="", pod="llm-1")], truncated=0)
        await route()
        assert await store.load("INC-1") is not None
    cluster.pods = frozenset()
    later = builders.alert(starts_at=LATER, deployment="", pod="llm-1")
    for alert in (builders.alert("resolved", deployment="", pod="llm-1"), later):
        await store.accept([alert], truncated=0)
        await route()
    assert (await inbox(store, "INC-1"))[-2:] == [f"f1/{builders.START:.3f}/resolved", f"f1/{LATER:.3f}/firing"]
    assert list(await store.open_incidents()) == ["INC-1"]
    assert await reasons(store) == []


async def test_an_alert_whose_pod_is_gone_is_about_the_workload_from_before(
    store: RedisStore, time: VirtualTime
) -> None:
    cluster = OfPods(time.now)
    route = router(store, cluster)
    for number, starts_at in enumerate((builders.START, LATER), start=1):
        await store.accept([builders.alert(deployment="", pod="llm-1", starts_at=starts_at)], truncated=0)
        await route()
        await close(store, time, f"INC-{number}")
        await time.advance(2 * REOPEN_SECONDS)
        cluster.pods = frozenset()
    run = await store.load("INC-2")
    assert run is not None
    assert run.target == builders.TARGET


class OneService(MemoryCluster):
    """One whose Service leads to the workload while it has no other pods behind it."""

    is_shared = False

    async def resolve(self, alert: Alert) -> Target | None:
        return None if self.is_shared else builders.TARGET


@pytest.mark.parametrize("is_closed", [False, True])
async def test_of_a_service_that_leads_to_several_workloads_now_only_the_open_incident_has_the_alert(
    store: RedisStore, time: VirtualTime, *, is_closed: bool
) -> None:
    """An incident is about the wrong workload otherwise, and proposes changes of it."""
    cluster = OneService(time.now)
    route = router(store, cluster)
    for starts_at in (builders.START, LATER):
        await store.accept([builders.alert(deployment="", service="llm", starts_at=starts_at)], truncated=0)
        await route()
        cluster.is_shared = True
        if is_closed and starts_at != LATER:
            await close(store, time)
            await time.advance(2 * REOPEN_SECONDS)
    by_labels = Target(cluster="test", namespace="serving", kind="Unknown", name="llm", resolved=False)
    assert await store.open_targets() == ({by_labels.key: "INC-2"} if is_closed else {builders.TARGET.key: "INC-1"})


async def test_an_incident_that_opened_while_its_cluster_did_not_answer_hears_that_its_alert_resolved(
    store: RedisStore, time: VirtualTime
) -> None:
    alerts = [builders.alert(status, deployment="", pod="llm-1") for status in ("firing", "resolved")]
    for alert, cluster in zip(alerts, (SilentCluster(time.now), OfPods(time.now)), strict=True):
        await arrive_and_wait(store, time, cluster, alert)
    assert len(await inbox(store, "INC-1")) == len(alerts)


@pytest.mark.parametrize("has_resolved", [False, True])
async def test_an_alert_that_still_fires_in_an_incident_without_a_workload_opens_no_second_one(
    store: RedisStore, time: VirtualTime, *, has_resolved: bool
) -> None:
    """The first one would never hear that it resolved. If it fires again later, the workload is known."""
    of_pod = partial(builders.alert, deployment="", pod="llm-1")
    history = [of_pod(), of_pod("resolved"), of_pod(starts_at=LATER)] if has_resolved else [of_pod(), of_pod()]
    for alert, kind in zip(history, (SilentCluster, OfPods, OfPods), strict=False):
        await arrive_and_wait(store, time, kind(time.now), alert)
        run = await store.load("INC-1")
        assert run is not None
        known = {alert.fingerprint: alert}
        waiting = len(await store.inbox("INC-1"))
        await store.commit(run.with_(version=run.version + 1, alerts=known), consumed=waiting, entries=(), effects=())
        await time.advance(2 * 3600)
    assert sorted(await store.open_incidents()) == (["INC-1", "INC-2"] if has_resolved else ["INC-1"])


async def test_a_resolve_goes_to_the_incident_of_its_alert_also_where_its_workload_has_another_one(
    store: RedisStore, time: VirtualTime
) -> None:
    """The cluster did not answer when the first alert came, so its workload got a second incident."""
    first, second, ends, other_ends = (
        builders.alert(status, fingerprint=fingerprint, deployment="", pod="llm-1")
        for status in ("firing", "resolved")
        for fingerprint in ("f1", "f2")
    )
    for alerts, kind in (([first], SilentCluster), ([second], OfPods), ([ends, other_ends], OfPods)):
        await arrive_and_wait(store, time, kind(time.now), *alerts)
        assert [await store.load(incident) for incident in await store.open_incidents()]
    assert await inbox(store, "INC-1") == [first.dedupe_key, ends.dedupe_key]
    assert await inbox(store, "INC-2") == [second.dedupe_key, other_ends.dedupe_key]


class SilentOnce(MemoryCluster):
    """One that answers again after its first call, as soon as the bot asks."""

    asked = 0
    is_slow = False

    async def resolve(self, alert: Alert) -> Target | None:
        self.asked += 1
        if self.asked == 1:
            self.is_slow = True
            raise ClusterError("nobody answers")
        return builders.TARGET


async def test_a_resolve_does_not_overtake_its_alert_that_waits_for_the_cluster(
    store: RedisStore, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be kept as unmatched, and the alert fire in its incident for ever."""
    cluster, intake = SilentOnce(time.now), store.intake

    async def after_its_rest(limit: int) -> Sequence[Intake]:
        cluster.is_slow = False
        return await intake(limit)

    monkeypatch.setattr("bot.flow.route_alerts.BATCH", 1)
    monkeypatch.setattr(store, "intake", after_its_rest)
    monkeypatch.setattr(RouteAlerts, "_is_slow", lambda *_: cluster.is_slow)
    route = router(store, cluster)
    alerts = [builders.alert(status, deployment="", pod="llm-1") for status in ("firing", "resolved")]
    await store.accept(alerts, truncated=0)
    await route()
    await route()
    assert await inbox(store, "INC-1") == [alert.dedupe_key for alert in alerts]


async def test_an_alert_that_waits_for_its_cluster_is_logged_once(store: RedisStore, time: VirtualTime) -> None:
    library = Library({"drill": drill_playbook()})
    route = RouteAlerts(
        store, store, library, {"test": SilentCluster(time.now)}, restrictions=FREE, wake=lambda *_: None
    )
    await store.accept([builders.alert(deployment="", pod="llm-1")], truncated=0)
    with capture_logs() as logs:
        for _ in range(3):
            await route()
    assert [log["event"] for log in logs].count("alert.left") == 1


class RefusingCluster(MemoryCluster):
    """One that does not let the bot read the namespace `hidden`."""

    async def resolve(self, alert: Alert) -> Target | None:
        if alert.labels["namespace"] == "hidden":
            raise RefusedError("403 pods is forbidden")
        return builders.TARGET


async def test_a_namespace_that_the_bot_may_not_read_keeps_no_other_alert_from_its_workload(
    store: RedisStore, time: VirtualTime
) -> None:
    clusters = {"test": RefusingCluster(time.now)}
    library = Library({"drill": drill_playbook()})
    route = RouteAlerts(store, store, library, clusters, restrictions=FREE, wake=lambda *_: None)
    hidden = builders.alert(fingerprint="f1", namespace="hidden", deployment="", pod="dcgm-1")
    for alert in (hidden, builders.alert(fingerprint="f2", deployment="", pod="llm-1")):
        await store.accept([alert], truncated=0)
        await route()
    run = await store.load("INC-2")
    assert run is not None
    assert run.target == builders.TARGET


async def test_an_index_that_changed_meanwhile_is_looked_at_again(
    store: RedisStore, route: RouteAlerts, time: VirtualTime
) -> None:
    """Another process opens the incident between this one's look and its write."""
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    assert await store.route(entry, builders.run(incident_id="INC-7"), "opens", bundle=builders.bundle())
    await route()
    assert list(await store.open_incidents()) == ["INC-7"]
    assert len(await inbox(store, "INC-7")) == 2


class Stumbling(MemoryCluster):
    """Fails on one workload as no adapter should."""

    async def resolve(self, alert: Alert) -> Target | None:
        if alert.labels.get("deployment") == "odd":
            raise KeyError("metadata")
        return await super().resolve(alert)


class StumblingLibrary(Library):
    """Fails on one alert as no library should."""

    def match(self, labels: Mapping[str, str]) -> list[CompiledPlaybook]:
        if labels.get("deployment") == "odd":
            raise KeyError("metadata")
        return super().match(labels)


@pytest.mark.parametrize(
    ("library", "cluster"),
    [
        pytest.param(Library, Stumbling, id="its workload"),
        pytest.param(StumblingLibrary, MemoryCluster, id="its match"),
    ],
)
async def test_an_alert_that_cannot_be_routed_is_set_aside_and_holds_up_no_other(
    store: RedisStore, time: VirtualTime, library: type[Library], cluster: type[MemoryCluster]
) -> None:
    playbooks, clusters = library({"drill": drill_playbook()}), {"test": cluster(time.now)}
    route = RouteAlerts(store, store, playbooks, clusters, restrictions=FREE, wake=lambda *_: None)
    odd, even = builders.alert(deployment="odd"), builders.alert(fingerprint="f2", deployment="even")
    await store.accept([odd, even], truncated=0)
    await route()
    assert len(await store.open_incidents()) == 1
    assert await reasons(store) == ["it could not be routed: KeyError: 'metadata'"]
    assert await store.intake(10) == []


async def test_an_alert_that_failed_once_costs_no_later_round_another_look(
    store: RedisStore, time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StumblingOnce(MemoryCluster):
        stumbles = True

        async def resolve(self, alert: Alert) -> Target | None:
            if self.stumbles:
                self.stumbles = False
                raise KeyError("metadata")
            return await super().resolve(alert)

    route, intake, looks = router(store, StumblingOnce(time.now)), store.intake, list[int]()

    async def counted(limit: int) -> Sequence[Intake]:
        looks.append(limit)
        return await intake(limit)

    await store.accept([builders.alert()], truncated=0)
    await route()
    assert await store.open_incidents() == ["INC-1"]
    monkeypatch.setattr(store, "intake", counted)
    await store.accept([builders.alert(fingerprint="f2")], truncated=0)
    await route()
    assert len(looks) == 1


async def unreadable_entries(redis: Connection, count: int = 1) -> list[str]:
    raws = [f"{900 + number}|{builders.START}|0|{{}}" for number in range(count - 1)] + ["no entry at all"]
    await redis.client.rpush(redis.key("intake"), *raws)
    return raws


async def test_an_entry_that_cannot_be_read_stays_and_holds_up_no_other(
    redis: Connection, store: RedisStore, route: RouteAlerts
) -> None:
    raws = await unreadable_entries(redis, 3)
    await store.accept([builders.alert()], truncated=0)
    with capture_logs() as logs:
        await route()
        await route()
    assert await store.open_incident(builders.TARGET.key) == "INC-1"
    # A newer version of the bot may read them.
    assert await redis.client.lrange(redis.key("intake"), 0, -1) == raws
    told = [log for log in logs if log["event"] == "alert.unreadable"]
    assert [(log["log_level"], log["entry"]) for log in told] == [("error", "900"), ("error", "901"), ("error", "?")]
    assert "cannot read 3 of the accepted alerts" in store.notices()["intake"]


async def test_a_notice_of_an_entry_that_cannot_be_read_ends_with_it(
    redis: Connection, store: RedisStore, route: RouteAlerts
) -> None:
    await unreadable_entries(redis)
    await route()
    assert "intake" in store.notices()
    await redis.client.delete(redis.key("intake"))
    await route()
    assert store.notices() == {}


async def test_alerts_after_many_entries_that_cannot_be_read_are_routed(
    redis: Connection, store: RedisStore, route: RouteAlerts
) -> None:
    await unreadable_entries(redis, 3 * BATCH)
    await store.accept([builders.alert()], truncated=0)
    await route()
    assert await store.open_incident(builders.TARGET.key) == "INC-1"


async def test_a_held_alert_that_cannot_be_read_stays_and_holds_up_no_other(
    redis: Connection, store: RedisStore, route: RouteAlerts
) -> None:
    await store.accept([builders.alert()], truncated=0)
    (entry,) = await store.intake(10)
    await store.hold(entry, builders.TARGET)
    await redis.client.hset(redis.key("held"), "f0", "{}")
    await route.release()
    await route()
    assert await store.open_incident(builders.TARGET.key) == "INC-1"
    assert await redis.client.hkeys(redis.key("held")) == ["f0"]
    assert "cannot read 1 of the accepted alerts" in store.notices()["intake"]


@pytest.mark.open_index_is_broken("the run is deleted under it")
async def test_an_incident_that_the_storage_lost_holds_up_only_its_own_alerts(
    redis: Connection, store: RedisStore, arrives: Accept
) -> None:
    await arrives(builders.alert())
    await redis.client.delete(redis.key("run", "INC-1"))
    await arrives(builders.alert(fingerprint="f2"), builders.alert(fingerprint="f3", deployment="other"))
    assert len(await store.open_incidents()) == 2
    (reason,) = await reasons(store)
    assert "INC-1 is open by the index and not stored" in reason


# --- several clusters -------------------------------------------------------------------------------------------------


def of_two(store: RedisStore, east: MemoryCluster, west: MemoryCluster) -> RouteAlerts:
    library = Library({"drill": drill_playbook()})
    return RouteAlerts(store, store, library, {"east": east, "west": west}, restrictions=FREE, wake=lambda *_: None)


async def test_one_workload_name_in_two_clusters_has_an_incident_in_each(store: RedisStore, time: VirtualTime) -> None:
    route = of_two(store, MemoryCluster(time.now), MemoryCluster(time.now))
    alerts = [builders.alert(fingerprint=cluster, cluster=cluster) for cluster in ("east", "west")]
    await store.accept([*alerts, builders.alert(fingerprint="again", cluster="west")], truncated=0)
    await route()
    runs = [await store.load(incident) for incident in ("INC-1", "INC-2")]
    assert sorted(str(run.target) for run in runs if run) == ["east/serving/llm", "west/serving/llm"]
    assert len(await store.open_incidents()) == 2


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        pytest.param({"cluster": "north"}, "it is about cluster 'north', and this bot works on 'east', 'west'", id="n"),
        pytest.param(
            {},
            "it has no `cluster` label, and this bot works on 'east', 'west': "
            "set `cluster` in the external_labels of each Prometheus",
            id="no-label",
        ),
    ],
)
async def test_an_alert_about_no_known_cluster_is_kept_with_what_to_do(
    store: RedisStore, time: VirtualTime, labels: dict[str, str], reason: str
) -> None:
    route = of_two(store, MemoryCluster(time.now), MemoryCluster(time.now))
    alert = builders.alert(**labels)  # type: ignore[arg-type]  # labels only
    assert await route.knows(alert)
    await store.accept([alert], truncated=0)
    await route()
    assert (list(await store.open_incidents()), await reasons(store)) == ([], [reason])
    assert await store.intake(10) == []
    assert route.notices() == {"alerts": f"an alert opened no incident: {reason}"}


async def test_an_alert_that_no_playbook_matches_is_logged_with_the_reason(
    store: RedisStore, route: RouteAlerts
) -> None:
    await store.accept([builders.alert(alertname="DiskFull")], truncated=0)
    with capture_logs() as logged:
        await route()
    (line,) = [each for each in logged if each["event"] == "alert.unmatched"]
    assert (line["alert"], line["reason"]) == ("DiskFull", "no playbook's opens_on matches its labels")
    assert route.notices() == {}


class Particular(MemoryCluster):
    """Its only workload runs no inference engine."""

    async def resolve(self, alert: Alert) -> Target | None:
        if alert.names_models:
            return builders.TARGET
        raise NotServingError("Deployment serving/llm asks for no GPU")


async def test_an_alert_about_a_workload_that_serves_no_models_opens_no_incident(
    store: RedisStore, time: VirtualTime, tmp_path: Path
) -> None:
    copy = tmp_path / "drill.yaml"
    copy.write_text(DRILL.read_text().replace("VllmKVCache.*", ".*CrashLoop.*"))
    library = Library({"drill": load_playbook(copy)})
    cluster = {"test": Particular(time.now)}
    route = RouteAlerts(store, store, library, cluster, restrictions=FREE, wake=lambda *_: None)
    crash = builders.alert(alertname="KubePodCrashLooping")
    assert await route.knows(crash)
    await store.accept([crash, builders.alert(alertname="VllmCrashLoop", fingerprint="f2")], truncated=0)
    await route()
    assert await reasons(store) == ["Deployment serving/llm asks for no GPU"]
    assert await store.open_incidents() == ["INC-1"], "the second one is about models, and was not taken for the first"
    assert route.notices() == {}


class Hanging(MemoryCluster):
    """One that answers once the test lets it."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now)
        self.may_answer = asyncio.Event()

    async def resolve(self, alert: Alert) -> Target | None:
        await self.may_answer.wait()
        raise ClusterError("nobody answers")


async def test_a_cluster_that_does_not_answer_delays_no_alert_of_another(store: RedisStore, time: VirtualTime) -> None:
    east, west = MemoryCluster(time.now), Hanging(time.now)
    opened = asyncio.Event()
    library = Library({"drill": drill_playbook()})
    clusters = {"east": east, "west": west}
    route = RouteAlerts(store, store, library, clusters, restrictions=FREE, wake=lambda *_: opened.set())
    await store.accept([builders.alert(fingerprint=each, cluster=each) for each in ("west", "east")], truncated=0)
    routing = asyncio.create_task(route())
    await opened.wait()
    assert await store.open_incident(builders.TARGET.model_copy(update={"cluster": "east"}).key)
    west.may_answer.set()
    await routing
    assert len(await store.open_incidents()) == 2


async def test_an_incident_hears_that_its_alert_is_resolved_although_no_playbook_opens_on_it_any_more(
    store: RedisStore, cluster: MemoryCluster
) -> None:
    """An edit of the playbooks counts for new incidents."""
    route = RouteAlerts(
        store, store, Library({"drill": drill_playbook()}), {"test": cluster}, restrictions=FREE, wake=lambda *_: None
    )
    await store.accept([builders.alert()], truncated=0)
    await route()
    (incident,) = await store.open_incidents()
    edited = RouteAlerts(store, store, Library({}), {"test": cluster}, restrictions=FREE, wake=lambda *_: None)
    waiting = len(await store.inbox(incident))
    await store.accept([builders.alert(status="resolved")], truncated=0)
    await edited()
    more = list(await store.inbox(incident))[waiting:]
    assert [event.alert.status for event in more if isinstance(event, AlertChanged)] == ["resolved"]
    ((_, why),) = await store.unmatched(5)
    assert why.endswith(f"; {incident} heard that it is resolved")


async def test_a_resolve_that_no_playbook_opens_on_and_no_incident_has_is_kept_unmatched(
    store: RedisStore, cluster: MemoryCluster
) -> None:
    route = RouteAlerts(store, store, Library({}), {"test": cluster}, restrictions=FREE, wake=lambda *_: None)
    await store.accept([builders.alert(status="resolved")], truncated=0)
    await route()
    ((_, why),) = await store.unmatched(5)
    assert why == "no playbook's opens_on matches its labels"
