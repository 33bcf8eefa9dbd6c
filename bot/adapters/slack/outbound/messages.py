"""Renders the messages of an incident's thread, in order: one for each stage, edited in place.

Pure and derived from the run alone: the same run gives the same messages, so a changed hash marks a stale message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from bot.adapters.slack import limits
from bot.adapters.slack.escape import (
    code,
    code_block,
    flags_as_code,
    line,
    mention,
    of_id,
    plain,
    prose,
    whole_words,
)
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import actions, button, confirm, context, menu, section, select
from bot.adapters.slack.outbound.deciders import people_of, pinged
from bot.adapters.slack.outbound.matter_line import matter_line
from bot.adapters.slack.outbound.message import Message, hash_of
from bot.adapters.slack.outbound.news_lines import news_line, news_lines
from bot.adapters.slack.outbound.pull_request_line import linked, pull_request
from bot.adapters.slack.outbound.request_message import called, request_blocks, request_text
from bot.adapters.slack.outbound.words import (
    OUTCOMES,
    RESULTS,
    capitalized,
    checked,
    in_utc,
    moment,
    time_beside,
    time_of_day,
)
from bot.adapters.slack.press_value import CHOOSE, DETAILS, MENU, MORE, OPEN_FORM, ButtonValue
from bot.domain.changes.plan import Plan, change_of
from bot.domain.incidents.handover import Matter
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.incidents.run import News, Post, Question, Run
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.listing import first_of
from bot.domain.playbooks import text_sizes
from bot.domain.reports.statistics import ENDED, waited_seconds

CLOSE_IT = "Close the incident?"
MAX_BUTTONS = 3
"""Choices that are buttons; with more, the menu has all but the first ones."""
MAX_CHOICES = 50
MAX_NAMES = 8
"""Of changes that stay in place, in one sentence."""
CAUSE_CHARACTERS = 1_000
"""With all of an engine's error."""
CHECK_CHARACTERS = 300
LATELY_SECONDS = 60.0
"""A reading that is older than this at the end is shown with its time."""
PATCH_CHARACTERS = 2_900

SLACK_ID = re.compile(r"[UWS](?=[A-Z]*[0-9])[A-Z0-9]{3,20}")
"""A person or a user group, but not a word in capitals."""


def thread(run: Run) -> tuple[tuple[str, Message], ...]:
    """Every message of the thread with its slot, in order of appearance."""
    return tuple((post.slot, _with_times_and_head(_RENDERERS[post.kind](run, post), post)) for post in run.posts)


def _with_times_and_head(message: Message, post: Post) -> Message:
    """With times that a notification can show, and the head of the timeline in its metadata if its post has one."""
    return replace(message, text=in_utc(message.text), head=str(post.data.get("head", "")))


def _news(post: Post) -> list[News]:
    return [News.model_validate(dump) for dump in post.data.get("news", ())]


def _details(run: Run, about: str) -> list[Block]:
    """The menu of a message that has nothing else to press."""
    made = menu([("Details", ButtonValue(run.incident_id, about, choice=DETAILS))], MORE)
    return actions([made]) if made else []


# --- the diagnosis ---------------------------------------------------------------------------------------------------


def _diagnosis(run: Run, post: Post) -> Message:
    title, cause, users = (str(post.data.get(key, "")) for key in ("title", "cause", "users"))
    checks = [(str(found), line(text, CHECK_CHARACTERS)) for found, text in post.data.get("checks", ())]
    found = [text for kind, text in checks if kind == "found"]
    if not title and len(found) == 1:
        title, checks = found[0], [each for each in checks if each[0] != "found"]
    body = section(
        [f"*Diagnosis* ({moment(post.at)}): {flags_as_code(line(capitalized(title), 200)) or 'not clear yet'}"]
    )
    body += section([line(users, 400), whole_words(cause, CAUSE_CHARACTERS)])
    body += section([flags_as_code(checked(checks, "found", "ruled_out", "unknown"))])
    fallback = ". ".join(filter(None, (line(title, 200), line(users, 400), whole_words(cause, 400))))
    if others := checked(checks, "found"):
        fallback = f"{fallback.removesuffix('.')}. {others}" if fallback else others
    return Message(
        f"Diagnosis: {fallback or 'not clear yet'}"[: limits.TEXT], limits.fitted(body, _details(run, post.slot))
    )


# --- requests and questions ------------------------------------------------------------------------------------------


