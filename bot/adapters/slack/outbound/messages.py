"""Renders a run for Slack: its card and the messages of its thread, in order.

Pure and derived from the run alone: the same run gives the same messages, so a changed hash marks a stale message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.adapters.slack import limits
from bot.adapters.slack.escape import (
    channel_mention,
    code,
    code_block,
    is_link,
    line,
    link,
    mention,
    of_id,
    plain,
    prose,
    runbook_step,
)
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import (
    actions,
    button,
    confirm,
    context,
    divider,
    fields,
    header,
    link_button,
    section,
)
from bot.adapters.slack.outbound.numbers import last_read, numbers, of_last_look, what_was_read, when
from bot.adapters.slack.outbound.request_message import missing_teams, people_of, pinged, request_blocks, request_text
from bot.adapters.slack.outbound.words import OUTCOMES, PARTS, SEVERITIES, day, moment, span
from bot.adapters.slack.press_value import CHOOSE, FILL, SAY, SEE, ButtonValue
from bot.domain.incidents.run import Post, Question, Run
from bot.domain.kernel.links import links_of
from bot.domain.playbooks import text_sizes
from bot.domain.signals.signal import Reading

CARD = "card"
INCIDENT_CHANNEL = "channel"
PATH_ON_CARD = 4
CHOICES = 50
PATCH_CHARACTERS = 2_900
LINKS_CHARACTERS = 2_000
"""Of all links on a card, with their addresses."""

SLACK_ID = re.compile(r"[UWS](?=[A-Z]*[0-9])[A-Z0-9]{3,20}")
"""A person or a user group, but not a word in capitals."""

GOOD_ENDINGS = frozenset({"fixed", "self_cleared", "resolved_by_itself", "resolved_after_a_change"})


@dataclass(frozen=True)
class Message:
    """`text` is for notifications and screen readers; `blocks` is what people see."""

    text: str
    blocks: tuple[Block, ...]

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps([self.text, self.blocks], sort_keys=True).encode()).hexdigest()

    def as_plain_text(self) -> Message:
        """The fallback for blocks that Slack refused, with a note that it has no buttons."""
        note = "\n(Slack refused the layout of this message, so it has no buttons; see `/incident show`.)"
        return Message(self.text[: limits.TEXT - len(note)] + note, ())


def card(run: Run, *, links: Mapping[str, str]) -> Message:
    """The incident's one message in the channel; `links` maps a slot of the thread to its address.

    It also maps `INCIDENT_CHANNEL` to the id of the incident's own channel, if there is one.
    """
    title = f"{sign_of(run)} {run.incident_id} · {run.title}"
    now = now_line(run, links)
    moved = numbers(run.findings.baseline, run.latest)
    body: list[Block] = [header(title), *section([now]), *fields(moved)]
    body += context([_sentence(when(run.findings.baseline, run.latest))]) if moved else []
    body += _banners(run)
    body += section(_held(run))
    own = links.get(INCIDENT_CHANNEL, "")
    body += section([*_facts(run), f"Everything else is in {channel_mention(own)}" if own else ""])
    step = f" · 📋 {runbook_step(run.runbook)}" if run.runbook else ""
    foot = [*context([f"*{line(run.playbook, 80)}* {_path(run)}{step}", *_links(run)]), *_handles(run, links)]
    text = f"{line(title, 300)}: {line(run.target, 200)}: {now}"
    return Message(text[: limits.TEXT], limits.fitted(body, foot))


def thread(run: Run) -> tuple[tuple[str, Message], ...]:
    """Every message of the thread with its slot, in order of appearance."""
    return tuple((post.slot, _RENDERERS[post.kind](run, post)) for post in run.posts)


# --- the card --------------------------------------------------------------------------------------------------------


def sign_of(run: Run) -> str:
    if run.is_open:
        return SEVERITIES[run.severity]
    return "✅" if run.ending in GOOD_ENDINGS else "⚪"


def _facts(run: Run) -> list[str]:
    """Target, start, severity, lead and alerts, two per line, since phones are narrow."""
    where = code(run.target.workload, 200) + (f" in {line(run.target.cluster, 80)}" if run.target.cluster else "")
    if not run.target.resolved:
        where += " (from the alert's labels only)"
    lead = f"{mention(run.lead)} leads" if run.lead else "no lead yet" if run.is_open else "no lead"
    return [f"{where} · since {day(run.starts_at)}", f"severity *{run.severity}* · {lead}", _pages(run), _alerts(run)]


def _links(run: Run) -> list[str]:
    """The alerts' runbooks and queries and the dashboard, on one line; an address that is too long is left out."""
    every = links_of(run.alerts.values(), run.dashboard, starts_at=run.starts_at, closed_at=run.closed_at)
    shown: list[str] = []
    for each in every:
        made = link(line(each.label, 80), each.url)
        if len(" · ".join([*shown, made])) <= LINKS_CHARACTERS:
            shown.append(made)
    return [f"🔗 {' · '.join(shown)}"] if shown else []


