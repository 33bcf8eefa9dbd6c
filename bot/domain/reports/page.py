"""What the pages of a report say, whatever format they are written in, and the report as JSON. Times are UTC."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from bot.domain.kernel.durations import lasting
from bot.domain.kernel.runbook import RelatedRunbook, Runbook
from bot.domain.kernel.timeline import Chained, Entry, StoredHead
from bot.domain.reports.escaping import moment, one_line, read_at, reading
from bot.domain.reports.facts import Applied, Compared, Diagnosed, Report
from bot.domain.reports.reading import readings_of, report_of
from bot.domain.reports.roles import Roles

_MENTION = re.compile(r"<@([UW][A-Z0-9]+)>")
DIGEST_SHOWN = 12
MAX_TITLE = 300
MAX_NAME = 200
HEAD_SHOWN = 16
"""As long as on the messages in Slack."""


class Exported(BaseModel):
    model_config = ConfigDict(frozen=True)

    report: Report
    timeline: tuple[Chained, ...]


def as_json(entries: Sequence[Chained], stored: StoredHead | None = None, roles: Roles | None = None) -> str:
    """The report and every entry of the timeline, for machines. `roles`: without names of people."""
    report, shown = _report(entries, stored, roles)
    return Exported(report=report, timeline=tuple(shown)).model_dump_json(indent=2) + "\n"


def _report(
    entries: Sequence[Chained], stored: StoredHead | None, roles: Roles | None
) -> tuple[Report, Sequence[Chained]]:
    """What the timeline says, which is checked with its names."""
    report = report_of(entries, stored)
    return (report, entries) if roles is None else (roles.of(report), [roles.of(each) for each in entries])


class Span(NamedTuple):
    """Words on one line, not escaped: each format does that for itself."""

    words: str
    style: Literal["", "code", "strong", "br", "link"] = ""
    url: str = ""
    """Of a link: safe as it is."""


Cell = tuple[Span, ...]
Row = tuple[str | Cell, ...]
"""Plain strings are text as it came."""
NONE = "–"


class Section(NamedTuple):
    heading: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    paragraphs: tuple[Cell, ...] = ()


class Page(NamedTuple):
    title: str
    summary: tuple[tuple[str, str | Cell], ...]
    """Five lines that say it all."""
    facts: tuple[tuple[str, str | Cell], ...]
    sections: tuple[Section, ...]
    appendix: tuple[Section, ...]
    """Everything, state by state, for those who check."""


def spans(cell: str | Cell) -> Cell:
    return (Span(one_line(cell)),) if isinstance(cell, str) else cell


def page_of(entries: Sequence[Chained], stored: StoredHead | None = None, roles: Roles | None = None) -> Page:
    """A post-mortem's facts; its interpretation is for people."""
    report, entries = _report(entries, stored, roles)
    sections = (_phases(report), _decisions(report), _calls(report), _follow_ups(report))
    appendix = (
        _path(report),
        _readings(report),
        _verdicts(report),
        _waits(report),
        _timeline(report, entries),
        _chain(report),
    )
    called = report.called
    if report.diagnosis is not None and report.diagnosis.title and report.target:
        called = f"{report.target.rpartition('/')[2]}: {called}"
    title = one_line(" ".join(filter(None, (report.incident, called))) or "Incident", MAX_TITLE)
    return Page(title, summary_of(report), _facts(report), _filled(sections), _filled(appendix))


def _filled(sections: Iterable[Section]) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.rows or section.paragraphs)


# --- the first page ---------------------------------------------------------------------------------------------------


def summary_of(report: Report) -> tuple[tuple[str, str | Cell], ...]:
    diagnosis = report.diagnosis
    users = [diagnosis.users if diagnosis is not None else "", report.users_at_the_end]
    began, *ended = dict.fromkeys(each for each in users if each) or ["not known"]
    felt = began + "".join(f"; at the end {each[:1].lower()}{each[1:]}" for each in ended)
    if report.closed_at is None:
        felt += " at the diagnosis" if felt == users[0] else ""
        lasted = f"began {moment(report.began_at)} UTC and is still open"
    else:
        lasted = f"lasted from {moment(report.began_at)} to {_beside(report.closed_at, report.began_at)} UTC"
    cause = [diagnosis.cause, _checked(diagnosis)] if diagnosis is not None else []
    fixed = "; ".join(f"{it.title} ({_approved(report, it)})" for it in report.applied)
    # What was verified under load is calm: its alert follows, by the window of its rule.
    firing = () if report.ending == "fixed" else report.firing_at_the_end
    return (
        ("What happened", _happened(report)),
        ("Users", f"{felt}. The incident {lasted}"),
        ("Cause", " ".join(filter(None, cause)) or "not known"),
        ("What was done", fixed or ("a change began and did not end" if report.held else "nothing was changed")),
        ("Still in place", _held(report)),
        *((("Still firing", ", ".join(firing)),) if firing else ()),
    )