def _request(run: Run, post: Post) -> Message:
    request = run.requests.get(post.ref)
    if request is None:
        return _missing(post)
    news = _news(post)
    decides = str(post.data.get("decides", ""))
    blocks = request_blocks(run, request, mentions=post.data.get("mentions", ()), news=news, decides=decides)
    text = " ".join([*news_lines(news), request_text(run, request)])
    lasting = ""
    if run.change is not None and run.change.request_id == request.request_id and run.change.begun:
        change = run.change.model_copy(update={"progress": ""})
        lasting = hash_of("", request_blocks(run.with_(change=change), request, news=news))
    return Message(text[: limits.TEXT], blocks, lasting=lasting)


def _question(run: Run, post: Post) -> Message:
    question = run.questions.get(post.ref)
    if question is None:
        return _missing(post)
    asked = prose(capitalized(question.text), text_sizes.TEXT, people=people_of(run))
    is_open, news = question.status == "open", _news(post)
    body = section(news_lines(news))
    body += section([f"*{asked}*" if "\n" not in asked else asked])
    if is_open:  # what to weigh, while there is something to decide
        buttons, others = _buttons_and_others(run, question)
        notes = [
            f"• *{line(question.choices.get(key, key), 80)}*: {line(note, text_sizes.NOTE)}"
            for key, note in question.notes.items()
            if key in buttons or len(note) > limits.OPTION_TEXT  # the menu shows the others
        ]
        body += section([prose(question.why, text_sizes.TEXT), _asked(post), *notes])
        foot = _ways_to_answer(run, question, buttons, others)
    else:
        foot = [*context([_answer(question)]), *_details(run, post.ref)]
    text = " ".join([*news_lines(news), f"Question {line(question.question_id, 20)}: {asked}"])
    if is_open:
        text += f"\nChoices: {line(', '.join(question.choices.values()), 500)}"
    return Message(text[: limits.TEXT], limits.fitted(body, foot))


def _asked(post: Post) -> str:
    """The people that a message mentions while it waits for them."""
    mentions = _mentioned(post)
    return f"📣 {' '.join(mentions)}" if mentions else ""


def _mentioned(post: Post) -> list[str]:
    return [of_id(str(each)) for each in post.data.get("mentions", ())[:10]]


def _ways_to_answer(
    run: Run, question: Question, buttons: Mapping[str, ButtonValue], others: Mapping[str, ButtonValue]
) -> list[Block]:
    made: list[Block | None] = [_choice(run, question, place, *each) for place, each in enumerate(buttons.items())]
    rest = [(question.choices[key], question.notes.get(key, ""), value) for key, value in others.items()]
    more = [("Details", ButtonValue(run.incident_id, question.question_id, choice=DETAILS))]
    made += [select("Other answers…", f"{CHOOSE}{MENU}", rest), menu(more, MORE)]
    at = question.expires_at
    until = f"Please answer by {time_beside(at, question.asked_at)}." if at is not None else ""
    missing = len(question.choices) - len(buttons) - len(others)
    left_out = f"{missing} more choices do not fit here." if missing else ""
    return [*actions([each for each in made if each]), *context([until, left_out])]


def _buttons_and_others(run: Run, question: Question) -> tuple[dict[str, ButtonValue], dict[str, ButtonValue]]:
    """The first choices, which are buttons, and those in the menu. It has no room for a long value, a button has."""
    values = {
        key: ButtonValue(run.incident_id, question.question_id, choice=key)
        for key in list(question.choices)[:MAX_CHOICES]
    }
    first = list(values) if len(values) <= MAX_BUTTONS else list(values)[: MAX_BUTTONS - 1]
    others = {key: value for key, value in values.items() if key not in first and value.packed_for_a_menu() is not None}
    return {key: value for key, value in values.items() if key not in others}, others


def _choice(run: Run, question: Question, place: int, key: str, value: ButtonValue) -> Block | None:
    packed, style = value.packed(), question.styles.get(key, "")
    action = OPEN_FORM if question.forms.get(key) else CHOOSE
    if packed is None:
        return None
    label, named = question.choices[key], style if style in ("primary", "danger") else ""
    # To take what one was asked to take is the answer; among other answers the same end may come as a surprise.
    ends = question.notes.get(key) == TAKEN_AND_CLOSED and action == CHOOSE and len(question.choices) > 1
    ask = _confirm_end(run, label) if ends else None
    return button(label, f"{action}{place}", packed, style=named, confirm=ask)


def _confirm_end(run: Run, label: str) -> Block:
    """`Hand over` elsewhere only changes who leads; here it ends the incident."""
    return confirm(CLOSE_IT, closes_it(run), yes=label, no="Cancel")


def closes_it(run: Run) -> str:
    """What an answer means that ends the incident."""
    still = f" Still firing: {line(', '.join(run.firing), 200)}." if run.firing else ""
    return f"{TAKEN_AND_CLOSED}{still}"


