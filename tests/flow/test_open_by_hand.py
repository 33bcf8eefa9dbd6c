"""Incidents that people open: one for each target, once for each form that is sent in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.event import OpenedByHand
from bot.domain.kernel.errors import OpeningError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.library import Library
from bot.flow.open_by_hand import OpenByHand, Opening
from tests import builders
from tests.fakes.restrictions import restrictions

DRILL = (Path(__file__).parent / "drill.yaml").read_text(encoding="utf-8")
FORM = "opens: by_hand\nform: {gain: {label: Gain, kind: number, max: 9}}\n"
HAND = load_text(DRILL.replace("start:", FORM + "start:", 1).replace("playbook: drill", "playbook: hand"))
TARGET = Target(cluster="test", namespace="llm", kind="Deployment", name="llm")


def opening(submission: str = "1", **more: Any) -> Opening:
    fields: dict[str, Any] = {"playbook": "hand", "target": TARGET, "user": "eve", "fields": {"gain": "2"}}
    return Opening(**{"submission_id": submission, **fields, **more})


class Bench:
    def __init__(self, redis: Connection) -> None:
        self.store = RedisStore(redis, owner="one")
        self.woken: list[str] = []
        library = Library({"hand": HAND, "drill": load_text(DRILL)})
        self.open = OpenByHand(self.store, library, restrictions(), wake=self.woken.append)


@pytest.fixture
def bench(redis: Connection) -> Bench:
    return Bench(redis)


async def test_an_incident_is_opened_with_its_form_and_its_bundle(bench: Bench) -> None:
    opened = await bench.open(opening())
    assert (opened.incident_id, opened.is_new, bench.woken) == ("INC-1", True, ["INC-1"])
    run = await bench.store.load("INC-1")
    assert run is not None
    assert (run.playbook, run.visit.number, run.target) == ("hand", 0, TARGET)
    assert await bench.store.bundle(run.digest) == Bundle.of(HAND).stored()
    (event,) = await bench.store.inbox("INC-1")
    assert isinstance(event, OpenedByHand)
    assert (event.user, event.fields) == ("eve", {"gain": 2.0})


async def test_a_playbook_that_alerts_open_is_opened_by_hand_too(bench: Bench) -> None:
    opened = await bench.open(opening(playbook="drill", fields={}, seen="answers are slow"))
    assert opened.is_new
    (event,) = await bench.store.inbox("INC-1")
    assert isinstance(event, OpenedByHand)
    assert event.seen == "answers are slow"


async def test_a_target_with_an_open_incident_gets_no_second_one(bench: Bench) -> None:
    await bench.open(opening("1"))
    again = await bench.open(opening("2"))
    assert (again.incident_id, again.is_new) == ("INC-1", False)
    assert await bench.store.open_incidents() == ["INC-1"]


async def test_a_form_that_is_sent_in_twice_counts_once(bench: Bench) -> None:
    first = await bench.open(opening("1"))
    run = await bench.store.load(first.incident_id)
    assert run is not None
    again = run.with_(incident_id="INC-9", target=run.target.model_copy(update={"name": "other"}))
    event = OpenedByHand(event_id="opened/1", user="eve")
    assert await bench.store.open(again, event, bundle=builders.bundle(), submission_id="1") == "INC-1"
    assert await bench.store.load("INC-9") is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param({"fields": {"gain": "10"}}, "Gain: at most 9", id="form"),
        pytest.param({"playbook": "nothing"}, "there is no playbook 'nothing'", id="unknown"),
    ],
)
async def test_what_cannot_be_opened_says_why_and_stores_nothing(bench: Bench, more: dict[str, Any], says: str) -> None:
    with pytest.raises(OpeningError, match=says):
        await bench.open(opening(**more))
    assert await bench.store.open_incidents() == []