def _beside(at: float, begin: float) -> str:
    """A moment without its date where that is the date of `begin`."""
    date, _, time = moment(at).partition(" ")
    return time if time and date == moment(begin).partition(" ")[0] else moment(at)


def _asked(count: int) -> str:
    return "1 request or question" if count == 1 else f"{count} requests and questions"


def _happened(report: Report) -> str:
    what = report.called
    # An alert's own words may name the workload.
    is_named = what == report.title and report.target.rpartition("/")[2] in what
    where = f" on {report.target}" if report.target and report.diagnosis is not None and not is_named else ""
    by = f", opened by {', '.join(report.alerts)}" if report.alerts else ""
    closed = f"; {report.ending_in_words} {_lasted(report, report.closed_at)}" if report.closed_at is not None else ""
    return f"{what[:1].upper()}{what[1:]}{where}{by}{closed}"


def _lasted(report: Report, closed_at: float) -> str:
    lasted = lasting(closed_at - report.began_at)
    return f"{lasted} after the alert" if report.alerts else f"after {lasted}"


def _checked(diagnosis: Diagnosed) -> str:
    results = (
        ("Found", diagnosis.found),
        ("Ruled out", diagnosis.ruled_out),
        ("Could not be ruled out", diagnosis.unknown),
    )
    return " ".join(f"{heading}: {', '.join(names)}." for heading, names in results if names)


def _approved(report: Report, applied: Applied) -> str:
    names = [report.people.get(user, user) for user in applied.by]
    return f"approved by {', '.join(names)}" if names else "no approval needed"


def _phases(report: Report) -> Section:
    rows = [(it.name, moment(it.began_at), lasting(it.took_seconds)) for it in report.phases]
    return Section("Phases", ("phase", "began (UTC)", "took"), rows)


def _follow_ups(report: Report) -> Section:
    rows = [(it.text, _who(report, it.who, "suggested by the timeline")) for it in report.follow_ups]
    return Section("Follow-ups", ("what", "who"), rows)


# --- its parts --------------------------------------------------------------------------------------------------------


def _code(raw: str) -> Cell:
    """A name that the bot or a playbook made."""
    shown = one_line(raw, MAX_NAME)
    return (Span(shown, "code"),) if shown else (Span(NONE),)


def _strong(raw: str) -> Cell:
    return (Span(one_line(raw), "strong"),)


def _lines(each: Iterable[Cell]) -> Cell:
    return tuple(span for line in each for span in (Span("", "br"), *line))[1:]


def _facts(report: Report) -> tuple[tuple[str, str | Cell], ...]:
    closed = f"{moment(report.closed_at)} UTC" if report.closed_at is not None else "still open"
    return (
        ("Target", _code(report.target)),
        ("Severity", report.severity),
        ("Alerts", ", ".join(report.alerts)),
        *((("Links", _joined(_linked(it.label, it.url) for it in report.links)),) if report.links else ()),
        ("Playbook", _code(report.playbook)),
        *((("Related runbooks", _joined(map(_related, report.related))),) if report.related else ()),
        ("Began", f"{moment(report.began_at)} UTC"),
        ("Opened", f"{moment(report.opened_at)} UTC"),
        ("Closed", closed),
        ("Ending", _strong(report.ending_in_words) if report.ending else NONE),
        ("Opening to the first action (MTTA)", lasting(report.act_seconds)),
        ("Opening to the close (MTTR)", lasting(report.close_seconds)),
        ("Waited for people", f"{lasting(report.waited_seconds)} in {_asked(len(report.waits))}"),
        ("Changes in place", _held(report)),
        ("Events that were ignored", str(report.ignored)),
        ("Timeline", (Span(f"{report.entries} entries, "), *_chain_word(report))),
    )


def _linked(words: str, url: str) -> Cell:
    shown = one_line(words, MAX_NAME)
    return (Span(shown, "link", url),) if url else (Span(shown),)


def _related(runbook: RelatedRunbook) -> Cell:
    followed = (Span(" ("), *_code(runbook.playbook), Span(")")) if runbook.playbook else ()
    return (*_linked(runbook.runbook, runbook.link), *followed)


def _joined(each: Iterable[Cell]) -> Cell:
    return tuple(span for cell in each for span in (Span(", "), *cell))[1:]


def _held(report: Report) -> str:
    return "; ".join(report.held) or ("nothing so far" if report.closed_at is None else "nothing")


def _chain_word(report: Report) -> Cell:
    if report.broken_at is not None:
        return _strong(f"broken at entry {report.broken_at}")
    if report.head_fault:
        return _strong("its end does not match the stored incident")
    return spans("consistent" if report.stored is None else "consistent, and its end matches the stored incident")


def _who(report: Report, user: str, nobody: str) -> str | Cell:
    if not user:
        return nobody
    name = report.people.get(user, "")
    return (Span(f"{one_line(name, 80)} ("), *_code(user), Span(")")) if name else _code(user)


