"""A playbook's picture as PNG or SVG, drawn by matplotlib, which brings its own font: the same everywhere, offline."""

from __future__ import annotations

import io
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Polygon, Rectangle

from bot.domain.playbook.picture import (
    HEAD,
    LANES_AT,
    LEFT,
    LINE,
    TARGETS_AT,
    TOP,
    Lane,
    Picture,
    Row,
    WayOut,
    target_title,
)

DOTS_PER_INCH = 100
SHARPNESS = 2
"""Pixels for each point of the layout: a screen of today shows 700 points with 1,400 pixels."""
FILLS = {
    "read": "#f2f4f5",
    "ask": "#fff3cd",
    "change": "#fbdcd9",
    "watch": "#dcecfb",
    "divert": "#ece2f6",
    "end": "#dff2df",
    "piece": "#e8e8e8",
}
STROKES = {
    "read": "#566573",
    "ask": "#9a7400",
    "change": "#c0392b",
    "watch": "#2471a3",
    "divert": "#6c3483",
    "end": "#1e8449",
    "piece": "#555555",
}
TAKEN = "#111111"
FADED = 0.35
SMALL, NORMAL, LARGE = 6.4, 7.4, 10.0


def drawn(picture: Picture, file_format: Literal["png", "svg"]) -> bytes:
    """The same picture is the same bytes: no date and no random names in it."""
    figure = Figure(figsize=(picture.width / DOTS_PER_INCH, picture.height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure) if file_format == "png" else FigureCanvasSVG(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, picture.width)
    axes.set_ylim(picture.height, 0)
    axes.axis("off")
    axes.text(LEFT, TOP / 2, picture.title, parse_math=False, fontsize=LARGE, fontweight="bold", va="center")
    colours = {row.name: STROKES[row.kind] for row in picture.rows}
    for lane in picture.lanes:
        _lane(axes, picture, lane, colours[lane.to])
    for row in picture.rows:
        _row(axes, picture, row, colours)
    out = io.BytesIO()
    # In an SVG text stays text, so that it can be searched.
    with rc_context({"svg.hashsalt": "playbook", "svg.fonttype": "none"}):
        if file_format == "png":
            canvas.print_figure(out, format="png", dpi=DOTS_PER_INCH * SHARPNESS, metadata={"Software": None})
        else:
            canvas.print_figure(out, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    return out.getvalue()


def _row(axes: Axes, picture: Picture, row: Row, colours: dict[str, str]) -> None:
    stroke = colours[row.name]
    strength = 1.0 if row.is_visited or not picture.has_way else FADED
    width = LANES_AT - LEFT
    border = (TAKEN, 1.0) if row.is_current else (stroke, strength)
    box = FancyBboxPatch(
        (LEFT, row.y), width, row.height, boxstyle="round,pad=0,rounding_size=4", facecolor="white", zorder=3,
        edgecolor=border, linewidth=2.4 if row.is_current else 0.9,
    )  # fmt: skip
    axes.add_patch(box)
    head = Rectangle(
        (LEFT + 1, row.y + 1), width - 2, HEAD - 2, facecolor=(FILLS[row.kind], strength), edgecolor="none", zorder=3
    )
    axes.add_patch(head)
    axes.text(
        LEFT + 8, row.entry, row.title, parse_math=False, fontsize=NORMAL, fontweight="bold", va="center",
        alpha=strength, zorder=4,
    )  # fmt: skip
    tag = "▶ the run is here" if row.is_current else row.kind
    axes.text(
        LANES_AT - 8, row.entry, tag, fontsize=SMALL, color=TAKEN if row.is_current else stroke, ha="right",
        va="center", zorder=4, fontweight="bold" if row.is_current else "normal",
    )  # fmt: skip
    for way in row.ways:
        _way(axes, picture, row, way, colours[way.to])


def _way(axes: Axes, picture: Picture, row: Row, way: WayOut, colour: str) -> None:
    strength = 1.0 if way.is_taken or not picture.has_way else FADED
    weight = "bold" if way.is_taken else "normal"
    for x, text, shade in (
        (LEFT + 8, way.label, "#333333"),
        (TARGETS_AT, f"→ {target_title(picture, way.to)}", colour),
    ):
        axes.text(
            x, way.y, text, parse_math=False, fontsize=SMALL, color=shade, va="center", alpha=strength, zorder=4,
            fontweight=weight,
        )  # fmt: skip
    if way.is_next:
        below = row.y + row.height
        axes.plot(
            [LEFT + 3.5, LEFT + 3.5], [way.y - LINE / 3, below], color=TAKEN if way.is_taken else colour, lw=1, zorder=4
        )
        _arrow(axes, LEFT + 3.5, below + 8, down=True, colour=TAKEN if way.is_taken else colour)


def _lane(axes: Axes, picture: Picture, lane: Lane, colour: str) -> None:
    x = picture.lane_x(lane)
    strength = FADED if picture.has_way else 0.9
    axes.plot([x, x], [lane.begins, lane.ends], color=colour, linewidth=1.0, alpha=strength, zorder=1)
    for y in lane.sources:
        axes.plot([LANES_AT, x], [y, y], color=colour, linewidth=0.8, alpha=strength, zorder=1)
    axes.plot([LANES_AT, x], [lane.entry, lane.entry], color=colour, linewidth=1.0, alpha=strength, zorder=1)
    for y in lane.taken:
        way = [LANES_AT, x, x, LANES_AT]
        axes.plot(way, [y, y, lane.entry, lane.entry], color=TAKEN, linewidth=2.0, zorder=2)
    _arrow(axes, LANES_AT, lane.entry, down=False, colour=TAKEN if lane.taken else colour)


def _arrow(axes: Axes, x: float, y: float, *, down: bool, colour: str) -> None:
    points = [(x, y), (x - 3, y - 6), (x + 3, y - 6)] if down else [(x, y), (x + 6, y - 3), (x + 6, y + 3)]
    axes.add_patch(Polygon(points, closed=True, facecolor=colour, edgecolor="none", zorder=5))
