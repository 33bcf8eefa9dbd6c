"""An incident's short report, for a terminal of 100 columns: its path, decisions, changes and checks.

The whole report is a Markdown page (`incident-bot export`). Text from outside is shown literally, without markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bot.domain.kernel.durations import lasting
from bot.domain.reports import Report
from bot.domain.reports.escaping import moment
from bot.domain.reports.page import spans, summary_of

MAX_CELL_LENGTH = 160


def short_report(report: Report) -> Group:
    return Group(*(Padding(part, (1, 0, 0, 0)) for part in _parts(report)))


def _parts(report: Report) -> Iterator[Text | Table]:
    yield _head(report)
    yield _lines(report)
    yield _table(
        "Phases",
        ("began", "phase", "took"),
        [(_time(it.began_at), it.name, lasting(it.took_seconds)) for it in report.phases],
    )
    yield _table(
        "What people decided",
        ("at", "who", "what"),
        [(_time(it.at), report.people.get(it.who, it.who) or "nobody", it.what) for it in report.decisions],
    )


def _lines(report: Report) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, text in summary_of(report):
        table.add_row(Text(name, style="bold"), Text("".join(span.words for span in spans(text))))
    return table


def _head(report: Report) -> Text:
    chain = "consistent" if report.broken_at is None else f"broken at entry {report.broken_at}"
    acted, closed = lasting(report.act_seconds), lasting(report.close_seconds)
    return Text.assemble(
        (f"{report.incident} {report.title}", "bold"),
        f" on {report.target}, playbook {report.playbook}\n",
        f"opened {moment(report.opened_at)} UTC; a person acted after {acted}; closed after {closed}\n",
        f"timeline: {report.entries} entries, {chain}",
    )


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, heading in enumerate(headings):
        is_last = number == len(headings) - 1
        # Times and states matter most: they are not wrapped, and the last column takes the rest.
        table.add_column(heading, no_wrap=heading in ("at", "took", "state"), ratio=1 if is_last else None)
    for row in rows:
        table.add_row(*(Text(_short(cell)) for cell in row))
    return table


def _time(at: float) -> str:
    return moment(at).rsplit(" ", 1)[-1]


def _short(cell: str) -> str:
    if not cell:
        return "–"
    return cell if len(cell) <= MAX_CELL_LENGTH else cell[: MAX_CELL_LENGTH - 1].rsplit(maxsplit=1)[0] + " …"
