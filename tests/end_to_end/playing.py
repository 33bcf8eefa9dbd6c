"""One scenario of the demo world from its opening to its end, with the scripted people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock

import pytest

from bot.cli.demo import is_verified
from bot.domain.changes.plan import Plan
from bot.domain.kernel.timeline import Chained
from bot.sandbox import demo
from bot.sandbox.approver import Approver
from bot.sandbox.scenarios import Scenario
from tests.end_to_end.measured import MAX_BUTTONS, Measured, measured
from tests.end_to_end.stage import Stage
from tests.waiting import until

WITHIN = 600.0
MARKS = [pytest.mark.end_to_end, pytest.mark.timeout(WITHIN + 180)]
"""What is late fails in `play`, with what was seen last, and not by the limit of the test."""
LOOK_EVERY = 1.0
"""All worlds of a group share two cores with those of other groups."""
STARTS = Lock()
"""One world of a group starts at a time: that is when it needs a whole core."""
Branch = tuple[Scenario, Sequence[str]]
"""A scenario, and the states that it has to come through, in this order."""


@dataclass(frozen=True)
class Played:
    ending: str
    is_verified: bool
    """It ended as the scenario says, and the watch that it names held."""
    path: Sequence[str]
    plans: Sequence[Plan]
    """Of every request, in order."""
    description: str
    actions: Sequence[str]
    """What the scripted people did."""
    seen: Measured
    timeline: Sequence[Chained]


def play(
    scenario: Scenario, *, within: float = WITHIN, is_whole: Callable[[Measured], bool] = lambda seen: True
) -> Played:
    """Fail when it is not closed `within` seconds after the trouble began. `is_whole`: whether Slack has everything."""
    actions: list[str] = []
    with ExitStack() as running:
        with STARTS:
            world = running.enter_context(demo.world(scenario=scenario))
        stage = running.enter_context(closing(Stage(world, actions)))
        approver = Approver(
            world.slack_url, demo.CHANNEL, scenario.answers, actions.append, scenario.filled, world.commit
        )
        world.prepare(scenario)
        seconds = scenario.healthy_seconds
        until(lambda: stage.has_history_of(seconds), "the time before the trouble is sampled", 60, every=LOOK_EVERY)
        world.cause_trouble(scenario)
        if scenario.alert:
            seconds += scenario.alert_after_seconds
            until(lambda: stage.has_history_of(seconds), "the trouble lasted", 60, every=LOOK_EVERY)
            world.raise_alert(scenario.alert)
        if scenario.opened_by:
            approver.command(scenario.opened_by)

        def closed() -> object:
            approver.look()
            return stage.closed_run()

        until(closed, f"'{scenario.name}' is closed", within, seen=stage.describe, every=LOOK_EVERY)
        run = stage.closed_run()
        assert run is not None
        path = [entry.state for entry in stage.entries("entered")]
        plans = [request.plan for request in run.requests.values()]
        seen = until(lambda: _whole(world.slack_url, is_whole), "Slack shows everything", 30, every=LOOK_EVERY)
        timeline = stage.timeline()
        return Played(
            run.ending, is_verified(run, timeline, scenario), path, plans, stage.describe(), actions, seen, timeline
        )


def _whole(slack_url: str, is_whole: Callable[[Measured], bool]) -> Measured | None:
    seen = measured(slack_url, demo.CHANNEL)
    return seen if is_whole(seen) else None


def must_end_as_written(branches: Sequence[Branch]) -> None:
    """All at once: worlds mostly wait, so two take hardly longer than one."""
    with ThreadPoolExecutor(len(branches)) as worlds:
        all_played = list(worlds.map(lambda branch: play(branch[0]), branches))
    unreadable = [
        f"{scenario.name}: {played.seen.max_buttons} buttons on a message, and {sorted(played.seen.snake_case)}"
        for (scenario, _), played in zip(branches, all_played, strict=True)
        if played.seen.snake_case or played.seen.max_buttons > MAX_BUTTONS
    ]
    assert unreadable == [], unreadable
    wrong = [
        f"{scenario.name} ended {played.ending}, verified: {played.is_verified}, by {played.path}\n{played.description}"
        f"\n{_choices(played)}"
        for (scenario, wanted), played in zip(branches, all_played, strict=True)
        if not played.is_verified or _not_come_through(played.path, wanted)
    ]
    assert not wrong, "\n\n".join(wrong)


def _choices(played: Played) -> str:
    """What was read before each recommendation, which shows why another option was taken than expected."""
    shown: list[str] = []
    for state, following in pairwise(played.path):
        if following.startswith(f"{state}_"):
            read = [
                item.entry.data for item in played.timeline if (item.entry.kind, item.entry.state) == ("read", state)
            ]
            seen = [
                f"{name}: {reading.get('unknown') or reading.get('detail') or reading.get('value')}"
                for readings in read
                for name, reading in readings.items()
            ]
            shown.append(f"{state} -> {following}: {'; '.join(seen)}")
    return "\n".join(shown)


def _not_come_through(path: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The wanted states from the first one on that does not come after those before it."""
    left = list(wanted)
    for state in path:
        if left and state == left[0]:
            left.pop(0)
    return left
