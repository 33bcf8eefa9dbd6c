"""The drawn chart: as wide as Slack shows, with all its texts, reproducible bytes, and no line across a gap."""

from __future__ import annotations

import re
import struct
from concurrent.futures import ThreadPoolExecutor
from html import unescape

import pytest

from bot.adapters.pictures.charts import SHARPNESS, WIDTH, drawn
from bot.domain.reports.chart import Chart, chart_of
from tests.domain.reports.charted import fixed, thrash_line, usage_line

pytestmark = pytest.mark.fast


def chart(**words: str) -> Chart:
    found = chart_of(fixed(thrash_line(), usage_line(), **words))
    assert found is not None
    return found


def texts_of(svg: bytes) -> set[str]:
    return {unescape(text) for text in re.findall(r">([^<>]+)</text>", svg.decode())}


def test_a_png_has_the_width_that_slack_shows_twice_as_sharp() -> None:
    content = drawn(chart(), "png")
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">I", content[16:20]) == (WIDTH * SHARPNESS,)


def test_units_limits_and_decisions_stand_as_text() -> None:
    texts = texts_of(drawn(chart(), "svg"))
    assert {
        "thrash (per finished)",
        "– – recovered 0.01, thrash 0.1",
        "– – limit 90%",
        "2.81 → 0.0004",
        "UTC",
    } <= texts
    assert {mark.text for mark in chart().marks} <= texts


def test_a_unit_that_a_title_begins_with_is_not_repeated() -> None:
    panel = chart().panels[0].model_copy(update={"title": "Requests waiting", "unit": "requests"})
    assert "Requests waiting" in texts_of(drawn(chart().model_copy(update={"panels": (panel,)}), "svg"))


def test_a_long_name_of_a_workload_ends_before_the_word_on_gaps() -> None:
    """A cluster, a namespace and a name of 63 characters are wider than the picture."""
    target = "serving-production-eu/" + "W" * 63
    shown = texts_of(drawn(chart().model_copy(update={"target": target}), "svg"))
    assert "grey: not known" in shown
    (cut,) = [text for text in shown if text.startswith("serving-production-eu/")]
    widest_letter = 8.7  # points, of a W
    assert cut.endswith("…")
    assert 22 * 5 + cut.count("W") * widest_letter < 372


def test_the_limits_begin_where_the_title_ends() -> None:
    drawn_as = drawn(chart(), "svg").decode()
    places = {unescape(text): float(x) for x, text in re.findall(r'<text[^>]* x="([\d.]+)"[^>]*>([^<]+)<', drawn_as)}
    a_letter = 4.5  # points, at least
    heads = {"kv usage": "– – limit 90%", "thrash (per finished)": "– – recovered 0.01, thrash 0.1"}
    for title, limits in heads.items():
        assert places[limits] > places[title] + a_letter * len(title)


def test_the_same_chart_is_the_same_bytes() -> None:
    assert drawn(chart(), "svg") == drawn(chart(), "svg")
    assert drawn(chart(), "png") == drawn(chart(), "png")


def test_the_same_chart_is_the_same_bytes_in_several_threads() -> None:
    with ThreadPoolExecutor(3) as threads:
        found = set(threads.map(lambda _: drawn(chart(), "svg"), range(6)))
    assert found == {drawn(chart(), "svg")}


def test_text_from_outside_is_drawn_as_it_is() -> None:
    svg = drawn(chart(title="$x_{2}$ <script>alert(1)</script> & 修"), "svg")
    assert b"<script" not in svg
    assert any("$x_{2}$ <script>alert(1)</script> & ?" in text for text in texts_of(svg))


def test_a_point_alone_and_one_moment_alone_are_drawn() -> None:
    panel = chart().panels[0]
    alone = panel.model_copy(update={"points": panel.points[:1], "limits": ()})
    moment = chart().model_copy(update={"panels": (alone,), "begins_at": 5.0, "ends_at": 5.0, "marks": ()})
    assert drawn(moment, "png").startswith(b"\x89PNG")
