"""Everything behind a message, on request: readings, reasons, the exact diff, circumstances and hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.escape import code, code_block, line
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.request_message import difference, text_to_commit
from bot.adapters.slack.outbound.words import GRADE_SIGNS, capitalized, moment, reasons_of, value
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import GRADES, Call
from bot.domain.incidents.run import Looked, News, Post, Run
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.listing import first_of
from bot.domain.playbooks import text_sizes
from bot.domain.signals.signal import READ_TOGETHER_SECONDS, Reading, unit_beside
from bot.domain.signals.window import clock

REASONS = 15
SENTENCES = ("summary", "detail")
"""Parts that say in words what the others say: they come first, without their name."""
MAX_EXIT_CHARACTERS = 700
"""Of the reasons for one exit; a recommendation without a possible option has one for each."""
NAMES = 12
"""How many names one reason is given for."""
ALL_OF_IT = "All of it is on the timeline: `/incident export`."
UnitOf = Callable[[str], str]
"""The unit of a part of a probe's answer, by `signal.part`; empty if it has none."""


def details(run: Run, about: str, unit_of: UnitOf) -> tuple[Block, ...]:
    """What is behind the message of this request, question or slot of the thread; empty if there is none."""
    post = next((each for each in run.posts if about in (each.slot, each.ref)), None)
    if post is None:
        return ()
    request, question = run.requests.get(about), run.questions.get(about)
    body = _of_request(request) if request is not None else []
    body += context(f"• {line(each, 300)}" for each in question.evidence) if question is not None else []
    body += _parts([News.model_validate(dump) for dump in post.data.get("news", ())])
    body += _looked(run, _looked_of(run, post), unit_of)
    head = str(post.data.get("head", ""))
    return limits.fitted(body, context([f"timeline {code(head[:16], 20)}" if head else "", ALL_OF_IT]))


def _of_request(request: Request) -> list[Block]:
    """The exact plan, what speaks for and against it, and the options that it was chosen from."""
    body: list[Block] = []
    for place, step in enumerate(request.plan.steps, start=1):
        body += section([f"{place}. {line(step.title, 400)}"])
        if isinstance(step, Call) and step.differences:
            body += section([code_block(map(difference, step.differences), limits.SECTION)])
    if request.plan.commit and request.status == "open":
        body += section(text_to_commit(request.plan, is_applied=False))
    weighed = sorted(request.plan.circumstances, key=lambda each: GRADES.index(each.grade), reverse=True)
    body += section([f"{GRADE_SIGNS[each.grade]} {line(each.text, 400)}" for each in weighed])
    for heading, options in _options(request):
        body += section([f"*{heading}*", *options]) if options else []
    checked = "Reason" if request.advice else "Checked again right before the first call"
    still = f"{checked}: {code(request.still, 300)}" if request.still else ""
    evidence = [f"• {line(each, 300)}" for each in request.evidence[:20]]
    return body + context([*evidence, still, f"plan {code(request.digest[:12])}"])


def _options(request: Request) -> list[tuple[str, list[str]]]:
    """What can be chosen before what cannot."""
    possible = [
        f"• *{line(each.label, 120)}*" + (f": {line(each.effect, text_sizes.EFFECT)}" if each.effect else "")
        for each in request.alternatives
        if not each.why_not
    ]
    impossible = [
        f"• {line(each.label, 120)}: {line(each.why_not, text_sizes.WHY_NOT)}"
        for each in request.alternatives
        if each.why_not
    ]
    return [("Other options", possible), ("Not possible now", impossible)]


def _parts(news: Iterable[News]) -> list[Block]:
    lines = [f"{code(name, 60)} {line(part, 300)}" for each in news for name, part in each.parts.items()]
    return section(["*Verdict*", *lines]) if lines else []


def _looked_of(run: Run, post: Post) -> Looked:
    """What was read for this message; a request shares it with the diagnosis above it."""
    before = reversed(run.posts[: run.posts.index(post) + 1])
    kept = (Looked.model_validate(each.data["looked"]) for each in before if "looked" in each.data)
    return next((each for each in kept if each != Looked()), Looked())


def _looked(run: Run, looked: Looked, unit_of: UnitOf) -> list[Block]:
    if not looked.readings:
        return []
    readings = list(looked.readings.values())
    newest = max((each.at for each in readings if each.is_known), default=0.0)
    body = section([f"*What was read* at {moment(newest)}" if newest else "*What was read*"])
    for heading, lines in _by_source(run, readings, newest, unit_of).items():
        body += context([heading, *lines])
    body += context(_unread(readings))
    return body + context([f"*{line(state, 60)}* {line(why, MAX_EXIT_CHARACTERS)}" for state, why in looked.decisions])


def _unread(readings: Iterable[Reading]) -> list[str]:
    """One line per reason, since several signals often share one."""
    names: dict[str, list[str]] = {}
    for reading in readings:
        for name, why in reasons_of(reading):
            names.setdefault(why, []).append(name)
    lines = [f"❓ {_listed(each)}: {line(why, 160)}" for why, each in names.items()]
    return lines[:REASONS] + ([f"❓ … and {len(lines) - REASONS} more reasons"] if len(lines) > REASONS else [])


def _listed(names: Sequence[str]) -> str:
    return first_of([line(capitalized(name), 80) for name in names], NAMES)


def _by_source(run: Run, readings: Iterable[Reading], newest: float, unit_of: UnitOf) -> dict[str, list[str]]:
    """One line per reading, under where it is from: it can be read on a phone, where a table cannot."""
    found: dict[str, list[str]] = {}
    for each in readings:
        if each.is_known and (text := _described(run, each, unit_of)):
            over = f" over {lasting(each.window_seconds)}" if each.window_seconds else ""
            at = f" at {clock(each.at, newest)} UTC" if each.at and newest - each.at > READ_TOGETHER_SECONDS else ""
            found.setdefault(f"*{capitalized(line(each.source, 60))}*{over}{at}", []).append(text)
    return found


def _described(run: Run, reading: Reading, unit_of: UnitOf) -> str:
    """`• Preemptions: 3.6 per finished request (3.5 before)`; parts in words; empty if nothing of it is known."""
    old = run.findings.baseline.get(reading.name)
    unit = unit_beside(reading.called, reading.unit)
    then = value(old.value, unit) if old is not None and old.is_known and old.value is not None else ""
    now = value(reading.value, unit) if reading.value is not None else ""
    before = f" ({then.removesuffix(f' {unit}')} before)" if then and then != now else ""
    shown = [now + before] if now else []
    parts = sorted(reading.fields.items(), key=lambda part: part[0] not in SENTENCES)
    shown += [
        value(part)
        if name in SENTENCES
        else f"{name.replace('_', ' ')}: {value(part, unit_of(f'{reading.name}.{name}'))}"
        for name, part in parts
        if part != ""
    ]
    return (
        f"• {line(capitalized(reading.called.replace('_', ' ')), 80)}: {line(', '.join(shown), 400)}" if shown else ""
    )
