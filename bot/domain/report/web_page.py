"""The report as one HTML file that needs nothing else: no script, no other file, nothing is fetched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from bot.domain.report.chart import Chart, chart_of
from bot.domain.report.escaping import one_line
from bot.domain.report.facts import Report
from bot.domain.report.markup import Html
from bot.domain.report.page import page
from bot.domain.timeline import Chained

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1d1c1d; background: #fff; max-width: 1080px; margin: 0 auto;
  padding: 24px 20px 64px; }
h1 { font-size: 24px; line-height: 1.25; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 36px 0 8px; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; color: #566573; font-weight: 600; border-bottom: 2px solid #d5d8dc; white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; vertical-align: top; }
td { border-bottom: 1px solid #eceff1; overflow-wrap: anywhere; min-width: 4em; }
code { font: 12.5px ui-monospace, monospace; background: #f4f5f6; border-radius: 3px; padding: 1px 4px; }
figure { margin: 28px 0; }
figure svg { width: 100%; max-width: 860px; height: auto; display: block; }
.wide { overflow-x: auto; }
@media print { body { max-width: none; padding: 0; } tr, figure { break-inside: avoid; } }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(entries: Sequence[Chained], draw: Callable[[Chart], bytes]) -> str:
    """`draw` makes an SVG of a chart; a timeline without lines has none."""
    report, chart = Report.of(entries), chart_of(entries)
    title = escape(one_line(f"{report.incident} {report.title}".strip() or "Incident", 120))
    picture = "" if chart is None else f"<figure>{_inline(draw(chart))}</figure>"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"{page(entries, Html(), picture)}</body>\n</html>\n"
    )


def _inline(svg: bytes) -> str:
    """The picture without what stands before its root, which only a file of its own may have."""
    text = svg.decode()
    return text[text.index("<svg") :]
