"""The report in Markdown. What came from outside reads as what it is, never as markup, a table cell's end or HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.reports.page import NONE, Cell, Row, Section, Span, page_of, spans
from bot.domain.reports.roles import Roles

_MARKUP = re.compile(r"[\\`*_~\[\]#!$|]")


def markdown(entries: Sequence[Chained], stored: StoredHead | None = None, roles: Roles | None = None) -> str:
    page = page_of(entries, stored, roles)
    parts = [f"# {escaped(page.title)}", _lines(page.summary), *map(_section, page.sections)]
    parts += ["## Facts", _table(("fact", "value"), page.facts)]
    parts += ["# Appendix", *map(_section, page.appendix)] if page.appendix else []
    return "\n\n".join(parts) + "\n"


def escaped(words: str) -> str:
    """Text that shows exactly these words."""
    shown = words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", shown)


def _lines(lines: Sequence[tuple[str, str | Cell]]) -> str:
    return "\n".join(f"- **{escaped(name)}:** {_cell(value) or NONE}" for name, value in lines)


def _section(section: Section) -> str:
    parts = [f"## {section.heading}", *map(_cell, section.paragraphs)]
    return "\n\n".join([*parts, _table(section.columns, section.rows)] if section.rows else parts)


def _table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    cells = [columns, ["---"] * len(columns), *([_cell(cell) or NONE for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _cell(cell: str | Cell) -> str:
    return "".join(map(_span, spans(cell)))


def _span(span: Span) -> str:
    match span.style:
        case "code":
            # Backslashes mean nothing in a code span, but a table takes the one before a bar.
            shown = span.words.replace("`", "'").replace("|", "\\|")
            return f"`{shown}`"
        case "strong":
            return f"**{escaped(span.words)}**"
        case "br":
            return "<br>"
        case "link":
            # Brackets are escaped in the text; the address has no space and no angle bracket.
            return f"[{escaped(span.words)}](<{span.url}>)"
        case _:
            return escaped(span.words)
