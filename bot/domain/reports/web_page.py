"""The report as one HTML file that needs nothing else: no script, no other file, nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from bot.domain.incidents.series import Series
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.reports.chart import Chart, chart_of
from bot.domain.reports.escaping import one_line
from bot.domain.reports.page import page_of, spans
from bot.domain.reports.roles import Roles

if TYPE_CHECKING:
    from jinja2 import Template


def html(
    entries: Sequence[Chained],
    draw: Callable[[Chart], bytes],
    read_since: Sequence[Series] = (),
    stored: StoredHead | None = None,
    roles: Roles | None = None,
    live: str | None = None,
) -> str:
    """`draw` makes an SVG of a chart; a timeline without lines has none. `read_since`: as `chart_of` takes it.

    `live`: what the incident waits for, on a page that is served and follows it; None: the page is a file.
    """
    from markupsafe import Markup

    page = page_of(entries, stored, roles)
    chart = chart_of(entries if roles is None else [roles.of(each) for each in entries], read_since)
    picture = None if chart is None else Markup(_inline(draw(chart)))  # noqa: S704 - drawn by us
    title, caption = one_line(page.title, 120), _caption(read_since)
    shown = {
        "page": page,
        "title": title,
        "picture": picture,
        "in_words": _in_words(chart),
        "caption": caption,
        "spans": spans,
    }
    return _template().render(**shown, now=one_line(live or ""), live=live is not None)


@cache
def _template() -> Template:
    # Few runs export a page, and every start would wait for the import.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    files = PackageLoader("bot.domain.reports", "")
    pages = Environment(
        loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return pages.get_template("page.html.jinja")


def _caption(read_since: Sequence[Series]) -> str:
    unread = [
        f"{line.label or line.signal}: the history could not be read ({line.unknown})"
        for line in read_since
        if line.unknown
    ]
    return one_line("; ".join(unread))


def _in_words(chart: Chart | None) -> str:
    """The chart for people who cannot see it: its texts alone, read one by one, make no sense."""
    return (
        "" if chart is None else "Chart: " + "; ".join(f"{each.title} {each.change}".strip() for each in chart.panels)
    )


def _inline(svg: bytes) -> str:
    """The picture without what stands before its root, which only a file of its own may have."""
    text = svg.decode()
    return text[text.index("<svg") :]
