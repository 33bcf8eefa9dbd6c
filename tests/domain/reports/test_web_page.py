"""The report as one HTML file: self-contained, and external input is only ever text in it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.adapters.pictures.charts import drawn
from bot.domain.incidents.series import Series
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.domain.reports import html
from bot.domain.reports.chart import Chart
from tests.domain.reports.charted import fixed, thrash_line, usage_line

pytestmark = pytest.mark.fast

TAGS = frozenset(
    [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "p",
        "div",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "svg",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "strong",
        "br",
    ]
)
FETCHING = ("src", "href", "action", "data", "poster", "background")


class Read(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def as_svg(chart: Chart) -> bytes:
    return drawn(chart, "svg")


def no_picture(chart: Chart) -> bytes:
    return b"<?xml version='1.0'?><svg></svg>"


def test_the_page_has_the_chart_in_it_with_its_decisions_and_fetches_nothing() -> None:
    page = html(fixed(thrash_line(), usage_line()), as_svg)
    read = Read(page)
    text = " ".join(read.words)
    assert read.tags.count("svg") == 1
    assert "thrash 0.1" in text
    assert "Cap the running sequences (Ana)" in text
    assert "<?xml" not in page
    assert "script" not in read.tags
    fetched = [value for name, value in read.attributes if name.rpartition(":")[2] in FETCHING]
    assert all(value.startswith("#") for value in fetched)


def test_the_page_says_what_the_markdown_says() -> None:
    text = " ".join(Read(html(fixed(thrash_line()), no_picture)).words)
    for words in ("What people decided", "64 → 6", "no exporter answers", "Everything, in order"):
        assert words in text


def test_a_step_of_the_runbook_is_a_link_in_the_path() -> None:
    step = {"step": "3 <Cap>", "url": "https://wiki/kv?a=1&b=2"}
    entry = Entry(kind="entered", at=0.0, state="cap", text="Cap", data={"kind": "change", "runbook": step})
    page = html(chain([entry], head=GENESIS, length=0), no_picture)
    assert '<a href="https://wiki/kv?a=1&amp;b=2" rel="noreferrer">3 &lt;Cap&gt;</a>' in page


def test_a_timeline_without_lines_is_a_page_without_a_picture() -> None:
    read = Read(html([], no_picture))
    assert "svg" not in read.tags
    assert "Incident" in read.words


def test_a_broken_chain_is_reported() -> None:
    entries = list(fixed())
    forged = entries[3].entry.model_copy(update={"text": "nothing happened"})
    entries[3] = entries[3].model_copy(update={"entry": forged})
    assert "<strong>The chain is broken at entry 4.</strong>" in html(entries, no_picture)


NASTY = st.text() | st.text(alphabet="<>&\"'/!-= \n\u202eabscript", max_size=40)


@settings(max_examples=40, deadline=None)
@given(text=NASTY, title=NASTY)
def test_nothing_from_outside_becomes_markup(text: str, title: str) -> None:
    read: Any = Read(html(fixed(text=text, title=title), no_picture))
    plain: Any = Read(html(fixed(text="plain", title="plain"), no_picture))
    assert set(read.tags) <= TAGS
    assert read.tags == plain.tags
    assert {*read.attributes} - {("class", "none")} == {*plain.attributes} - {("class", "none")}


def test_a_line_that_could_not_be_read_for_the_export_is_named_below_the_picture() -> None:
    unread = Series(signal="thrash", unknown="prometheus did not answer <b>")
    page = html(fixed(thrash_line()), lambda chart: drawn(chart, "svg"), [unread])
    assert "<figcaption>thrash: the history could not be read (prometheus did not answer &lt;b&gt;)" in page


def test_the_chart_is_read_aloud_as_its_numbers() -> None:
    page = html(fixed(thrash_line(), usage_line()), as_svg)
    assert '<div role="img" aria-label="Chart: thrash 2.81 → 0.0004; kv usage 99.1% → 63.4%">' in page


def test_a_line_that_could_not_be_read_is_named_as_people_read_it() -> None:
    unread = Series(signal="thrash", label="Preemptions", unknown="no answer")
    page = html(fixed(thrash_line()), as_svg, [unread])
    assert "Preemptions: the history could not be read (no answer)" in page


def test_the_appendix_is_folded_on_the_live_page_and_open_in_the_file() -> None:
    entries = fixed(usage_line())
    assert '<details class="appendix">' in html(entries, no_picture, live="Needs an answer")
    assert "<details" not in html(entries, no_picture)


def test_the_end_of_an_incident_has_no_date_where_it_is_the_same_day() -> None:
    assert "The incident lasted from 2026-11-18 11:06:40 to 11:29:42 UTC" in html(fixed(usage_line()), no_picture)
