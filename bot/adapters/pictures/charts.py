"""Draws an incident's chart as PNG or SVG: one panel per signal, a shared time axis, decisions numbered on it.

No line crosses a gap: unknown values are not drawn.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from bot.adapters.pictures.drawing import drawing
from bot.domain.incidents.series import Limit
from bot.domain.reports.chart import Chart, Mark, Panel
from bot.domain.signals.signal import SHOWN_UNITS, in_words, unit_beside

DOTS_PER_INCH = 100
SHARPNESS = 2
"""Pixels per point of the layout: sharp at the width at which Slack shows a picture on a desktop."""
WIDTH = 500
"""Narrow, so that its texts stay readable on a phone, which shows it 360 points wide."""
HEAD, PANEL_HEAD, PANEL, GAP, AXIS, LEGEND_LINE, FOOT = 66, 26, 78, 6, 30, 18, 6
"""Slack shrinks a picture that is higher than it is wide."""
SIDE, LEFT, RIGHT = 14, 52, 48
"""The margin; room for the numbers of the axis, and for those of the limits."""
LINE, LIMIT, INK, QUIET, GRID, CHANGE = "#2471a3", "#c0392b", "#1d1c1d", "#566573", "#e3e6e8", "#b9770e"
GAP_FILL = "#f2f3f4"
"""Marks unknown times."""
SMALL, NORMAL, LARGE = 8.2, 8.8, 11.0
BADGES_APART = 19
LABELS_APART = 13
STEPS = (2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400)
MAX_TICKS = 6
LAST_LABEL = 24
GAP_IS = 2.5
"""This many times the usual distance between two points is a gap."""


@dataclass(frozen=True)
class _Sheet:
    """The whole picture, measured in points from its upper left corner."""

    figure: Figure
    height: int

    def write(self, x: float, y: float, text: str, **look: Any) -> Bbox:
        """Returns the box of the text."""
        usual: dict[str, Any] = {"fontsize": NORMAL, "color": INK, "va": "center", "parse_math": False}
        written = self.figure.text(x / WIDTH, 1 - y / self.height, _plain(text), **(usual | look))
        return written.get_window_extent()

    def write_within(self, room: float, x: float, y: float, text: str, **look: Any) -> None:
        """Cuts the text at its end where it is wider than `room`."""
        written = self.write(x, y, text, **look)
        if written.width > room:
            self.figure.texts[-1].remove()
            self.write_within(
                room, x, y, f"{text[: min(len(text) - 2, int(len(text) * room / written.width))]}…", **look
            )

    def badge(self, x: float, y: float, number: int, mark: Mark) -> None:
        colour = CHANGE if mark.is_change else QUIET
        circle = {"boxstyle": "circle,pad=0.22", "facecolor": colour, "edgecolor": "none"}
        self.write(x, y, str(number), fontsize=SMALL, color="white", fontweight="bold", ha="center", bbox=circle)


def drawn(chart: Chart, file_format: Literal["png", "svg"]) -> bytes:
    """The same chart gives the same bytes: no date and no random names in it."""
    with drawing("chart"):
        return _drawn(chart, file_format)


def _drawn(chart: Chart, file_format: Literal["png", "svg"]) -> bytes:
    height = _height(chart)
    figure = Figure(figsize=(WIDTH / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH, facecolor="white")
    canvas = FigureCanvasAgg(figure)  # also for SVG: texts are measured in its pixels
    sheet = _Sheet(figure, height)
    sheet.write(SIDE, 18, chart.title, fontsize=LARGE, fontweight="bold")
    room = WIDTH - 2 * SIDE
    if any(len(_unbroken(panel.points)) > 1 for panel in chart.panels):
        has_gap = sheet.write(WIDTH - SIDE, 38, "grey: not known", fontsize=SMALL, color=QUIET, ha="right")
        room -= round(has_gap.width) + SIDE
    sheet.write_within(room, SIDE, 38, chart.target, color=QUIET)
    # Decisions that are close together: their numbers are drawn side by side, their lines at the exact times.
    places = _apart([_x(chart, mark.at) for mark in chart.marks], BADGES_APART, WIDTH - SIDE)
    top = float(HEAD)
    for number, panel in enumerate(chart.panels):
        _head(sheet, panel, top)
        top += PANEL_HEAD
        place = (LEFT / WIDTH, 1 - (top + PANEL) / height, (WIDTH - LEFT - RIGHT) / WIDTH, PANEL / height)
        axes = figure.add_axes(place)
        _panel(axes, chart, panel, has_times=number == len(chart.panels) - 1)
        top += PANEL + GAP
    for number, (mark, x) in enumerate(zip(chart.marks, places, strict=True), start=1):
        sheet.badge(x, HEAD - 12, number, mark)
    sheet.write(WIDTH - RIGHT + 5, top - GAP + 12, "UTC", fontsize=SMALL, color=QUIET)
    _legend(sheet, chart, top - GAP + AXIS)
    out = io.BytesIO()
    if file_format == "png":
        canvas.print_figure(out, format="png", dpi=DOTS_PER_INCH * SHARPNESS, metadata={"Software": None})
    else:
        FigureCanvasSVG(figure).print_figure(out, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    return out.getvalue()


def _height(chart: Chart) -> int:
    lines = len(chart.marks) + (1 if chart.marks_left_out else 0)
    panels = len(chart.panels) * (PANEL_HEAD + PANEL + GAP) - GAP
    return HEAD + panels + AXIS + lines * LEGEND_LINE + FOOT


def _head(sheet: _Sheet, panel: Panel, top: float) -> None:
    """The title, the limits and the outcome, on one line."""
    unit = "" if panel.unit in SHOWN_UNITS else unit_beside(panel.title, panel.unit)
    upwards = _upwards(panel)
    limits = ", ".join(f"{_limit_name(limit, upwards)} {_number(limit.value, panel.unit)}" for limit in upwards)
    title = sheet.write(SIDE, top + 14, panel.title + (f" ({unit})" if unit else ""), fontweight="bold")
    change = sheet.write(WIDTH - SIDE, top + 14, panel.change, ha="right", fontweight="bold")
    named = sheet.write(title.x1 + 10, top + 14, limits and f"– – {limits}", fontsize=SMALL, color=LIMIT)
    if named.x1 > change.x0 - 5:
        sheet.figure.texts[-1].remove()  # no room: their numbers stand beside the lines


def _limit_name(limit: Limit, limits: Sequence[Limit]) -> str:
    """`target` of `ttft_target`, as the panel says of what; `thrash` of `thrash_ratio` if there are other limits."""
    words = limit.setting.split("_")
    if words[-1] == "target":
        return "target"
    return "limit" if len(limits) == 1 else " ".join(words[:-1] if words[-1] == "ratio" else words)


def _panel(axes: Axes, chart: Chart, panel: Panel, *, has_times: bool) -> None:
    begins, ends = _shown(chart)
    axes.set_xlim(begins, ends)
    highest = max([value for _, value in panel.points] + [limit.value for limit in panel.limits])
    lowest = min([0.0, *(value for _, value in panel.points)])
    # If a share comes near its whole, the whole is shown.
    is_near_whole = panel.unit == "ratio" and 0.7 < highest <= 1
    axes.set_ylim(lowest, 1.04 if is_near_whole else (highest * 1.15) or 1.0)
    for mark in chart.marks:
        axes.axvline(mark.at, color=CHANGE if mark.is_change else QUIET, linewidth=0.9, alpha=0.6, zorder=1)
    runs = _unbroken(panel.points)
    for before, after in pairwise(runs):
        axes.axvspan(before[-1][0], after[0][0], color=GAP_FILL, linewidth=0, zorder=0)
    for run in runs:
        times, values = zip(*run, strict=True)
        dot = "o" if len(run) == 1 else ""
        axes.plot(times, values, color=LINE, linewidth=1.8, zorder=3, marker=dot, markersize=3)
    _limits(axes, panel)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _number(value, panel.unit)))
    ticks = _ticks(begins, ends)
    clock = "%H:%M:%S" if len(ticks) > 1 and ticks[1] - ticks[0] < 60 else "%H:%M"
    names = [datetime.fromtimestamp(at, UTC).strftime(clock) for at in ticks] if has_times else [""] * len(ticks)
    axes.set_xticks(ticks, names)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL, colors=QUIET, length=2)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GRID)


def _limits(axes: Axes, panel: Panel) -> None:
    """Each limit as a line over the whole width, with its number beside it, moved up if two would overlap."""
    limits = _upwards(panel)
    low, high = axes.get_ylim()
    heights = _apart([(limit.value - low) / (high - low) * PANEL for limit in limits], LABELS_APART, PANEL)
    for limit, label_at in zip(limits, heights, strict=True):
        axes.axhline(limit.value, color=LIMIT, linewidth=1.1, linestyle=(0, (4, 3)), zorder=2)
        axes.text(
            1.01, label_at / PANEL, _number(limit.value, panel.unit),
            transform=axes.transAxes, fontsize=SMALL, color=LIMIT, va="center",
        )  # fmt: skip


def _upwards(panel: Panel) -> list[Limit]:
    return sorted(panel.limits, key=lambda limit: limit.value)


def _legend(sheet: _Sheet, chart: Chart, top: float) -> None:
    for number, mark in enumerate(chart.marks, start=1):
        y = top + (number - 0.5) * LEGEND_LINE
        sheet.badge(SIDE + 8, y, number, mark)
        sheet.write_within(WIDTH - 2 * SIDE - 24, SIDE + 24, y, mark.text)
    if chart.marks_left_out:
        y = top + (len(chart.marks) + 0.5) * LEGEND_LINE
        sheet.write(SIDE + 24, y, f"{chart.marks_left_out} more in the report")


def _x(chart: Chart, at: float) -> float:
    begins, ends = _shown(chart)
    return LEFT + (at - begins) / (ends - begins) * (WIDTH - LEFT - RIGHT)


def _shown(chart: Chart) -> tuple[float, float]:
    return chart.begins_at, max(chart.ends_at, chart.begins_at + 1.0)


def _apart(wanted: Sequence[float], least: float, most: float) -> list[float]:
    """The same places in order, each at least that far from the one before it, none beyond `most`."""
    placed: list[float] = []
    for place in wanted:
        placed.append(max(place, placed[-1] + least) if placed else place)
    return [min(place, most - least * after) for place, after in zip(placed, reversed(range(len(placed))), strict=True)]


def _unbroken(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    steps = sorted(after[0] - before[0] for before, after in pairwise(points))
    usual = steps[len(steps) // 4] if len(steps) > MAX_TICKS else float("inf")
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if runs and point[0] - runs[-1][-1][0] <= GAP_IS * usual:
            runs[-1].append(point)
        else:
            runs.append([point])
    return runs


def _ticks(begins: float, ends: float) -> list[float]:
    step = next((step for step in STEPS if (ends - begins) / step <= MAX_TICKS), (ends - begins) / MAX_TICKS)
    first = (begins // step + 1) * step
    # The word at the end of the axis needs its place.
    latest = ends - (ends - begins) * LAST_LABEL / (WIDTH - LEFT - RIGHT)
    return [first + number * step for number in range(MAX_TICKS + 1) if first + number * step <= latest]


def _number(value: float, unit: str) -> str:
    if unit == "ratio":
        return f"{value:.3g}" if value > 2 else f"{value * 100:.3g}%"
    return in_words(value, SHOWN_UNITS.get(unit, ""))


def _plain(text: str) -> str:
    """The text without glyphs that the font lacks: a box is useless, and a warning for each would fill the log."""
    known = _known()
    return "".join(char if ord(char) in known else "?" for char in text)


@cache
def _known() -> frozenset[int]:
    return frozenset(get_font(findfont("DejaVu Sans")).get_charmap())
