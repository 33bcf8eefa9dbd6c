"""What a report is written in: Markdown, or HTML. Both show text from outside as exactly these words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

from bot.domain.reports import escaping

MAX_TITLE_LENGTH = 300


class Markup(Protocol):
    """Takes text as it came; what it returns, and only that, may stand in a table's cell or a paragraph."""

    def title(self, raw: str) -> str: ...
    def heading(self, raw: str) -> str: ...
    def paragraph(self, shown: str) -> str: ...
    def text(self, raw: object) -> str: ...
    def code(self, raw: object) -> str: ...
    def strong(self, raw: str) -> str: ...
    def lines(self, shown: Sequence[str]) -> str: ...
    def facts(self, facts: Sequence[tuple[str, str]]) -> list[str]: ...
    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]: ...


class Markdown:
    def title(self, raw: str) -> str:
        return f"# {escaping.text(raw, MAX_TITLE_LENGTH)}"

    def heading(self, raw: str) -> str:
        return f"## {raw}"

    def paragraph(self, shown: str) -> str:
        return shown

    def text(self, raw: object) -> str:
        return escaping.text(raw)

    def code(self, raw: object) -> str:
        return escaping.code(raw)

    def strong(self, raw: str) -> str:
        return f"**{escaping.text(raw)}**"

    def lines(self, shown: Sequence[str]) -> str:
        return "<br>".join(shown)

    def facts(self, facts: Sequence[tuple[str, str]]) -> list[str]:
        return self.table(("fact", "value"), facts)

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        return escaping.table(headings, rows)


class Html:
    def title(self, raw: str) -> str:
        return f"<h1>{escape(escaping.one_line(raw, MAX_TITLE_LENGTH))}</h1>"

    def heading(self, raw: str) -> str:
        return f"<h2>{self.text(raw)}</h2>"

    def paragraph(self, shown: str) -> str:
        return f"<p>{shown}</p>"

    def text(self, raw: object) -> str:
        return escape(escaping.one_line(raw))

    def code(self, raw: object) -> str:
        shown = escaping.one_line(raw, 200)
        return f"<code>{escape(shown)}</code>" if shown else "–"

    def strong(self, raw: str) -> str:
        return f"<strong>{self.text(raw)}</strong>"

    def lines(self, shown: Sequence[str]) -> str:
        return "<br>".join(shown)

    def facts(self, facts: Sequence[tuple[str, str]]) -> list[str]:
        items = [f"<div><dt>{self.text(name)}</dt><dd>{shown or '–'}</dd></div>" for name, shown in facts]
        return ["<dl>", *items, "</dl>"]

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
        """Each cell knows its heading: on a phone a row is a card."""
        names = [self.text(name) for name in headings]
        head = "".join(f"<th>{name}</th>" for name in names)
        body = [
            "<tr>" + "".join(_cell(name, shown) for name, shown in zip(names, row, strict=True)) + "</tr>"
            for row in rows
        ]
        return ["<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>", *body, "</tbody></table>"]


def _cell(name: str, shown: str) -> str:
    return f'<td data-name="{name}">{shown}</td>' if shown else f'<td data-name="{name}" class="none">–</td>'
