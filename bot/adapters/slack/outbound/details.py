"""Everything behind a message, on request: readings, reasons, the exact diff, circumstances and hashes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.adapters.slack import limits
from bot.adapters.slack.escape import code, code_block, line
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.request_message import difference
from bot.adapters.slack.outbound.words import GRADES, moment, reasons_of, rows_of, table
from bot.domain.approvals.grant import Request
from bot.domain.changes.plan import Call
from bot.domain.incidents.run import Looked, News, Post, Run
from bot.domain.playbooks import text_sizes
from bot.domain.signals.signal import Reading
from bot.domain.signals.window import clock, short

WORST_FIRST = ("warning", "note", "fine")
ROWS, REASONS = 20, 15
NAMES = 12
"""How many names one reason is given for."""
WIDEST = 30
ALL_OF_IT = "All of it is on the timeline: `/incident export`."


def details(run: Run, about: str) -> tuple[Block, ...]:
    """What is behind the message of this request, question or slot of the thread; empty if there is none."""
    post = next((each for each in run.posts if about in (each.slot, each.ref)), None)
    if post is None:
        return ()
    request, question = run.requests.get(about), run.questions.get(about)
    body = _of_request(request) if request is not None else []
    body += context(f"• {line(each, 300)}" for each in question.evidence) if question is not None else []
    body += _parts([News.model_validate(dump) for dump in post.data.get("news", ())])
    body += _looked(run, _looked_of(run, post))
    head = str(post.data.get("head", ""))
    return limits.fitted(body, context([f"timeline {code(head[:16], 20)}" if head else "", ALL_OF_IT]))


def _of_request(request: Request) -> list[Block]:
    """The exact plan, what speaks for and against it, and the options that it was chosen from."""
    body: list[Block] = []
    for place, step in enumerate(request.plan.steps, start=1):
        body += section([f"{place}. {line(step.title, 400)}"])
        if isinstance(step, Call) and step.differences:
            body += section([code_block(map(difference, step.differences), limits.SECTION)])
    weighed = sorted(request.plan.circumstances, key=lambda each: WORST_FIRST.index(each.grade))
    body += section([f"{GRADES[each.grade]} {line(each.text, 400)}" for each in weighed])
    options = [_option(each.label, each.effect, each.why_not) for each in request.alternatives]
    body += section(["*Other options*", *options]) if options else []
    checked = "Reason" if request.advice else "Checked again right before the first call"
    still = f"{checked}: {code(request.still, 300)}" if request.still else ""
    evidence = [f"• {line(each, 300)}" for each in request.evidence[:20]]
    return body + context([*evidence, still, f"plan {code(request.digest[:12])}"])


def _option(label: str, effect: str, why_not: str) -> str:
    if why_not:
        return f"• {line(label, 120)} — _not possible: {line(why_not, text_sizes.WHY_NOT)}_"
    return f"• *{line(label, 120)}*" + (f": {line(effect, text_sizes.EFFECT)}" if effect else "")


def _parts(news: Iterable[News]) -> list[Block]:
    lines = [f"{code(name, 60)} {line(part, 300)}" for each in news for name, part in each.parts.items()]
    return section(["*Verdict*", *lines]) if lines else []


def _looked_of(run: Run, post: Post) -> Looked:
    """What was read for this message; a request shares it with the diagnosis above it."""
    before = reversed(run.posts[: run.posts.index(post) + 1])
    kept = (Looked.model_validate(each.data["looked"]) for each in before if "looked" in each.data)
    return next((each for each in kept if each != Looked()), Looked())


def _looked(run: Run, looked: Looked) -> list[Block]:
    if not looked.readings:
        return []
    readings = list(looked.readings.values())
    newest = max((each.at for each in readings if each.is_known), default=0.0)
    body = section([f"*What was read* at {moment(newest)}" if newest else "*What was read*"])
    rows = [row for each in readings if each.is_known for row in _rows(run, each, newest)]
    heads = ("signal", "value", "before", "window", "from", "at (UTC)")
    for start in range(0, len(rows), ROWS):
        body += section([code_block(table(heads, rows[start : start + ROWS], widest=WIDEST), limits.SECTION)])
    body += context(_unread(readings))
    return body + context([f"*{line(state, 60)}* {line(why, 200)}" for state, why in looked.ways])


def _unread(readings: Iterable[Reading]) -> list[str]:
    """One line per reason, since several signals often share one."""
    names: dict[str, list[str]] = {}
    for reading in readings:
        for name, why in reasons_of(reading):
            names.setdefault(why, []).append(name)
    lines = [f"❓ {_listed(each)}: {line(why, 160)}" for why, each in names.items()]
    return lines[:REASONS] + ([f"❓ … and {len(lines) - REASONS} more reasons"] if len(lines) > REASONS else [])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(code(name, 80) for name in names[:NAMES]) + more


def _rows(run: Run, reading: Reading, newest: float) -> list[tuple[str, ...]]:
    old = run.findings.baseline.get(reading.name)
    before = dict(rows_of(old)) if old is not None and old.is_known else {}
    window = short(reading.window_seconds) if reading.window_seconds else ""
    at = clock(reading.at, newest) if reading.at else ""
    shown = [(name, text) for name, text in rows_of(reading) if text != "?"]
    return [
        (name, text, then if (then := before.get(name, "")) != text else "", window, reading.source, at)
        for name, text in shown
    ]
