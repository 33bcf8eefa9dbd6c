"""A playbook's picture as PNG or SVG, drawn by matplotlib with its bundled font: the same everywhere, offline."""

from __future__ import annotations

import io
from bisect import bisect
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle
from matplotlib.textpath import text_to_path

from bot.adapters.pictures.drawing import drawing
from bot.domain.playbooks.picture.picture import Exit, Lane, Picture, Row, target_title

DOTS_PER_INCH = 100
WIDTH_PIXELS = 1440
"""As wide as Slack shows an opened file, twice as sharp as a layout of 700."""
FILLS = {
    "read": "#f2f4f5",
    "ask": "#fff3cd",
    "recommend": "#ffe3c2",
    "change": "#fbdcd9",
    "watch": "#dcecfb",
    "divert": "#ece2f6",
    "return": "#dff2df",
    "end": "#dff2df",
    "fragment": "#e8e8e8",
    "section": "#eef1f3",
}
STROKES = {
    "read": "#566573",
    "ask": "#9a7400",
    "recommend": "#b45f06",
    "change": "#c0392b",
    "watch": "#2471a3",
    "divert": "#6c3483",
    "return": "#6c3483",
    "end": "#1e8449",
    "fragment": "#555555",
    "section": "#34495e",
}
LANES = ("#2471a3", "#c0392b", "#1e8449", "#9a7400", "#6c3483", "#117a65", "#a04000", "#34495e")
"""The colours of exits to sections, which have no kind."""
TITLE_BESIDE_TAG = 24
"""Maximum characters of a section's title, to leave room for words at its right."""
BETWEEN = 8
"""Pixels between two texts of one line, and from a text to the edge of its box."""
ROUNDED_UP = 1.05
POINTS_PER_INCH = 72
TAKEN = "#111111"
FADED = 0.35


