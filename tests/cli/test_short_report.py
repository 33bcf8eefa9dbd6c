"""The report of the unattended demo fits a terminal, and its key facts are not cut off."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bot.cli.short_report import short_report
from bot.domain.reports import Report, report_of
from tests.domain.reports.test_report import fixed

pytestmark = pytest.mark.fast

LONG = "calm: thrash 0.02 (limit 0.1) held for 10 s over four replicas; latency: ttft p95 1.9 s, was 0.4 s; " * 3


def shown(report: Report) -> list[str]:
    page = io.StringIO()
    Console(file=page, width=100, color_system=None).print(short_report(report))
    return page.getvalue().splitlines()


def with_long_texts(report: Report) -> Report:
    phases = tuple(it.model_copy(update={"name": LONG}) for it in report.phases)
    calls = tuple(it.model_copy(update={"text": LONG}) for it in report.calls)
    return report.model_copy(update={"phases": phases, "calls": calls})


def test_it_fits_one_screen_of_a_hundred_columns_and_begins_with_what_happened() -> None:
    lines = shown(report_of(fixed().timeline))
    assert len(lines) <= 32
    assert any(line.startswith("What happened") for line in lines)
    assert max(map(len, shown(with_long_texts(report_of(fixed().timeline))))) <= 100


def test_text_from_outside_is_shown_as_it_is() -> None:
    report = report_of(fixed().timeline).model_copy(update={"title": "[red]not markup[/red]"})
    assert any("[red]not markup[/red]" in line for line in shown(report))
