"""The picture of a run's path: drawn from the playbook that the run keeps, and posted in its thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.effect import DrawPath
from bot.domain.incidents.run import Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.picture.picture import Picture
from bot.flow.handlers.draw_path import DrawPathHandler, path_picture
from bot.flow.perform_effect import EffectContext
from bot.flow.ports.people import Displayed, Draw
from bot.flow.ports.storage import Owed
from tests.adapters.slack.runs import BEGAN, run
from tests.domain.incidents.machine.steps import PLAYBOOK, TEXT

pytestmark = pytest.mark.fast

FRAGMENT = """
language: 1
fragment: calm_down
summary: Waits.
exits: {calm: it is calm, busy: it is not}
start: wait
states:
  wait: {watch: {calm: usage < 0.5}, for: 10s, within: 60s, held: exits.calm, not_held: ask}
  ask: {ask: Go on?, choices: {go_on: {label: Go on, to: exits.busy}}}
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
"""
WITH_FRAGMENT = TEXT.replace(
    "  left: {end", "  rest: {include: calm_down, exits: {calm: calm, busy: left}}\n  left: {end"
).replace("{label: Stop, to: calm}", "{label: Stop, to: rest}")


class Uploads:
    """The part of a messenger that takes files."""

    def __init__(self) -> None:
        self.files: list[tuple[str, bytes, str]] = []

    async def upload(self, run: Run, *, key: str, name: str, content: Draw, comment: str) -> None:
        self.files.append((name, await content(), comment))

    async def illustrate(self, run: Run, slot: str, *, name: str, draw: Draw, caption: str) -> None:
        raise AssertionError("the path is a file of its own")

    async def show(self, run: Run, shown: Mapping[str, str] | None = None) -> Displayed:
        return Displayed()

    async def want_card(self, incident_id: str) -> None:
        raise AssertionError("nobody looks for a card")

    def ask_again(self) -> None:
        raise AssertionError("nothing was refused")

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        raise AssertionError("nothing is announced")

    async def notify(self, user: str, channel: str, text: str, *, response_url: str) -> None:
        raise AssertionError("nobody is told anything")


async def test_the_picture_comes_into_the_thread_with_the_path_in_it() -> None:
    uploads, drawn = Uploads(), list[Picture]()

    def draw(picture: Picture) -> bytes:
        drawn.append(picture)
        return b"png"

    async def playbook_of(run: Run) -> CompiledPlaybook:
        return PLAYBOOK

    standing = run(state="grow", path=("look", "choose", "grow"))
    effect = DrawPath(effect_id="draw/1")
    context = EffectContext(standing, Owed("INC-7", effect, 1, "t"), BEGAN)
    await DrawPathHandler(uploads, playbook_of, draw)(context, effect)
    [(name, content, comment)] = uploads.files
    assert (name, content) == ("INC-7-path.png", b"png")
    assert "now at: grow" in comment
    assert [row.name for row in drawn[0].rows if row.is_visited] == ["look", "choose", "grow"]
    assert [row.name for row in drawn[0].rows if row.is_current] == ["grow"]


def test_a_fragment_is_one_row_and_current_while_the_run_is_in_it() -> None:
    compiled = load_text(WITH_FRAGMENT, fragments={"calm_down": FRAGMENT})
    inside = run(state="rest_wait", path=("look", "choose", "rest_wait"))
    rows = {row.name: row for row in path_picture(inside, compiled).rows}
    assert "rest_wait" not in rows
    assert rows["rest"].is_current
