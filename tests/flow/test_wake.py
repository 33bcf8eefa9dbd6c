"""Waking is direct and idempotent: nothing is forgotten, and little runs at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from bot.domain.incidents.effect import Lane, ShowInSlack
from bot.domain.kernel.errors import StorageUnavailableError
from bot.flow.advance_run import Advanced
from bot.flow.perform_effect import Performed
from bot.flow.ports.storage import Owed, Waiting
from bot.flow.wake import AT_ONCE, FRESH_SECONDS, HEAD_START_SECONDS, MAX_REST_SECONDS, REST_SECONDS, Wake
from tests import builders

pytestmark = pytest.mark.fast
SHOW = ShowInSlack(effect_id="show")


@dataclass
class Work:
    """Advances and effects that go on until a test lets them; what was asked for, in order."""

    advanced: list[str] = field(default_factory=list)
    performed: list[str] = field(default_factory=list)
    taken: list[Owed | None] = field(default_factory=list)
    at_once: int = 0
    max_at_once: int = 0
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    becomes: Callable[[str], Advanced] = lambda incident: Advanced()
    again: float | None = None
    is_news: bool = True
    version: int = 0
    waiting: Waiting | None = None
    time: float = 0.0
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    async def advance(self, incident: str, waiting: Waiting | None) -> Advanced:
        self.advanced.append(incident)
        self.waiting = waiting
        self.at_once += 1
        self.max_at_once = max(self.max_at_once, self.at_once)
        await self.may_end.wait()
        self.at_once -= 1
        return self.becomes(incident)

    async def perform(self, incident: str, effect: str, taken: Owed | None = None) -> Performed:
        self.performed.append(effect)
        self.taken.append(taken)
        await self.may_end.wait()
        return Performed(self.again, is_news=self.is_news, version=self.version)

    def waker(self) -> Wake:
        def later(seconds: float, call: Callable[[], None]) -> None:
            self.later.append((seconds, call))

        return Wake(self.advance, self.perform, later=later, elapsed=lambda: self.time)

    def decides(self, *versions: int) -> None:
        """Each advance owes the card and takes it, in a later version of the run; the last one is repeated."""
        remaining = list(versions)

        def becomes(incident: str) -> Advanced:
            version = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            owed = Owed(incident, SHOW, 0, f"0|{version}|", builders.run(version=version), version=version)
            return Advanced((SHOW,), {"show": owed}, version)

        self.becomes = becomes

    @property
    def versions(self) -> list[int | None]:
        return [owed.version if owed else None for owed in self.taken]


async def begun() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_wake_during_an_advance_makes_it_run_once_more() -> None:
    work = Work()
    wake = work.waker()
    wake.incident("INC-1")
    await begun()
    for _ in range(3):
        wake.incident("INC-1")
    work.may_end.set()
    await wake.settled()
    assert work.advanced == ["INC-1", "INC-1"]


@pytest.mark.parametrize(
    ("version", "advances"),
    [
        pytest.param(2, 1, id="the commit has shown it already"),
        pytest.param(3, 2, id="it came after the commit"),
    ],
)
async def test_an_inbox_that_was_read_during_an_advance_is_read_no_second_time(version: int, advances: int) -> None:
    work = Work(becomes=lambda incident: Advanced(version=3))
    wake = work.waker()
    wake.incident("INC-1")
    await begun()
    read = Waiting(builders.run(version=version), (), 5.0)
    wake.incident("INC-1", read)
    work.may_end.set()
    await wake.settled()
    assert len(work.advanced) == advances
    assert work.waiting == (read if advances == 2 else None)


async def test_after_a_wake_without_an_inbox_it_is_read() -> None:
    work = Work(becomes=lambda incident: Advanced(version=3))
    wake = work.waker()
    wake.incident("INC-1")
    await begun()
    wake.incident("INC-1")
    wake.incident("INC-1", Waiting(builders.run(version=2), (), 5.0))
    work.may_end.set()
    await wake.settled()
    assert (len(work.advanced), work.waiting) == (2, None)


async def test_alerts_of_an_incident_that_was_just_advanced_wait_together() -> None:
    work = Work()
    work.may_end.set()
    wake = work.waker()
    wake.incident("INC-1", None, may_rest=True)
    await wake.settled()
    work.time += 0.1
    for _ in range(3):
        wake.incident("INC-1", None, may_rest=True)
    await wake.settled()
    assert work.advanced == ["INC-1"]
    ((seconds, call),) = work.later
    assert seconds == pytest.approx(REST_SECONDS - 0.1)
    wake.incident("INC-1")
    await wake.settled()
    assert work.advanced == ["INC-1", "INC-1"], "a press waits for nothing"
    call()
    await wake.settled()
    assert work.advanced == ["INC-1"] * 3
    work.time += MAX_REST_SECONDS
    wake.incident("INC-1", None, may_rest=True)
    await wake.settled()
    assert work.advanced == ["INC-1"] * 4


async def test_while_alerts_keep_coming_each_wait_is_longer_up_to_a_limit() -> None:
    work = Work()
    work.may_end.set()
    wake = work.waker()
    waits = []
    for _ in range(5):
        wake.incident("INC-1", None, may_rest=True)
        await wake.settled()
        waits.append(wake.rest_left("INC-1"))
        work.time += waits[-1] + 0.1
    assert waits == [REST_SECONDS, 2 * REST_SECONDS, *[MAX_REST_SECONDS] * 3]
    work.time += 2 * REST_SECONDS
    wake.incident("INC-1", None, may_rest=True)
    await wake.settled()
    assert wake.rest_left("INC-1") == REST_SECONDS, "they had ceased"


async def test_an_incident_that_was_not_advanced_lately_looks_at_its_alerts_at_once() -> None:
    work = Work()
    wake = work.waker()
    assert wake.rest_left("INC-1") == 0
    wake.incident("INC-1")
    await begun()
    assert wake.rest_left("INC-1") == REST_SECONDS, "it is being advanced"
    work.may_end.set()
    await wake.settled()
    work.time += REST_SECONDS + 0.1
    assert wake.rest_left("INC-1") == 0


async def test_alerts_that_come_during_an_advance_wait_for_the_next_one() -> None:
    work = Work()
    wake = work.waker()
    wake.incident("INC-1")
    await begun()
    wake.incident("INC-1", None, may_rest=True)
    work.may_end.set()
    await wake.settled()
    assert work.advanced == ["INC-1"]
    ((_, call),) = work.later
    call()
    await wake.settled()
    assert work.advanced == ["INC-1", "INC-1"]


async def test_only_so_many_advance_at_once_and_each_of_them_does() -> None:
    work = Work()
    wake = work.waker()
    for number in range(3 * AT_ONCE):
        wake.incident(f"INC-{number}")
    await begun()
    work.may_end.set()
    await wake.settled()
    assert work.max_at_once == AT_ONCE
    assert len(set(work.advanced)) == 3 * AT_ONCE


async def test_what_becomes_owed_is_performed_at_once_and_a_deadline_gets_one_timer() -> None:
    work = Work()
    work.may_end.set()
    wake = work.waker()
    work.becomes = lambda incident: Advanced((SHOW,) if not work.performed else (), wake_after=7.0)
    wake.incident("INC-1")
    await wake.settled()
    assert work.performed == ["show"]
    assert work.advanced == ["INC-1", "INC-1"], "its outcome may be in the inbox"
    ((seconds, call),) = work.later
    assert seconds == 7.0
    call()
    await wake.settled()
    assert len(work.advanced) == 3
    assert len(work.later) == 2, "the next deadline gets the next timer"


async def test_an_effect_without_an_outcome_wakes_nobody() -> None:
    work = Work(is_news=False)
    work.may_end.set()
    wake = work.waker()
    wake.effect("INC-1", "show", "cards")
    await wake.settled()
    assert (work.performed, work.advanced) == (["show"], [])


async def test_a_deadline_in_hours_is_left_to_the_index_in_the_storage() -> None:
    work = Work(becomes=lambda incident: Advanced(wake_after=7200.0))
    work.may_end.set()
    wake = work.waker()
    wake.incident("INC-1")
    await wake.settled()
    assert work.later == []


async def test_an_effect_that_is_being_performed_is_not_begun_beside_it() -> None:
    work = Work()
    wake = work.waker()
    wake.effect("INC-1", "show", "cards")
    await begun()
    wake.effect("INC-1", "show", "cards")
    work.may_end.set()
    await wake.settled()
    assert work.performed == ["show"]


@pytest.mark.parametrize(
    ("seconds", "taken"),
    [
        pytest.param(FRESH_SECONDS, 1, id="at once"),
        pytest.param(FRESH_SECONDS + 0.1, None, id="after a while: its process may have been frozen"),
    ],
)
async def test_an_effect_that_came_with_its_lease_is_begun_with_it(seconds: float, taken: int | None) -> None:
    work = Work(is_news=False)
    work.decides(1)
    wake = work.waker()
    with wake.priority.urgent():
        wake.effect("INC-9", "other", "cards")
        wake.incident("INC-1")
        await begun()
        work.time += seconds
        work.may_end.set()
        await wake.settled()
    assert work.versions == [None, taken]


async def test_a_lease_of_an_earlier_decision_is_not_used() -> None:
    work = Work(is_news=False)
    work.decides(1)

    async def advance(incident: str, waiting: Waiting | None) -> Advanced:
        return work.becomes(incident)

    wake = Wake(advance, work.perform)
    with wake.priority.urgent():
        wake.effect("INC-9", "other", "cards")
        wake.incident("INC-1")
        await begun()
        work.becomes = lambda incident: Advanced(version=2)
        wake.incident("INC-1")
        await begun()
        work.may_end.set()
        await wake.settled()
    assert (work.performed, work.versions) == (["other", "show"], [None, None])


async def test_a_lease_that_its_effect_may_have_given_back_is_not_used() -> None:
    """The card is being shown while it is owed again: what ends afterwards may end that lease too."""
    work = Work(is_news=False)
    wake = work.waker()
    wake.effect("INC-1", "show", "cards")
    await begun()
    work.decides(2)
    wake.incident("INC-1")
    await begun()
    work.version, work.again = 1, 0.0
    work.may_end.set()
    await begun()
    work.version, work.again = 2, None
    await wake.settled()
    assert set(work.versions) == {None}
    assert len(work.performed) >= 2


async def test_a_lease_that_is_newer_than_what_its_effect_gave_back_is_used() -> None:
    """The card is shown and settled while the incident is advanced, and only then owed again."""
    work, shown = Work(is_news=False), asyncio.Event()
    work.decides(2)
    taken: list[Owed | None] = []

    async def perform(incident: str, effect: str, owed: Owed | None = None) -> Performed:
        taken.append(owed)
        await shown.wait()
        return Performed(version=len(taken))

    wake = Wake(work.advance, perform)
    wake.effect("INC-1", "show", "cards")
    wake.incident("INC-1")
    await begun()
    shown.set()
    await begun()
    work.may_end.set()
    await wake.settled()
    assert [owed.version if owed else None for owed in taken] == [None, 2]


async def test_what_is_owed_again_right_after_its_end_does_not_wait_for_its_lease_to_lapse() -> None:
    work = Work(is_news=False, version=1)
    work.decides(2)
    shown = asyncio.Event()

    async def perform(incident: str, effect: str, taken: Owed | None = None) -> Performed:
        work.performed.append(effect)
        if len(work.performed) == 1:
            await shown.wait()
        return Performed(version=len(work.performed))

    work.may_end.set()
    wake = Wake(work.advance, perform)
    wake.effect("INC-1", "show", "cards")
    await begun()
    wake.incident("INC-1")
    await begun()
    shown.set()
    await wake.settled()
    assert work.performed == ["show", "show"], "the second time for the second version, and not a third time"


async def test_what_is_owed_again_does_not_wait_for_the_rest_of_what_was_shown() -> None:
    """Only progress had changed, which may wait for ten seconds; then the incident asks a question."""
    work, shown = Work(is_news=False), asyncio.Event()
    work.decides(2)

    async def perform(incident: str, effect: str, taken: Owed | None = None) -> Performed:
        work.performed.append(effect)
        if len(work.performed) == 1:
            await shown.wait()
            return Performed(10.0, version=1)
        return Performed(version=2)

    work.may_end.set()
    wake = Wake(work.advance, perform)
    wake.effect("INC-1", "show", "cards")
    await begun()
    wake.incident("INC-1")
    await begun()
    shown.set()
    await wake.settled()
    assert work.performed == ["show", "show"]


async def test_what_is_owed_again_at_its_end_begins_with_what_was_taken() -> None:
    again = Owed("INC-1", SHOW, 0, "0|2|", builders.run(version=2), version=2)
    taken: list[Owed | None] = []

    async def perform(incident: str, effect: str, owed: Owed | None = None) -> Performed:
        taken.append(owed)
        return Performed(0.0, again=again) if len(taken) == 1 else Performed()

    wake = Wake(Work().advance, perform)
    wake.effect("INC-1", "show", "cards")
    await wake.settled()
    assert taken == [None, again]


async def test_an_effect_that_is_not_over_comes_back_when_it_says() -> None:
    work = Work(again=5.0)
    work.may_end.set()
    wake = work.waker()
    wake.effect("INC-1", "show", "cards")
    await wake.settled()
    ((seconds, call),) = work.later
    assert seconds == 5.0
    call()
    await wake.settled()
    assert work.performed == ["show", "show"]


@pytest.mark.parametrize("error", [StorageUnavailableError("away"), KeyError("ours")])
async def test_a_failure_leaves_the_incident_free_to_be_woken_again(error: Exception) -> None:
    work = Work()
    work.may_end.set()

    def fails(incident: str) -> Advanced:
        raise error

    work.becomes = fails
    wake = work.waker()
    wake.incident("INC-1")
    await wake.settled()
    wake.incident("INC-1")
    await wake.settled()
    assert work.advanced == ["INC-1", "INC-1"]


async def test_who_stops_takes_on_nothing_new_and_drops_what_runs() -> None:
    work = Work()
    wake = work.waker()
    wake.incident("INC-1")
    await begun()
    await wake.stop()
    wake.incident("INC-2")
    wake.effect("INC-2", "show", "cards")
    await wake.settled()
    assert (work.advanced, work.performed) == (["INC-1"], [])


async def test_the_card_of_a_new_incident_goes_before_the_readings_and_messages_of_others() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    with wake.priority.urgent():
        for number in range(3):
            wake.effect(f"INC-{number}", f"read-{number}", "reads")
            wake.effect(f"INC-{number}", f"show-{number}", "cards")
        await begun()
        assert sorted(work.performed) == ["read-0", "show-0"], "slowed, not stopped"
        wake.effect("INC-9", "judge", "people")
        wake.effect("INC-9", "apply", "waits")
        wake.effect("INC-9", "card", "cards", is_first=True)
        await begun()
        assert sorted(work.performed[2:]) == ["apply", "card", "judge"]
    work.may_end.set()
    await wake.settled()
    assert len(work.performed) == 9, "nothing is urgent any more"


async def test_the_first_readings_of_an_incident_follow_its_card() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    lanes: dict[str, Lane] = {"watch": "waits", "read": "reads", SHOW.effect_id: "cards", "page": "pages"}
    for effect, lane in lanes.items():
        wake.effect("INC-1", effect, lane, is_first=True)
    await begun()
    assert work.performed == [SHOW.effect_id, "page"], "people are called at once"
    work.may_end.set()
    await wake.settled()
    assert sorted(work.performed[2:]) == ["read", "watch"]


async def test_the_first_readings_do_not_wait_long_for_a_card() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    wake.effect("INC-1", SHOW.effect_id, "cards", is_first=True)
    wake.effect("INC-1", "watch", "waits", is_first=True)
    await begun()
    assert work.performed == [SHOW.effect_id], "it is being posted"
    ((seconds, call),) = work.later
    assert seconds == HEAD_START_SECONDS
    call()
    await begun()
    assert work.performed == [SHOW.effect_id, "watch"]
    work.may_end.set()
    await wake.settled()


async def test_later_readings_do_not_wait_for_the_card() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    wake.effect("INC-1", SHOW.effect_id, "cards")
    wake.effect("INC-1", "watch", "waits")
    await begun()
    assert work.performed == [SHOW.effect_id, "watch"]
    work.may_end.set()
    await wake.settled()


async def test_what_waited_behind_urgent_work_and_was_dropped_leaves_its_room() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    with wake.priority.urgent():
        for number in range(3):
            wake.effect(f"INC-{number}", f"read-{number}", "reads")
        await begun()
        await wake.stop()
    other = work.waker()
    other.priority = wake.priority
    with other.priority.urgent():
        other.effect("INC-5", "read-5", "reads")
        await begun()
        assert work.performed == ["read-0", "read-5"]
    work.may_end.set()
    await other.settled()


async def test_the_answers_that_people_wait_for_go_before_the_work_of_earlier_presses() -> None:
    work = Work(is_news=False)
    wake = work.waker()
    with wake.answering():
        for number in range(3):
            wake.incident(f"INC-{number}")
            wake.effect(f"INC-{number}", f"judge-{number}", "people")
        wake.effect("INC-9", "apply", "waits")
        await begun()
        assert (work.advanced, work.performed) == (["INC-0"], ["judge-0", "apply"]), "slowed, not stopped"
    await begun()
    assert work.advanced == ["INC-0"], "the next press of a flood may be on its way"
    [(_, is_answered)] = work.later
    is_answered()
    await begun()
    assert (len(work.advanced), len(work.performed)) == (3, 4)
    work.may_end.set()
    await wake.settled()


async def test_a_lone_press_is_processed_at_once() -> None:
    work = Work()
    wake = work.waker()
    with wake.answering():
        wake.incident("INC-1")
    await begun()
    assert work.advanced == ["INC-1"]
    work.may_end.set()
    await wake.settled()