def _pages(run: Run) -> str:
    """Who was paged, and whether somebody answered."""
    states = {"trigger": "nobody has answered yet", "acknowledge": "answered", "resolve": "over"}
    sent = [page for page in run.pages.values() if page.sent is not None]
    each = (f"{line(page.team, 40)} at {moment(page.since)} ({states[page.sent or 'trigger']})" for page in sent)
    return f"📣 Paged {', '.join(each)}" if sent else ""


def _alerts(run: Run) -> str:
    if not run.alerts:
        return ""
    firing = sum(1 for alert in run.alerts.values() if alert.status == "firing")
    names = sorted({line(alert.name, 60) for alert in run.alerts.values()})
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    counts = (f"{firing} firing" * bool(firing), f"{len(run.alerts) - firing} resolved" * (firing < len(run.alerts)))
    return f"{'🔔' if firing else '🔕'} {', '.join(filter(None, counts))}: {', '.join(names[:3])}{more}"


def now_line(run: Run, links: Mapping[str, str]) -> str:
    """What the incident waits for, and until when, in one line."""
    if run.closed_at is not None:
        lasted = span(run.closed_at - run.opened_at)
        return f"Closed as *{_words(run.ending)}* · {day(run.closed_at)} · after {lasted}"
    return f"{_parked(run)}{_waits_for(run, links)}"


def _parked(run: Run) -> str:
    return "🅿️ Parked · " if run.parked is not None else ""


def _waits_for(run: Run, links: Mapping[str, str]) -> str:
    if (question := run.open_question) is not None:
        ask = linked(line(_sentence(question.text), 200), links.get(f"question:{question.question_id}"))
        return f"❓ Waiting for an answer{_until(question.expires_at)}: {ask}"
    if (request := run.open_request) is not None:
        what = linked(line(request.plan.title, 200), links.get(f"request:{request.request_id}"))
        by = f" by {teams}" if (teams := missing_teams(request)) else ""
        return f"⏳ Waiting for approval of {what}{by}{_until(request.expires_at)}"
    if (advised := run.advised) is not None:
        what = linked(line(advised.plan.title, 200), links.get(f"request:{advised.request_id}"))
        progress = f": {line(run.change.progress, 300)}" if run.change is not None and run.change.progress else ""
        until = f" until {moment(run.watch.until)}" if run.watch is not None else ""
        return f"👀 Would propose {what}, and changes nothing; watches whether it recovers{until}{progress}"
    if run.change is not None:
        progress = f": {line(run.change.progress, 300)}" if run.change.progress else ""
        return f"🔧 {'Applying' if run.change.begun else 'Planning'} {code(run.change.verb)}{progress}"
    if run.watch is not None:
        progress = f": {line(run.watch.progress, 300)}" if run.watch.progress else ""
        doing = f"*{line(run.doing, 150)}*" if run.doing else f"Watching {code(run.state)}"
        return f"👀 {doing}, at most until {moment(run.watch.until)}{progress}"
    return (
        f"🔎 *{line(run.doing, 150)}*"
        if run.doing
        else f"🔎 Reading for {code(run.state)}"
        if run.state
        else "🔎 Reading"
    )


def _handles(run: Run, links: Mapping[str, str]) -> list[Block]:
    """The buttons of a card: open what waits, take the lead, and halt; each runs its `/incident` command."""
    if not run.is_open:
        return []
    buttons = []
    question, request = run.open_question, run.open_request
    waiting = question.question_id if question is not None else request.request_id if request is not None else ""
    url = links.get(f"question:{waiting}") or links.get(f"request:{waiting}")
    if waiting and is_link(url):
        buttons.append(link_button(f"See {waiting}", SEE, url))
    if not run.lead:
        buttons.append(button("Take the lead", f"{SAY}lead", _about(run, "lead")))
    if run.halted_by:
        buttons.append(button("Resume", f"{SAY}resume", _about(run, "resume")))
    else:
        ask = confirm("Halt this incident?", "No change is sent until someone resumes it.", yes="Halt", no="Cancel")
        buttons.append(button("Halt", f"{SAY}halt", _about(run, "halt"), style="danger", confirm=ask))
    return actions(buttons)


