"""Incidents share lists of the cluster only until they change something, and never for a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from bot.domain.incidents.run import ActiveChange, Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.signals.signal import Reading
from bot.flow.handlers.read import ReadHandler
from bot.flow.ports.readings import ReadContext, Signals
from tests import builders
from tests.flow.scenes import drill_playbook

pytestmark = pytest.mark.fast
DONE = builders.ledger_entry(state="shrink", title="scale")


class Asked:
    """`Signals` that have no readings, and the contexts that were given."""

    def __init__(self) -> None:
        self.shared: list[bool] = []

    async def read(self, wanted: Mapping[str, Any], context: ReadContext) -> Mapping[str, Reading]:
        self.shared.append(context.shares_lists)
        return {}


async def the_drill(run: Run) -> CompiledPlaybook:
    return drill_playbook()


@pytest.mark.parametrize(
    ("run", "for_change", "shared"),
    [
        pytest.param(builders.run(), False, True, id="it changed nothing"),
        pytest.param(builders.run(), True, False, id="it is about to"),
        pytest.param(builders.run(change=ActiveChange(state="shrink", verb="scale")), False, False, id="it does so"),
        pytest.param(builders.run(ledger=(DONE,)), False, False, id="it has done so"),
    ],
)
async def test_lists_are_shared_only_where_no_change_depends_on_them(run: Run, for_change: bool, shared: bool) -> None:
    asked = Asked()
    read = ReadHandler(cast(Signals, asked), the_drill)
    await read.readings(run, drill_playbook().playbook.start, for_change=for_change)
    assert asked.shared == [shared]