def _answer(question: Question) -> str:
    if question.status == "answered":
        chosen = line(question.choices.get(question.answer, question.answer), 200)
        at = f" at {time_of_day(question.answered_at)}" if question.answered_at is not None else ""
        filled = line(question.notes.get(question.answer, ""), 500) if question.forms.get(question.answer) else ""
        return f"✅ {mention(question.answered_by)} answered *{chosen}*{at}{f': {filled}' if filled else '.'}"
    if question.status == "expired":
        return "⌛ Nobody answered in time."
    return "🔁 Withdrawn: the incident went on, or closed, without this answer."


# --- what happened ---------------------------------------------------------------------------------------------------


def _outcome(run: Run, post: Post) -> Message:
    result, text = str(post.data.get("result", "")), str(post.data.get("text", ""))
    request = run.requests.get(post.ref)
    title = str(post.data.get("title", "")) or (request.plan.title if request else post.ref.replace("_", " "))
    in_words = RESULTS.get(result, result.replace("_", " ") or "outcome")
    body = section(news_lines(_news(post)))
    body += section([f"{OUTCOMES.get(result, '•')} *{line(capitalized(title), 300)}*: {line(in_words, 80)}"])
    body += section([prose(text, 2_000, people=people_of(run)) if text != title else ""])
    if patch := str(post.data.get("patch", "")):
        body += section([code_block(patch.split("\n"), PATCH_CHARACTERS)])
    fallback = ": ".join(filter(None, [line(title, 300), line(in_words, 80), line(text, 500)]))
    return Message(fallback or "Outcome", limits.fitted(body, pull_request(run, post.slot)))


def _old_verdict(run: Run, post: Post) -> Message:
    """Of an earlier version: a verdict was a message of its own."""
    text = str(post.data.get("text", ""))
    title = str(post.data.get("title") or post.ref.replace("_", " "))
    news = news_line(News(title=title, result=str(post.data.get("verdict", "")), text=text, at=post.at))
    return Message(news[: limits.TEXT], limits.fitted(section([news])))


def _old_diagnostics(run: Run, post: Post) -> Message:
    """Of an earlier version: all readings were shown in the thread."""
    exits = [f"*{line(state.replace('_', ' '), 60)}:* {line(why, 200)}" for state, why in post.data.get("ways", ())]
    shown = section([f"🔎 *What was read* at {moment(post.at)}"]) + context(exits)
    return Message("What was read", limits.fitted(shown))


def _note(run: Run, post: Post) -> Message:
    text, user = post.data.get("text", ""), str(post.data.get("user", ""))
    request = run.requests.get(post.ref)
    asked = ""
    if post.data.get("ping") and request is not None:
        asked = pinged(request, everybody=post.data["ping"] == "all")
        asked = ", ".join(filter(None, (asked, *(who for who in _mentioned(post) if who not in asked))))
    # People named in a handover stay mentioned after somebody else takes the lead.
    people = people_of(run) | {user, *map(str, post.data.get("mentions", ()))}
    words = "\n".join([prose(text, 2_000, people=people), *_matters(post, people)])
    notified = ", ".join(_named(str(each)) for each in post.data.get("told", ())[:10])
    shown = f"📝 {mention(user)}: {words}" if user else f"⏰ {asked}: {words}" if asked else f"ℹ️ {words}"
    shown = f"📣 {notified}: {words}" if notified else shown
    shown = f"{called}: {words}" if not asked and (called := _asked(post)) else shown
    spoken = prose(text, 1_000, people=people).replace("\n", " ")
    is_broadcast = bool(post.data.get("is_broadcast"))
    fallback = f"{line(run.incident_id, 40)}: {spoken}" if is_broadcast else f"Note: {spoken}"
    shown = f"*{line(run.incident_id, 40)}* {shown}" if is_broadcast else shown
    return Message(fallback, limits.fitted(section([shown])), is_broadcast=is_broadcast)


def _matters(post: Post, people: Collection[str]) -> Iterator[str]:
    """What a handover passes on, one line each."""
    for raw in post.data.get("matters", ()):
        yield matter_line(Matter(**raw), people, post.at)


def _named(group: str) -> str:
    """A label such as `owner=U0ANA`: a Slack person or group is mentioned; any other value is only shown."""
    word, _, value = group.partition("=")
    if not SLACK_ID.fullmatch(value):
        return code(group, 160)
    return f"{line(word, 40)} {of_id(value)}"


# --- the end ---------------------------------------------------------------------------------------------------------