def _about(run: Run, word: str) -> str:
    return ButtonValue(run.incident_id, word).packed() or ""


def _until(at: float | None) -> str:
    return f" until {moment(at)}" if at is not None else ""


def linked(text: str, url: str | None) -> str:
    return link(text, url) if is_link(url) else f"*{text}*"


def _banners(run: Run) -> list[Block]:
    banners = []
    if run.only_advice is not None and run.is_open:
        why = "*Observe-only*" if run.only_advice.reason == "observe_only" else f"*{line(run.only_advice.text, 300)}*"
        banners.append(f"👀 {why}: the bot changes nothing here, and shows what it would propose.")
    for page in run.pages.values():
        if page.failing_since is not None and run.is_open:
            phone = f" Call it yourself: {line(page.phone, 200)}." if page.phone else ""
            why = f"since {moment(page.failing_since)}: {line(page.error, 300)}"
            banners.append(f"⚠️ *{line(page.team, 40)} could not be paged* {why}.{phone}")
    if run.halted_by:
        by = f" by {mention(run.halted_by)}"
        what, lifts = ("Everything is halted", "all") if run.halted_with_all else ("Halted", line(run.incident_id, 40))
        banners.append(f"⛔ *{what}*{by}: no change is sent until `/incident resume {lifts}`.")
    for other in run.parked_before:
        waits_for = f"{line(other.waits_for, 200)}{_until(other.until)}"
        active = ", ".join(line(title, 120) for title in other.active_changes[:4])
        left = f" Still in place: {active}." if active else ""
        banners.append(f"🅿️ *{line(other.incident_id, 40)}* is parked: waits for {waits_for}.{left}")
    if run.silences:
        until = moment(max(run.silences.values()))
        banners.append(f"🔇 *Silenced* until {until}: the bot gets no updates on these alerts until then.")
    if run.alerts_resolved_at is not None and run.is_open:
        banners.append(f"All alerts resolved at {moment(run.alerts_resolved_at)}.")
    return section(banners)


def _path(run: Run) -> str:
    """The states entered so far as a progress line, with the current one marked."""
    shown = run.findings.path[-PATH_ON_CARD:]
    earlier = f"{len(run.findings.path) - len(shown)} earlier › " if len(run.findings.path) > len(shown) else ""
    last = [f"{'▸' if run.is_open else '✔'} *{line(shown[-1], 40)}*"] if shown else ["starting"]
    return earlier + " › ".join([*(f"✔ {line(name, 40)}" for name in shown[:-1]), *last])


def _held(run: Run) -> list[str]:
    held = run.held
    lines = [f"• {line(entry.title, 200)}" + (" (no undo)" if not entry.undo else "") for entry in held[:8]]
    more = [f"• … and {len(held) - 8} more"] if len(held) > 8 else []
    return ["*Changed by the bot and still in place:*", *lines, *more] if held else []


def _sentence(text: str) -> str:
    """The text with a capital first letter: questions of the machine begin with a reason in lower case."""
    return f"{text[:1].upper()}{text[1:]}"


def _words(name: str) -> str:
    return line(name.replace("_", " "), 80)


# --- the thread ------------------------------------------------------------------------------------------------------


def _diagnostics(run: Run, post: Post) -> Message:
    readings = _readings_of(post)
    before = {name: each for earlier in _above(run, post) for name, each in _readings_of(earlier).items()}
    ways = post.data.get("ways", ())
    body = section([f"🔎 *What was read* at {moment(last_read(readings.values()) or post.at)}"])
    body += what_was_read(list(readings.values()), run.findings.baseline, before)
    body += context([f"*{line(state, 60)}:* {line(why, 200)}" for state, why in ways])
    states = line("; ".join(f"{state}: {why}" for state, why in ways), 500)
    return Message(f"What was read: {states or 'nothing yet'}", limits.fitted(body))


def _readings_of(post: Post) -> dict[str, Reading]:
    return {name: Reading.model_validate(dump) for name, dump in post.data.get("readings", {}).items()}


def _above(run: Run, post: Post) -> list[Post]:
    """The diagnostics above this message, oldest first."""
    slots = [each.slot for each in run.posts]
    above = run.posts[: slots.index(post.slot)]
    return [each for each in above if each.kind == "diagnostics"]


