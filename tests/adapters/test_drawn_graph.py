"""The drawn picture: as wide as Slack shows, with all texts, and the same bytes for the same playbook."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from bot.adapters.pictures.drawn_graph import WIDTH_PIXELS, drawn, figure_of
from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.picture.overview import overview
from bot.domain.playbooks.picture.picture import Picture, picture

SMALL = load_playbook(Path(__file__).parents[1] / "domain" / "playbooks" / "small.yaml").playbook
PACKAGED = sorted(path.stem for path in packaged_playbooks().glob("*.yaml") if not path.name.endswith(".test.yaml"))
PICTURE = picture(SMALL, path=("look", "cap"), current="cap")


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_png_has_the_width_that_slack_opens_a_file_with() -> None:
    width, height = size_of(drawn(PICTURE, "png"))
    assert width == WIDTH_PIXELS
    assert height == pytest.approx(PICTURE.height * WIDTH_PIXELS / PICTURE.sizes.width, abs=4)


def test_the_biggest_playbook_is_little_more_than_twice_as_high_as_wide() -> None:
    width, height = size_of(drawn(overview(load_playbook(packaged_playbooks() / "kv-cache-oom.yaml")), "png"))
    assert height < 2.25 * width


def texts_of(svg: bytes) -> set[str]:
    return {unescape(text) for text in re.findall(r">([^<>]+)</text>", svg.decode())}


def test_an_svg_holds_every_title_and_exit_as_text() -> None:
    texts = texts_of(drawn(PICTURE, "svg"))
    for row in PICTURE.rows:
        assert row.title in texts
        assert {each.label for each in row.exits} <= texts


def pictures_of(playbook: CompiledPlaybook) -> Iterator[Picture]:
    """All that is drawn of it; once as if a run had taken every way, which is drawn bold."""
    states = list(playbook.playbook.states)
    yield from (overview(playbook), overview(playbook, path=states, current=states[-1]))
    whole = picture(playbook.playbook)
    bold = [replace(row, exits=tuple(replace(each, is_taken=True) for each in row.exits)) for row in whole.rows]
    yield replace(whole, rows=tuple(bold))


@pytest.mark.parametrize("name", PACKAGED)
def test_no_text_of_a_packaged_playbook_leaves_its_box_or_meets_another(name: str) -> None:
    for made in pictures_of(load_playbook(packaged_playbooks() / f"{name}.yaml")):
        figure = figure_of(made)
        renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call] # matplotlib has no types here
        ends: dict[float, float] = {}
        # Those of one line stand from left to right.
        for text in sorted(figure.axes[0].texts[1:], key=lambda each: each.get_window_extent(renderer).x0):
            shown, y = text.get_window_extent(renderer), round(text.get_position()[1], 3)
            assert ends.get(y, made.sizes.left) < shown.x0, text.get_text()
            assert shown.x1 < made.sizes.lanes_at, text.get_text()
            ends[y] = shown.x1


def test_the_same_playbook_is_the_same_bytes() -> None:
    assert drawn(PICTURE, "svg") == drawn(PICTURE, "svg")
    assert drawn(PICTURE, "png") == drawn(PICTURE, "png")


def test_text_of_a_playbook_is_drawn_as_it_is_and_not_as_a_formula() -> None:
    state = SMALL.states["over"].model_copy(update={"title": "costs $1 & $x_{2}"})
    odd = SMALL.model_copy(update={"states": {**SMALL.states, "over": state}})
    assert "costs $1 & $x_{2}" in texts_of(drawn(picture(odd), "svg"))