def _path(report: Report) -> Section:
    rows: list[Row] = [
        (str(number), _code(visit.state), visit.kind, moment(visit.entered_at), lasting(visit.took_seconds),
         visit.because, _step(visit.runbook))
        for number, visit in enumerate(report.path, start=1)
    ]  # fmt: skip
    columns: tuple[str, ...] = ("#", "state", "kind", "entered (UTC)", "took", "because", "runbook")
    if not any(visit.runbook for visit in report.path):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return Section("The path it took", columns, rows)


def _step(runbook: Runbook | None) -> Cell:
    return _linked(runbook.step, runbook.link) if runbook else ()


def _named(report: Report, text: str) -> str:
    """Puts names in place of mentions, which are ids outside Slack."""
    return _MENTION.sub(lambda found: report.people.get(found[1], found[1]), text)


def _decisions(report: Report) -> Section:
    rows = [
        (
            moment(it.at),
            _who(report, it.who, "nobody"),
            _named(report, it.what),
            it.reason,
            _code(it.digest[:DIGEST_SHOWN]),
        )
        for it in report.decisions
    ]
    return Section("What people decided", ("time (UTC)", "who", "what", "reason or permission", "plan"), rows)


def _calls(report: Report) -> Section:
    rows = [
        (moment(it.at), _code(it.call_id), it.text, _lines(map(spans, it.differences)), it.detail)
        for it in report.calls
    ]
    return Section("What was changed", ("time (UTC)", "call", "what", "before → after", "answer"), rows)


def _signal(compared: Compared) -> str | Cell:
    read = compared.last or compared.baseline
    return read.label if read is not None and read.label else _code(compared.name)


def _readings(report: Report) -> Section:
    rows = [
        (_signal(it), reading(it.baseline), read_at(it.baseline), reading(it.last), read_at(it.last))
        for it in report.readings
    ]
    columns = ("signal", "baseline", "read (UTC)", "last", "last read (UTC)")
    return Section("Readings, before and last", columns, rows)


def _verdicts(report: Report) -> Section:
    rows = [
        (moment(it.at), _code(it.state), it.verdict.replace("_", " "), _lines(map(_part, it.parts.items())), it.text)
        for it in report.verdicts
    ]
    return Section("What was checked", ("time (UTC)", "state", "verdict", "parts", "detail"), rows)


def _part(part: tuple[str, str]) -> Cell:
    name, verdict = part
    return (*spans(name), Span(": "), *spans(verdict))


def _waits(report: Report) -> Section:
    rows = [
        (_code(it.about), moment(it.asked_at), lasting(None if it.ended_at is None else it.ended_at - it.asked_at),
         it.text)
        for it in report.waits
    ]  # fmt: skip
    return Section("Waiting for people", ("what", "asked (UTC)", "took", "text"), rows)


def _timeline(report: Report, entries: Sequence[Chained]) -> Section:
    rows = [
        (str(item.number), moment(item.entry.at), item.entry.kind, _code(item.entry.state),
         _who(report, item.entry.who, "bot"), _named(report, _text(item.entry)))
        for item in entries
    ]  # fmt: skip
    return Section("Everything, in order", ("#", "time (UTC)", "kind", "state", "who", "what"), rows)


def _text(entry: Entry) -> str:
    """The entry's line; for a read with what was read, since that is what decided."""
    if entry.kind != "read":
        return entry.text
    return "; ".join([entry.text, *(f"{name} {reading(it)}" for name, it in readings_of(entry).items())])


def _chain(report: Report) -> Section:
    rows = [
        (str(head.entry), _code(head.channel), _code(head.message), _code(head.head[:HEAD_SHOWN]),
         _strong("matches no entry before it") if head.matches is None else f"is the hash of entry {head.matches}")
        for head in report.heads
    ]  # fmt: skip
    columns = ("entry", "channel", "message", "head", "check")
    return Section("Is this timeline whole?", columns, rows, (_whole(report), _confirmed(report)))


def _whole(report: Report) -> Cell:
    if report.broken_at is None:
        cell = spans("Each entry carries the hash of the one before it, and they agree: the timeline is consistent.")
    else:
        broken = _strong(f"The chain is broken at entry {report.broken_at}.")
        cell = (*broken, Span(" That entry or one before it was altered or removed."))
    if report.stored is None:
        return cell
    if not report.head_fault:
        return (*cell, Span(" Its end matches the stored incident."))
    return (*cell, Span(" "), *_strong(f"Its end does not match the stored incident: {report.head_fault}."))


def _confirmed(report: Report) -> Cell:
    if not report.heads:
        return spans("No head of it was posted to Slack, so nothing outside can confirm that it is untouched.")
    why = "These heads were posted to Slack, and what alters the storage does not alter Slack: "
    return (Span(why), *_code("incident-bot timeline verify"), Span(" compares them there."))