def _request(run: Run, post: Post) -> Message:
    request = run.requests.get(post.ref)
    if request is None:
        return _missing(post)
    head = str(post.data.get("head", ""))
    return Message(
        request_text(run, request), request_blocks(run, request, head=head, mentions=post.data.get("mentions", ()))
    )


def _question(run: Run, post: Post) -> Message:
    question = run.questions.get(post.ref)
    if question is None:
        return _missing(post)
    asked = prose(_sentence(question.text), text_sizes.TEXT, people=people_of(run))
    body = section([f"❓ *{line(question.question_id, 20)}* · {asked}"])
    body += section([prose(question.why, text_sizes.TEXT)])
    notes = [
        f"• *{line(question.choices.get(key, key), 80)}*: {line(note, text_sizes.NOTE)}"
        for key, note in question.notes.items()
    ]
    is_open = question.status == "open"
    if is_open:
        body += section([_asked(post)])
    if is_open:  # what to weigh, while there is something to decide
        body += section(notes)
        body += context([f"• {line(each, 300)}" for each in question.evidence[:20]])
    foot = _ways_to_answer(run, question) if is_open else context([_answer(question)])
    text = f"Question {line(question.question_id, 20)}: {asked}"
    if is_open:
        text += f"\nChoices: {line(', '.join(question.choices.values()), 500)}"
    return Message(text[: limits.TEXT], limits.fitted(body, foot))


def _asked(post: Post) -> str:
    """The people that a message mentions while it waits for them."""
    mentions = [of_id(str(each)) for each in post.data.get("mentions", ())[:10]]
    return f"📣 {' '.join(mentions)}" if mentions else ""


def _choices(run: Run, question: Question) -> list[Block]:
    buttons = []
    for place, (key, label) in enumerate(list(question.choices.items())[:CHOICES]):
        packed = ButtonValue(run.incident_id, question.question_id, choice=key).packed()
        style = question.styles.get(key, "")
        action = FILL if question.forms.get(key) else CHOOSE
        if packed is not None:
            buttons.append(
                button(label, f"{action}{place}", packed, style=style if style in ("primary", "danger") else "")
            )
    return buttons


def _ways_to_answer(run: Run, question: Question) -> list[Block]:
    buttons = _choices(run, question)
    missing = len(question.choices) - len(buttons)
    until = f"Please answer by {moment(question.expires_at)}." if question.expires_at is not None else ""
    return [*actions(buttons), *context([until, f"{missing} more choices do not fit here." if missing else ""])]


def _answer(question: Question) -> str:
    if question.status == "answered":
        chosen = line(question.choices.get(question.answer, question.answer), 200)
        at = f" at {moment(question.answered_at)}" if question.answered_at is not None else ""
        return f"✅ {mention(question.answered_by)} answered *{chosen}*{at}."
    if question.status == "expired":
        return "⌛ Nobody answered in time."
    return "🔁 Withdrawn: the incident continued without this answer."


def _outcome(run: Run, post: Post) -> Message:
    result, text = str(post.data.get("result", "")), str(post.data.get("text", ""))
    request = run.requests.get(post.ref)
    about = f"{line(post.ref, 60)} · {line(request.plan.title, 300)}" if request else code(post.ref, 80)
    sign = OUTCOMES.get(result, "•")
    if request is not None and text == request.plan.title:
        text = ""
    body = section([f"{sign} *{_words(result) or 'outcome'}*: {about}", prose(text, 2_000, people=people_of(run))])
    if patch := str(post.data.get("patch", "")):
        body += section([code_block(patch.split("\n"), PATCH_CHARACTERS)])
    return Message(": ".join(filter(None, [_words(result), about, line(text, 500)])), limits.fitted(body))


def _verdict(run: Run, post: Post) -> Message:
    verdict, parts = str(post.data.get("verdict", "")), post.data.get("parts", {})
    title = line(post.data.get("title") or post.ref, 200)
    sign = {"held": "✅", "not_held": "❌", "broke": "❌"}.get(verdict, "❓")
    text = post.data.get("text", "")
    parts = {name: part for name, part in parts.items() if str(part).strip() not in {verdict, text}}
    lines = [f"{PARTS.get(_verdict_of(part), '?')} {code(name, 60)} {line(part, 300)}" for name, part in parts.items()]
    short = line(text, 300) if str(text).startswith(_words(verdict)) else ""
    detail = "" if short else prose(text, 1_500, people=people_of(run))
    body = section([f"{sign} *{title}* {short or _words(verdict)}", *lines[:30], detail])
    return Message(f"{title}: {short or _words(verdict)}", limits.fitted(body))


