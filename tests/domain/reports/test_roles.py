"""A report without names: the same person has the same role everywhere, and nobody's id or name is left."""

from __future__ import annotations

import json

import pytest

from bot.adapters.charts import drawn
from bot.domain.reports import Report, Roles, as_json, html, markdown
from tests.domain.reports.test_report import fixed

pytestmark = pytest.mark.fast


def test_no_name_and_no_id_is_left_in_any_format() -> None:
    timeline = fixed().timeline
    roles = Roles(timeline)
    people = Report.of(timeline).people
    assert people == {"ana": "Ana"}
    pages = [
        markdown(timeline, roles=roles),
        as_json(timeline, roles=roles),
        html(timeline, lambda chart: drawn(chart, "svg"), roles=roles),
    ]
    for page in pages:
        assert "approver 1" in page
        assert not [name for name in ("Ana", "`ana`", '"ana"', "<@ana>") if name in page]


def test_the_chain_is_checked_before_names_are_replaced() -> None:
    timeline = fixed().timeline
    shown = json.loads(as_json(timeline, roles=Roles(timeline)))
    assert shown["report"]["broken_at"] is None


def test_a_timeline_without_people_stays_as_it_is() -> None:
    timeline = fixed().timeline[:1]
    assert markdown(timeline, roles=Roles(timeline)) == markdown(timeline)
