"""The report as one HTML file that needs nothing else: no script, no other file, nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from bot.domain.incidents.series import Series
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.reports.chart import Chart, chart_of
from bot.domain.reports.escaping import one_line
from bot.domain.reports.facts import Report
from bot.domain.reports.markup import Html
from bot.domain.reports.page import page

STYLE = """
:root { color-scheme: light dark; --ink: #1d1c1d; --quiet: #566573; --paper: #fff; --card: #f7f8f9; --rule: #e3e6e8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e9ea; --quiet: #9aa5ad; --paper: #16181b; --card: #1f2226; --rule: #33383d; }
  figure svg { filter: invert(.9) hue-rotate(180deg); }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1080px;
  margin: 0 auto; padding: 28px 20px 64px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 18px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 10px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(220px, 45%), 1fr)); margin: 0;
  background: var(--card); border: 1px solid var(--rule); border-radius: 8px; overflow: hidden; }
dl div { padding: 8px 14px 10px; border-bottom: 1px solid var(--rule); margin-bottom: -1px; }
dt { color: var(--quiet); font-size: 12.5px; }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: var(--quiet); font-weight: 600; border-bottom: 2px solid var(--rule); }
th, td { padding: 6px 16px 6px 0; vertical-align: top; }
td { border-bottom: 1px solid var(--rule); overflow-wrap: anywhere; min-width: 3em; }
td[data-name$="(UTC)"] { white-space: nowrap; font-variant-numeric: tabular-nums; }
td[data-name="kind"], td[data-name="verdict"] { min-width: 5.5em; }
td[data-name="state"], td[data-name="who"], td[data-name="took"] { min-width: 6.5em; }
td.none { color: var(--quiet); }
code { font: 12.5px ui-monospace, monospace; background: var(--card); border-radius: 4px; padding: 1px 4px; }
dd code { padding: 0; }
td[data-name="state"] code { overflow-wrap: break-word; }
figure { margin: 28px auto; max-width: 620px; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: var(--quiet); font-size: 12.5px; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  thead { display: none; }
  table, tbody, tr, td { display: block; }
  tr { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; margin: 0 0 10px;
    padding: 6px 12px; }
  td, td[data-name] { min-width: 0; white-space: normal; }
  td { border: 0; padding: 2px 0 2px 7.5em; min-height: 1.5em; position: relative; }
  td::before { content: attr(data-name); color: var(--quiet); position: absolute; left: 0; }
  td.none { display: none; }
}
@media print { body { max-width: none; padding: 0; font-size: 11px; } table { font-size: 10px; }
  tr, figure, dl div { break-inside: avoid; } h2 { break-after: avoid; } figure { max-width: 460px; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(
    entries: Sequence[Chained],
    draw: Callable[[Chart], bytes],
    read_since: Sequence[Series] = (),
    stored: StoredHead | None = None,
) -> str:
    """`draw` makes an SVG of a chart; a timeline without lines has none. `read_since`: as `chart_of` takes it."""
    report, chart = Report.of(entries), chart_of(entries, read_since)
    title = escape(one_line(f"{report.incident} {report.title}".strip() or "Incident", 120))
    picture = "" if chart is None else f"<figure>{_inline(draw(chart))}{_caption(read_since)}</figure>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{page(entries, Html(), picture, stored)}</body>\n</html>\n"
    )


def _caption(read_since: Sequence[Series]) -> str:
    unread = [f"{line.signal}: the history could not be read ({line.unknown})" for line in read_since if line.unknown]
    return f"<figcaption>{escape(one_line('; '.join(unread)))}</figcaption>" if unread else ""


def _inline(svg: bytes) -> str:
    """The picture without what stands before its root, which only a file of its own may have."""
    text = svg.decode()
    return text[text.index("<svg") :]