def _verdict_of(part: object) -> str:
    """The verdict at the start of a part's text; `not_held` and `not held` are the same."""
    words = str(part).strip().lower().replace(" ", "_")
    return next((verdict for verdict in PARTS if words.startswith(verdict)), "unknown")


def _note(run: Run, post: Post) -> Message:
    text, user = post.data.get("text", ""), str(post.data.get("user", ""))
    request = run.requests.get(post.ref)
    asked = ""
    if post.data.get("ping") and request is not None:
        asked = pinged(request, everybody=post.data["ping"] == "all")
    words = prose(text, 2_000, people=people_of(run))
    notified = ", ".join(_named(str(each)) for each in post.data.get("told", ())[:10])
    shown = f"📝 {mention(user)}: {words}" if user else f"⏰ {asked}: {words}" if asked else f"ℹ️ {words}"
    shown = f"📣 {notified}: {words}" if notified else shown
    shown = f"{called}: {words}" if (called := _asked(post)) else shown
    spoken = prose(text, 1_000, people=people_of(run)).replace("\n", " ")
    return Message(f"Note: {spoken}", limits.fitted(section([shown])))


def _named(group: str) -> str:
    """A label such as `owner=U0ANA`: a Slack person or group is mentioned; any other value is only shown."""
    word, _, value = group.partition("=")
    if not SLACK_ID.fullmatch(value):
        return code(group, 160)
    return f"{line(word, 40)} {of_id(value)}"


def _closed(run: Run, post: Post) -> Message:
    ending = str(post.data.get("ending") or run.ending)
    closed_at = run.closed_at if run.closed_at is not None else post.at
    waited = sum((r.decided_at or r.asked_at) - r.asked_at for r in run.requests.values())
    waited += sum((q.answered_at or q.asked_at) - q.asked_at for q in run.questions.values())
    sign = "✅" if ending in GOOD_ENDINGS else "⚪"
    body: list[Block] = [
        divider(),
        *section([f"{sign} *Closed as {_words(ending)}*", prose(post.data.get("text", ""))]),
    ]
    body += fields(
        [
            f"*From alert to close*\n{span(closed_at - run.starts_at)}",
            f"*Open*\n{span(closed_at - run.opened_at)}",
            f"*Waited for people*\n{span(waited)}",
            f"*Changes applied*\n{len(run.ledger)}",
        ]
    )
    baseline, latest = _kept(post, "baseline", run.findings.baseline), _kept(post, "latest", run.latest)
    final = of_last_look(latest)
    moved = numbers({name: before for name, before in baseline.items() if name in final}, final)
    read = when(baseline, final)
    body += [*section([f"*Last numbers*, {read}" if read else "*Last numbers*"]), *fields(moved)] if moved else []
    body += section(_held(run) or ["Nothing that the bot changed is left in place."])
    if to_commit := post.data.get("to_commit"):
        titles = [f"• {line(each, 300)}" for each in to_commit]
        body += section(["📝 *Commit what is in force*, or its owner reverts it. The text is on the request:", *titles])
    head = str(post.data.get("head", ""))
    foot = context([f"timeline {code(head[:16], 20)}"]) if head else []
    went = f": {', '.join(filter(None, [*moved, read]))}" if moved else ""
    return Message(f"{line(run.incident_id, 40)} closed as {_words(ending)}{went}", limits.fitted(body, foot))


def _kept(post: Post, name: str, otherwise: Mapping[str, Reading]) -> Mapping[str, Reading]:
    """The readings at the close; an earlier version of the bot did not store them."""
    kept = post.data.get(name)
    return {key: Reading.model_validate(dump) for key, dump in kept.items()} if kept is not None else otherwise


def _missing(post: Post) -> Message:
    text = f"{plain(post.kind, 40)} {plain(post.ref, 80)} is no longer kept"
    return Message(text, limits.fitted(section([line(text)])))


_RENDERERS: dict[str, Callable[[Run, Post], Message]] = {
    "diagnostics": _diagnostics,
    "request": _request,
    "question": _question,
    "outcome": _outcome,
    "verdict": _verdict,
    "note": _note,
    "closed": _closed,
}