def _closed(run: Run, post: Post) -> Message:
    ending = str(post.data.get("ending") or run.ending)
    # An incident may have been closed, reopened and closed again: each message is about its own end.
    is_last = post.at >= max((each.at for each in run.posts if each.kind == "closed"), default=post.at)
    closed_at = run.closed_at if is_last and run.closed_at is not None else post.at
    called = capitalized(run.end_called(ending))
    text, users = str(post.data.get("text", "")), str(post.data.get("users", ""))
    sign = "✅" if ending in ENDED else "⚪"
    first = f"{sign} *{line(called, 80)}*" + (f": {prose(text)}" if text else ".")
    if ending == "handed_over" and run.lead:
        first += f" {mention(run.lead)} leads."
    # What was read long before the end, or before the signals were calm, may not be so any more.
    users_at = float(post.data.get("users_at") or closed_at)
    is_old = users_at < max(closed_at - LATELY_SECONDS, run.calm_since or 0.0)
    read = f" · read {time_of_day(users_at)}" if is_old else ""
    # What was verified under load is calm: its alert follows, by the window of its rule.
    firing = [] if ending == "fixed" else [line(name, 80) for name in post.data.get("firing", ())]
    names = first_of(firing, MAX_NAMES)
    bell = f"🔔 *Still firing:* {names}" if names else ""
    felt = [f"*{line(users, 400)}*{read}", _impact_at_the_diagnosis(run, users)] if users else []
    body = section([first, *felt, *news_lines(_news(post)), bell])
    held = [flags_as_code(line(title, 160)) for title in post.data.get("held", ())]
    left = (
        f"*Changes in place:* {first_of(held, MAX_NAMES, between='; ')}" if held else "The bot left no change in place."
    )
    body += section([" ".join(filter(None, (_done(run, until=closed_at), left)))])
    if to_commit := post.data.get("to_commit"):
        titles = [_in_git(run, each) for each in to_commit]
        body += section(["📝 *Commit what is in force*, or its owner reverts it. The text is on the request:", *titles])
    lasted, waited = closed_at - run.starts_at, waited_seconds(run, until=closed_at)
    began = "alert" if run.alerts else "opening"
    times = f"From {began} to close {lasting(lasted)}"
    times += f", {lasting(waited)} of it waiting for people" if waited else ""
    foot = [*context([times]), *_details(run, post.slot)]
    more = " ".join(filter(None, (prose(text), line(users, 400), names and f"Still firing: {names}")))
    fallback = f"{line(run.incident_id, 40)} {line(called.lower(), 80)}{f': {more}' if more else ''}"
    return Message(fallback[: limits.TEXT], limits.fitted(body, foot))


def _in_git(run: Run, title: str) -> str:
    """A change that has to be committed, as `R2 · Scale llm`, with the pull request for it."""
    wanted = run.pull_requests.get(f"request:{title.partition(' ')[0]}")
    there = linked(wanted) if wanted is not None else ""
    return f"• {line(title, 300)}{f': {there}' if there else ''}"


def _impact_at_the_diagnosis(run: Run, users: str) -> str:
    """What users felt when the trouble was found, to compare; empty if that has not changed."""
    first = next((post for post in run.posts if post.kind == "diagnosis" and post.data.get("users")), None)
    if first is None or first.data["users"] == users:
        return ""
    before = line(first.data["users"], 400)
    return f"At the diagnosis, {time_beside(first.at, run.opened_at)}: {before[:1].lower()}{before[1:]}"


def _done(run: Run, *, until: float) -> str:
    """Disruptive changes that are over, such as a replaced replica: they are not among what stays in place."""
    revertible = {change_of(entry.call_id) for entry in run.ledger if entry.undo or entry.undone_by}
    ended = [each for each in run.requests.values() if each.outcome == "done" and (each.ended_at or until) <= until]
    titles = [
        line(called(run, each), 160)
        for each in ended
        if _ends_a_replica(each.plan)
        or (each.plan.disrupts != "nothing" and f"{run.incident_id}/{each.request_id}" not in revertible)
    ]
    return f"*Done:* {first_of(titles, MAX_NAMES, between='; ')}." if titles else ""


def _ends_a_replica(plan: Plan) -> bool:
    """Marking it before has an undo, its end has none."""
    return plan.disrupts == "replica" and any(call.ends and not call.undo for call in plan.calls)


def _missing(post: Post) -> Message:
    text = f"{plain(post.kind, 40)} {plain(post.ref, 80)} is no longer kept"
    return Message(text, limits.fitted(section([line(text)])))


_RENDERERS: dict[str, Callable[[Run, Post], Message]] = {
    "diagnosis": _diagnosis,
    "request": _request,
    "question": _question,
    "outcome": _outcome,
    "note": _note,
    "closed": _closed,
    "diagnostics": _old_diagnostics,
    "verdict": _old_verdict,
}
