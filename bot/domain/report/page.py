"""The report as a Markdown page and as JSON. Times are UTC; every text from outside is escaped."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from bot.domain.report.escaping import code, lasting, moment, reading, table, text
from bot.domain.report.facts import Report, readings_of
from bot.domain.timeline import Chained, Entry

DIGEST_SHOWN = 12
HEAD_SHOWN = 16
"""As long as on the messages in Slack."""


class Exported(BaseModel):
    model_config = ConfigDict(frozen=True)

    report: Report
    timeline: tuple[Chained, ...]


def as_json(entries: Sequence[Chained]) -> str:
    """The report and every entry of the timeline, for machines."""
    return Exported(report=Report.of(entries), timeline=tuple(entries)).model_dump_json(indent=2) + "\n"


def markdown(entries: Sequence[Chained]) -> str:
    """A post-mortem's facts; its interpretation is for people."""
    report = Report.of(entries)
    name = " ".join(filter(None, (report.incident, report.title))) or "Incident"
    parts = [
        [f"# {text(name, 300)}"],
        _summary(report),
        _section("The way it went", _way(report)),
        _section("What people decided", _decisions(report)),
        _section("What was changed", _calls(report)),
        _section("Readings, before and last", _readings(report)),
        _section("What was checked", _verdicts(report)),
        _section("Waiting for people", _waits(report)),
        _section("Everything, in order", _timeline(report, entries)),
        _section("Is this timeline whole?", _chain(report)),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _section(heading: str, lines: list[str]) -> list[str]:
    return [f"## {heading}", "", *lines] if lines else []


def _summary(report: Report) -> list[str]:
    closed = f"{moment(report.closed_at)} UTC" if report.closed_at is not None else "still open"
    facts = [
        ("Target", code(report.target)),
        ("Severity", text(report.severity)),
        ("Alerts", text(", ".join(report.alerts))),
        ("Playbook", code(report.playbook)),
        ("Opened", f"{moment(report.opened_at)} UTC"),
        ("Closed", closed),
        ("Ending", f"**{text(report.ending.replace('_', ' '))}**" if report.ending else "–"),
        ("Until a person acted (MTTA)", lasting(report.act_seconds)),
        ("Until it was closed (MTTR)", lasting(report.close_seconds)),
        ("Waited for people", f"{lasting(report.waited_seconds)} in {len(report.waits)} requests and questions"),
        ("Still held by the bot", _held(report)),
        ("Late or strange events, changed nothing", str(report.ignored)),
        ("Timeline", f"{report.entries} entries, {_chain_word(report)}"),
    ]
    return table(("fact", "value"), facts)


def _held(report: Report) -> str:
    if report.closed_at is None:
        return "its card in Slack says so while it is open"
    return text("; ".join(report.held)) if report.held else "nothing"


def _chain_word(report: Report) -> str:
    return "consistent" if report.broken_at is None else f"**broken at entry {report.broken_at}**"


def _who(report: Report, user: str) -> str:
    name = report.people.get(user, "")
    return f"{text(name, 80)} ({code(user)})" if name else code(user)


def _way(report: Report) -> list[str]:
    rows = [
        (str(number), code(visit.state), text(visit.kind), moment(visit.entered_at), lasting(visit.took_seconds),
         text(visit.because))
        for number, visit in enumerate(report.way, start=1)
    ]  # fmt: skip
    return table(("#", "state", "kind", "entered (UTC)", "took", "because"), rows) if rows else []


def _decisions(report: Report) -> list[str]:
    rows = [
        (moment(it.at), _who(report, it.who) if it.who else "nobody", text(it.what), text(it.reason),
         code(it.digest[:DIGEST_SHOWN]))
        for it in report.decisions
    ]  # fmt: skip
    return table(("time (UTC)", "who", "what", "reason", "plan"), rows) if rows else []


def _calls(report: Report) -> list[str]:
    rows = [
        (moment(it.at), code(it.call_id), text(it.text), "<br>".join(map(text, it.differences)), text(it.detail))
        for it in report.calls
    ]
    return table(("time (UTC)", "call", "what", "before → after", "answer"), rows) if rows else []


def _readings(report: Report) -> list[str]:
    rows = [(code(it.name), text(reading(it.baseline)), text(reading(it.last))) for it in report.readings]
    return table(("signal", "baseline", "last"), rows) if rows else []


def _verdicts(report: Report) -> list[str]:
    rows = [
        (moment(it.at), code(it.state), text(it.verdict.replace("_", " ")),
         "<br>".join(f"{text(part)}: {text(said)}" for part, said in it.parts.items()), text(it.text))
        for it in report.verdicts
    ]  # fmt: skip
    return table(("time (UTC)", "state", "verdict", "parts", "detail"), rows) if rows else []


def _waits(report: Report) -> list[str]:
    rows = [
        (code(it.about), moment(it.asked_at), lasting(None if it.ended_at is None else it.ended_at - it.asked_at),
         text(it.text))
        for it in report.waits
    ]  # fmt: skip
    return table(("what", "asked (UTC)", "took", "text"), rows) if rows else []


def _timeline(report: Report, entries: Sequence[Chained]) -> list[str]:
    rows = [
        (str(item.number), moment(item.entry.at), item.entry.kind, code(item.entry.state),
         _who(report, item.entry.who) if item.entry.who else "bot", text(_told(item.entry)))
        for item in entries
    ]  # fmt: skip
    return table(("#", "time (UTC)", "kind", "state", "who", "what"), rows) if rows else []


def _told(entry: Entry) -> str:
    """The entry's line; for a read with what was read, since that is what decided."""
    if entry.kind != "read":
        return entry.text
    return "; ".join([entry.text, *(f"{name} {reading(it)}" for name, it in readings_of(entry).items())])


def _chain(report: Report) -> list[str]:
    if report.broken_at is None:
        lines = ["Each entry carries the hash of the one before it, and they agree: the timeline is consistent."]
    else:
        lines = [
            f"**The chain is broken at entry {report.broken_at}.** That entry or one before it was altered or removed."
        ]
    if not report.heads:
        return [*lines, "No head of it was posted to Slack, so nothing outside can confirm that it is untouched."]
    lines += [
        "",
        "These heads were posted to Slack. Compare them there: whoever can alter the storage cannot alter Slack.",
        "",
    ]
    rows = [
        (str(head.entry), code(head.channel), code(head.message), code(head.head[:HEAD_SHOWN]),
         "**matches no entry before it**" if head.matches is None else f"is the hash of entry {head.matches}")
        for head in report.heads
    ]  # fmt: skip
    return [*lines, *table(("entry", "channel", "message", "head", "check"), rows)]