def drawn(picture: Picture, file_format: Literal["png", "svg"]) -> bytes:
    """The same picture gives the same bytes: no date and no random names in it."""
    out = io.BytesIO()
    with drawing("playbook"):
        figure = figure_of(picture)
        canvas = FigureCanvasAgg(figure) if file_format == "png" else FigureCanvasSVG(figure)
        if file_format == "png":
            sharp = DOTS_PER_INCH * WIDTH_PIXELS / picture.sizes.width
            canvas.print_figure(out, format="png", dpi=sharp, metadata={"Software": None})
        else:
            canvas.print_figure(out, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    return out.getvalue()


def figure_of(picture: Picture) -> Figure:
    """The figure, before it is rendered to a format; a unit of the axes is a pixel of the layout."""
    sizes = picture.sizes
    figure = Figure(figsize=(sizes.width / DOTS_PER_INCH, picture.height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, sizes.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    axes.text(
        sizes.left, sizes.top / 2, picture.title, parse_math=False, fontsize=sizes.large, fontweight="bold",
        va="center",
    )  # fmt: skip
    colours = {row.name: _colour(row, number) for number, row in enumerate(picture.rows)}
    for lane in picture.lanes:
        _lane(axes, picture, lane, colours[lane.to])
    for row in picture.rows:
        _row(axes, picture, row, colours)
    return figure


def _colour(row: Row, number: int) -> str:
    return LANES[number % len(LANES)] if row.kind == "section" else STROKES[row.kind]


def _row(axes: Axes, picture: Picture, row: Row, colours: Mapping[str, str]) -> None:
    sizes, stroke = picture.sizes, STROKES[row.kind]
    strength = 1.0 if row.is_visited or not picture.has_path else FADED
    width = sizes.lanes_at - sizes.left
    border = (TAKEN, 1.0) if row.is_current else (stroke, strength)
    box = FancyBboxPatch(
        (sizes.left, row.y), width, row.height, boxstyle="round,pad=0,rounding_size=4", facecolor="white", zorder=3,
        edgecolor=border, linewidth=2.4 if row.is_current else 0.9,
    )  # fmt: skip
    axes.add_patch(box)
    head = Rectangle(
        (sizes.left + 1, row.y + 1), width - 2, 2 * (row.entry - row.y - 1), facecolor=(FILLS[row.kind], strength),
        edgecolor="none", zorder=3,
    )  # fmt: skip
    axes.add_patch(head)
    tag = _tag(row)
    room = width - 16 - (width_of(tag, sizes.small, is_bold=row.is_current) + BETWEEN if tag else 0)
    axes.text(
        sizes.left + 8, row.entry, fitted(row.title, sizes.normal, room, is_bold=True), parse_math=False,
        fontsize=sizes.normal, fontweight="bold", va="center", alpha=strength, zorder=4,
    )  # fmt: skip
    axes.text(
        sizes.lanes_at - 8, row.entry, tag, fontsize=sizes.small, color=TAKEN if row.is_current else stroke, ha="right",
        va="center", zorder=4, fontweight="bold" if row.is_current else "normal",
    )  # fmt: skip
    for line in row.lines:
        axes.text(
            sizes.left + 10, line.y, fitted(line.text, sizes.small, width - 18, is_bold=line.is_strong),
            parse_math=False, fontsize=sizes.small, color=STROKES[line.tone], va="center", zorder=4,
            fontweight="bold" if line.is_strong else "normal",
        )  # fmt: skip
    for exit_ in row.exits:
        _draw_exit(axes, picture, row, exit_, colours.get(exit_.to, STROKES["section"]))


def fitted(text: str, size: float, room: float, *, is_bold: bool) -> str:
    """The text, or its beginning and an ellipsis if it is wider than the room."""
    if width_of(text, size, is_bold=is_bold) <= room:
        return text
    fits = bisect(range(len(text)), room, key=lambda most: width_of(f"{text[:most]}…", size, is_bold=is_bold))
    return f"{text[: max(fits - 1, 0)].rstrip()}…"


@lru_cache(maxsize=4096)
def width_of(text: str, size: float, *, is_bold: bool) -> float:
    """In pixels of the layout. A renderer may round each letter up, which the wider font compensates."""
    properties = FontProperties(family="DejaVu Sans", weight="bold" if is_bold else "normal", size=size * ROUNDED_UP)
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width) * DOTS_PER_INCH / POINTS_PER_INCH


def _tag(row: Row) -> str:
    if row.is_current:
        return "▶" if row.kind == "section" and len(row.title) > TITLE_BESIDE_TAG else "▶ the run is here"
    return "" if row.kind == "section" else row.kind


def _draw_exit(axes: Axes, picture: Picture, row: Row, exit_: Exit, colour: str) -> None:
    sizes = picture.sizes
    if exit_.label:
        _named(axes, picture, exit_, colour)
    if exit_.is_next:
        x, below = sizes.left + 3.5, row.y + row.height + sizes.gap - 1
        shade = TAKEN if exit_.is_taken else colour
        begins = exit_.y - sizes.line / 3 if exit_.label else exit_.y
        axes.plot([x, x], [begins, below - 2], color=shade, lw=2.0 if exit_.is_taken else 1.0, zorder=4)
        _arrow(axes, x, below, down=True, colour=shade)


def _named(axes: Axes, picture: Picture, exit_: Exit, colour: str) -> None:
    sizes, strength = picture.sizes, 1.0 if exit_.is_taken or not picture.has_path else FADED
    for x, ends_at, text, shade in (
        (sizes.left + 8, sizes.targets_at, exit_.label, "#333333"),
        (sizes.targets_at, sizes.lanes_at, f"→ {target_title(picture, exit_.to)}", colour),
    ):
        shown = fitted(text, sizes.small, ends_at - x - BETWEEN, is_bold=exit_.is_taken)
        axes.text(
            x, exit_.y, shown, parse_math=False, fontsize=sizes.small, color=shade, va="center", alpha=strength,
            zorder=4, fontweight="bold" if exit_.is_taken else "normal",
        )  # fmt: skip


def _lane(axes: Axes, picture: Picture, lane: Lane, colour: str) -> None:
    x, beside = picture.lane_x(lane), picture.sizes.lanes_at
    strength = FADED if picture.has_path else 0.9
    axes.plot([x, x], [lane.begins, lane.ends], color=colour, linewidth=1.0, alpha=strength, zorder=1)
    for y in lane.sources:
        axes.plot([beside, x], [y, y], color=colour, linewidth=0.8, alpha=strength, zorder=1)
    axes.plot([beside, x], [lane.entry, lane.entry], color=colour, linewidth=1.0, alpha=strength, zorder=1)
    for y in lane.taken:
        points = [beside, x, x, beside]
        axes.plot(points, [y, y, lane.entry, lane.entry], color=TAKEN, linewidth=2.0, zorder=2)
    _arrow(axes, beside, lane.entry, down=False, colour=TAKEN if lane.taken else colour)


def _arrow(axes: Axes, x: float, y: float, *, down: bool, colour: str) -> None:
    points = [(x, y), (x - 3, y - 6), (x + 3, y - 6)] if down else [(x, y), (x + 6, y - 3), (x + 6, y + 3)]
    axes.add_patch(Polygon(points, closed=True, facecolor=colour, edgecolor="none", zorder=5))
