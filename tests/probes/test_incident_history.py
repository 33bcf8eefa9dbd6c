"""The bot's own incidents: how often a target came back, and replacements on a node."""

from collections.abc import Sequence
from typing import Any

import pytest

from bot.domain.changes.plan import LedgerEntry
from bot.domain.cluster.objects import ObjectRef
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.incidents.run import Run
from bot.domain.incidents.subjects import subjects
from bot.domain.signals.signal import Reading
from bot.flow.hot_halls import hot_zones
from bot.flow.incident_history import rollbacks_in_a_day, troubled_times
from tests import builders
from tests.builders import START, TARGET, run
from tests.kit import probes
from tests.kit.probes import request

pytestmark = pytest.mark.fast

HOUR, DAY = 3600.0, 86400.0
HOT_HALL = Reading(name="heat", value=None, fields={"scope": "facility", "zone": "b"}, at=START)


class Kept:
    def __init__(self, *runs: Run) -> None:
        self._runs = {run.incident_id: run for run in runs}

    async def recent_incidents(self, limit: int) -> Sequence[str]:
        return list(self._runs)[:limit]

    async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
        return [name for name, run in self._runs.items() if subject in subjects(run)][:limit]

    async def last_incident(self, target_key: str) -> str | None:
        return next((name for name, run in self._runs.items() if run.target.key == target_key), None)

    async def load(self, incident_id: str) -> Run | None:
        return self._runs.get(incident_id)

    async def load_all(self, incident_ids: Sequence[str], *, mentioning: str = "") -> Sequence[Run]:
        found = [self._runs[name] for name in incident_ids if name in self._runs]
        return [run for run in found if mentioning in run.model_dump_json()]


def past(number: int, days: float, **fields: Any) -> Run:
    opened = START - days * DAY
    return run(incident_id=f"INC-{number}", opened_at=opened, closed_at=opened + HOUR, **fields)


def replaced(pod: str, hours: float, node: str = "n1", verb: str = "replace_replica") -> tuple[LedgerEntry, ...]:
    target = ObjectRef(kind="Pod", namespace="serving", name=pod)
    entry = LedgerEntry(
        call_id="c", state="s", verb=verb, title="t", target=target, applied_at=START - hours * HOUR, node=node
    )
    return (entry,)


async def ask(probe: str, *runs: Run, node: str = "n1", nodes: tuple[Obj, ...] = ()) -> Reading:
    pod: Obj = {"metadata": {"name": "llm-9", "uid": "u9"}, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    seen = ClusterSnapshot(at=START, workload={"metadata": {"name": "llm"}}, pods=(pod,), nodes=nodes)
    asked = request(
        probe, seen, at=START, of="picked.replica", incident_id="INC-50", target=TARGET, picked={"replica": "llm-9"}
    )
    return await probes.ask(asked, runs=Kept(*runs))


async def test_incidents_of_a_week_on_one_target_are_counted_with_the_present_one() -> None:
    elsewhere = TARGET.model_copy(update={"name": "other"})
    reading = await ask("recurrence", past(1, 8), past(2, 6), past(3, 1), past(4, 1, target=elsewhere))
    assert reading.fields == {"count": 3.0, "incidents": "INC-2, INC-3, INC-50"}


async def test_the_first_incident_is_one() -> None:
    assert (await ask("recurrence")).fields["count"] == 1.0


@pytest.mark.parametrize(
    ("ledger", "count"),
    [
        pytest.param(replaced("llm-3", 5), 1, id="today"),
        pytest.param(replaced("llm-3", 25), 0, id="yesterday"),
        pytest.param(replaced("llm-3", 5, node="n2"), 0, id="on-another-node"),
        pytest.param(replaced("llm-9", 0), 0, id="this-one"),
        pytest.param(replaced("llm-3", 5, verb="isolate_replica"), 0, id="only-isolated"),
    ],
)
async def test_only_replacements_of_a_day_on_that_node_count(ledger: tuple[LedgerEntry, ...], count: float) -> None:
    assert (await ask("replaced_before", past(1, 0.9, ledger=ledger))).fields == {"count": count, "node": "n1"}


async def test_a_node_of_the_same_name_in_another_cluster_is_another_node() -> None:
    elsewhere = TARGET.model_copy(update={"cluster": "west"})
    found = await ask("replaced_before", past(1, 0.9, target=elsewhere, ledger=replaced("llm-3", 5)))
    assert found.fields["count"] == 0


@pytest.mark.parametrize("cordoned", [True, False])
async def test_whether_the_node_is_cordoned_is_read(*, cordoned: bool) -> None:
    node: Obj = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True} if cordoned else {}}
    assert (await ask("replaced_before", nodes=(node,))).fields["cordoned"] is cordoned


