"""The report as a page, in whichever markup, and as JSON. Times are UTC; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.timeline import Chained, Entry, StoredHead
from bot.domain.reports.escaping import lasting, moment, one_line, read_at, reading
from bot.domain.reports.facts import Report, readings_of
from bot.domain.reports.markup import Markdown, Markup

DIGEST_SHOWN = 12
HEAD_SHOWN = 16
"""As long as on the messages in Slack."""


class Exported(BaseModel):
    model_config = ConfigDict(frozen=True)

    report: Report
    timeline: tuple[Chained, ...]


def as_json(entries: Sequence[Chained], stored: StoredHead | None = None) -> str:
    """The report and every entry of the timeline, for machines."""
    return Exported(report=Report.of(entries, stored), timeline=tuple(entries)).model_dump_json(indent=2) + "\n"


def markdown(entries: Sequence[Chained], stored: StoredHead | None = None) -> str:
    """A post-mortem's facts; its interpretation is for people."""
    return page(entries, Markdown(), stored=stored)


def page(entries: Sequence[Chained], m: Markup, picture: str = "", stored: StoredHead | None = None) -> str:
    """The same sections in every markup; `picture` stands behind the summary, as it is."""
    report = Report.of(entries, stored)
    name = " ".join(filter(None, (report.incident, report.title))) or "Incident"
    parts = [
        [m.title(name)],
        _summary(report, m),
        [picture] if picture else [],
        _section(m, "The path it took", _path(report, m)),
        _section(m, "What people decided", _decisions(report, m)),
        _section(m, "What was changed", _calls(report, m)),
        _section(m, "Readings, before and last", _readings(report, m)),
        _section(m, "What was checked", _verdicts(report, m)),
        _section(m, "Waiting for people", _waits(report, m)),
        _section(m, "Everything, in order", _timeline(report, entries, m)),
        _section(m, "Is this timeline whole?", _chain(report, m)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _section(m: Markup, heading: str, lines: list[str]) -> list[str]:
    return [m.heading(heading), "", *lines] if lines else []


def _summary(report: Report, m: Markup) -> list[str]:
    closed = f"{moment(report.closed_at)} UTC" if report.closed_at is not None else "still open"
    facts = [
        ("Target", m.code(report.target)),
        ("Severity", m.text(report.severity)),
        ("Alerts", m.text(", ".join(report.alerts))),
        ("Playbook", m.code(report.playbook)),
        ("Opened", f"{moment(report.opened_at)} UTC"),
        ("Closed", closed),
        ("Ending", m.strong(report.ending.replace("_", " ")) if report.ending else "–"),
        ("Until a person acted (MTTA)", lasting(report.act_seconds)),
        ("Until it was closed (MTTR)", lasting(report.close_seconds)),
        ("Waited for people", f"{lasting(report.waited_seconds)} in {len(report.waits)} requests and questions"),
        ("Still held by the bot", _held(report, m)),
        ("Late or strange events, changed nothing", str(report.ignored)),
        ("Timeline", f"{report.entries} entries, {_chain_word(report, m)}"),
    ]
    return m.facts(facts)


def _held(report: Report, m: Markup) -> str:
    if report.closed_at is None:
        return "its card in Slack says so while it is open"
    return m.text("; ".join(report.held)) if report.held else "nothing"


def _chain_word(report: Report, m: Markup) -> str:
    if report.broken_at is not None:
        return m.strong(f"broken at entry {report.broken_at}")
    if report.head_fault:
        return m.strong("does not end as the run says")
    return "consistent" if report.stored is None else "consistent, and ends as the run says"


def _who(report: Report, user: str, m: Markup) -> str:
    name = report.people.get(user, "")
    return f"{m.text(one_line(name, 80))} ({m.code(user)})" if name else m.code(user)


def _path(report: Report, m: Markup) -> list[str]:
    rows = [
        (str(number), m.code(visit.state), m.text(visit.kind), moment(visit.entered_at), lasting(visit.took_seconds),
         m.text(visit.because))
        for number, visit in enumerate(report.path, start=1)
    ]  # fmt: skip
    return m.table(("#", "state", "kind", "entered (UTC)", "took", "because"), rows) if rows else []


def _decisions(report: Report, m: Markup) -> list[str]:
    rows = [
        (moment(it.at), _who(report, it.who, m) if it.who else "nobody", m.text(it.what), m.text(it.reason),
         m.code(it.digest[:DIGEST_SHOWN]))
        for it in report.decisions
    ]  # fmt: skip
    return m.table(("time (UTC)", "who", "what", "reason", "plan"), rows) if rows else []


def _calls(report: Report, m: Markup) -> list[str]:
    rows = [
        (
            moment(it.at),
            m.code(it.call_id),
            m.text(it.text),
            m.lines([m.text(said) for said in it.differences]),
            m.text(it.detail),
        )
        for it in report.calls
    ]
    return m.table(("time (UTC)", "call", "what", "before → after", "answer"), rows) if rows else []


def _readings(report: Report, m: Markup) -> list[str]:
    rows = [
        (
            m.code(it.name),
            m.text(reading(it.baseline)),
            read_at(it.baseline),
            m.text(reading(it.last)),
            read_at(it.last),
        )
        for it in report.readings
    ]
    return m.table(("signal", "baseline", "read (UTC)", "last", "last read (UTC)"), rows) if rows else []


def _verdicts(report: Report, m: Markup) -> list[str]:
    rows = [
        (moment(it.at), m.code(it.state), m.text(it.verdict.replace("_", " ")),
         m.lines([f"{m.text(part)}: {m.text(said)}" for part, said in it.parts.items()]), m.text(it.text))
        for it in report.verdicts
    ]  # fmt: skip
    return m.table(("time (UTC)", "state", "verdict", "parts", "detail"), rows) if rows else []


def _waits(report: Report, m: Markup) -> list[str]:
    rows = [
        (m.code(it.about), moment(it.asked_at), lasting(None if it.ended_at is None else it.ended_at - it.asked_at),
         m.text(it.text))
        for it in report.waits
    ]  # fmt: skip
    return m.table(("what", "asked (UTC)", "took", "text"), rows) if rows else []


def _timeline(report: Report, entries: Sequence[Chained], m: Markup) -> list[str]:
    rows = [
        (str(item.number), moment(item.entry.at), item.entry.kind, m.code(item.entry.state),
         _who(report, item.entry.who, m) if item.entry.who else "bot", m.text(_told(item.entry)))
        for item in entries
    ]  # fmt: skip
    return m.table(("#", "time (UTC)", "kind", "state", "who", "what"), rows) if rows else []


def _told(entry: Entry) -> str:
    """The entry's line; for a read with what was read, since that is what decided."""
    if entry.kind != "read":
        return entry.text
    return "; ".join([entry.text, *(f"{name} {reading(it)}" for name, it in readings_of(entry).items())])


def _chain(report: Report, m: Markup) -> list[str]:
    if report.broken_at is None:
        whole = "Each entry carries the hash of the one before it, and they agree: the timeline is consistent."
    else:
        broken = m.strong(f"The chain is broken at entry {report.broken_at}.")
        whole = f"{broken} That entry or one before it was altered or removed."
    if report.stored is not None:
        ends = f"does not end as the run says: {report.head_fault}."
        whole += f" It {m.strong(ends)}" if report.head_fault else " It ends as the run itself says."
    if not report.heads:
        nobody = "No head of it was posted to Slack, so nothing outside can confirm that it is untouched."
        return [m.paragraph(whole), m.paragraph(nobody)]
    compare = (
        "These heads were posted to Slack, and what alters the storage does not alter Slack: "
        f"{m.code('incident-bot timeline verify')} compares them there."
    )
    lines = [m.paragraph(whole), "", m.paragraph(compare), ""]
    rows = [
        (str(head.entry), m.code(head.channel), m.code(head.message), m.code(head.head[:HEAD_SHOWN]),
         m.strong("matches no entry before it") if head.matches is None else f"is the hash of entry {head.matches}")
        for head in report.heads
    ]  # fmt: skip
    return [*lines, *m.table(("entry", "channel", "message", "head", "check"), rows)]