async def test_a_node_that_was_not_read_is_not_known_to_take_pods() -> None:
    assert (await ask("replaced_before")).unknown_parts == {"cordoned": "node n1 was not read"}


async def test_a_replica_on_no_node_has_no_past() -> None:
    assert (await ask("replaced_before", node="")).unknown == "the replica is on no node"


def rolled_back(hours: float, *, outcome: str = "done", undone_by: str = "", **fields: Any) -> Run:
    (entry,) = replaced("llm", hours, verb="rollback")
    entry = entry.model_copy(update={"call_id": "INC-1/R1/0", "undone_by": undone_by})
    return past(1, hours / 24, ledger=(entry,), requests={"R1": builders.request(outcome=outcome)}, **fields)


@pytest.mark.parametrize(
    ("before", "counts"),
    [
        pytest.param(rolled_back(5), True, id="this morning"),
        pytest.param(rolled_back(30), False, id="yesterday"),
        pytest.param(rolled_back(5, undone_by="INC-1/R2/0"), False, id="taken back"),
        pytest.param(rolled_back(5, outcome="failed"), False, id="stopped half-way"),
        pytest.param(rolled_back(5, target=TARGET.model_copy(update={"name": "other"})), False, id="another workload"),
    ],
)
async def test_a_rollback_of_this_workload_counts_for_a_day_when_it_went_through(before: Run, *, counts: bool) -> None:
    assert await rollbacks_in_a_day(Kept(before), TARGET, at=START) == (["INC-1"] if counts else [])


STORM = [past(number, 0.1, target=TARGET.model_copy(update={"name": f"w-{number}"})) for number in range(100, 350)]
"""More newer incidents than are read of all."""


async def test_what_happened_before_a_storm_is_remembered() -> None:
    other = TARGET.model_copy(update={"name": "other"})
    before = (
        rolled_back(5),
        past(2, 0.3, target=other, ledger=replaced("llm-3", 5)),
        run(incident_id="INC-3", target=other, latest={"heat": HOT_HALL}),
    )
    kept = Kept(*STORM, *before)
    assert await rollbacks_in_a_day(kept, TARGET, at=START) == ["INC-1"]
    assert await troubled_times(kept, TARGET, but="INC-50") == [(before[0].opened_at, before[0].closed_at)]
    assert await hot_zones(kept, run(incident_id="INC-50"), at=START) == {"b": "INC-3"}
    assert (await ask("recurrence", *STORM, *before)).fields["incidents"] == "INC-1, INC-50"
    assert (await ask("replaced_before", *STORM, *before)).fields["count"] == 1


async def test_an_incident_of_a_version_without_lists_is_found_among_the_newest() -> None:
    class Unlisted(Kept):
        async def incidents_about(self, subject: str, limit: int) -> Sequence[str]:
            return []

    assert await rollbacks_in_a_day(Unlisted(rolled_back(5)), TARGET, at=START) == ["INC-1"]


def limited(**fields: Any) -> LedgerEntry:
    return builders.ledger_entry(title="lower the limit", **fields)


@pytest.mark.parametrize(
    ("status", "received", "fires"),
    [
        pytest.param("firing", START + 1, True, id="since then"),
        pytest.param("firing", START - 1, False, id="before, and only repeated"),
        pytest.param("resolved", START + 1, False, id="over"),
    ],
)
async def test_an_alert_fires_again_only_if_it_came_since_the_state_was_entered(
    status: str, received: float, *, fires: bool
) -> None:
    alert = builders.alert(status).model_copy(update={"received_at": received})
    present = run(incident_id="INC-50", entered_at=START, alerts={"f1": alert})
    assert (await ask("alert_again", present)).fields["fires"] is fires


@pytest.mark.parametrize("probe", ["alert_again", "own_changes"])
async def test_what_is_read_of_the_present_incident_is_unknown_without_it(probe: str) -> None:
    assert not (await ask(probe)).is_known


@pytest.mark.parametrize(
    ("ledger", "titles"),
    [
        pytest.param((), "", id="nothing was changed"),
        pytest.param((limited(),), "lower the limit", id="a change"),
        pytest.param((limited(undone_by="INC-50/R2/0"),), "", id="a change that was taken back"),
    ],
)
async def test_only_a_change_that_was_not_taken_back_is_in_place(ledger: tuple[LedgerEntry, ...], titles: str) -> None:
    present = run(incident_id="INC-50", ledger=ledger)
    assert (await ask("own_changes", present)).fields == {"in_place": bool(titles), "titles": titles}
