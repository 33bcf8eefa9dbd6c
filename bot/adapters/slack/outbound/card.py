"""Renders an incident's card: what users feel, why, and what it waits for; all else is in the thread.

Pure and derived from the run alone: the same run gives the same card, so a changed hash marks a stale one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from bot.adapters.slack import limits
from bot.adapters.slack.escape import (
    channel_mention,
    code,
    flags_as_code,
    is_link,
    line,
    link,
    mention,
    prose,
    runbook_step,
    whole_words,
)
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import actions, button, confirm, context, header, link_button, section
from bot.adapters.slack.outbound.deciders import missing_teams, people_of
from bot.adapters.slack.outbound.message import Message, hash_of
from bot.adapters.slack.outbound.numbers import numbers, when
from bot.adapters.slack.outbound.request_message import called, held_back, resume_command
from bot.adapters.slack.outbound.words import (
    SEVERITIES,
    ago,
    capitalized,
    checked,
    day,
    in_utc,
    moment,
    stage_of,
    time_beside,
    time_of_day,
)
from bot.adapters.slack.press_value import LINK, RUN_COMMAND, ButtonValue
from bot.domain.approvals.grant import still_missing
from bot.domain.changes.plan import request_of
from bot.domain.incidents.run import NEXT_STATUS, Post, Run
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.links import links_of
from bot.domain.kernel.listing import first_of
from bot.domain.reports.present import NOT_BEGUN
from bot.domain.reports.statistics import ENDED

INCIDENT_CHANNEL = "channel"
PAGE = "page"
"""The incident's live page, among the addresses that a card links."""
GOES_ON = "A rollout that has begun goes on in Kubernetes."
"""What a halt does not stop."""
LINKS_CHARACTERS = 2_000
"""Of all links on a card, with their addresses."""
CAUSE_CHARACTERS = 240
"""An engine's error may be longer; all of it is in the diagnosis."""
MAX_HELD = 4
MAX_NUMBERS = 3
"""Shown where the playbook has no sentence about users."""


def card(run: Run, *, links: Mapping[str, str]) -> Message:
    """The incident's one message in the channel; `links` maps a slot of the thread to its address.

    It also maps `INCIDENT_CHANNEL` to the id of the incident's own channel, if there is one.
    """
    text = in_utc(f"{line(_title(run), 300)}: {line(run.target, 200)}: {now_line(run, {})}")
    now = now_line(run, links) + progress_of(run)
    return Message(text[: limits.TEXT], _blocks(run, links, now), lasting=_lasting(run, links))


def _lasting(run: Run, links: Mapping[str, str]) -> str:
    """The hash of what people must see at once: what it is called, what it waits for, what is applied, and notices.

    Newer numbers, the state that reads or watches, and progress may come a little later.
    """
    if not run.is_open:
        return ""
    applied = run.change.request_id if run.change is not None and run.change.begun else ""
    about = _waits_about(run)
    waiting = run.open_question or run.open_request
    until = waiting.expires_at if waiting is not None else None
    # Its message, its address and its deadline are shown by one edit: once it is posted, its time begins.
    waits_for = (about, until) if links.get(about) and (until or run.open_request is None) else ()
    at_once = (_title(run), waits_for, applied, run.lead, links.get(INCIDENT_CHANNEL, ""))
    return hash_of(json.dumps(at_once), tuple(_banners(run)))


def _blocks(run: Run, links: Mapping[str, str], now: str) -> tuple[Block, ...]:
    body: list[Block] = [header(_title(run)), *section(_situation(run))]
    body += section([now, _path(run)])
    body += _banners(run) + section(_held(run))
    own = links.get(INCIDENT_CHANNEL, "")
    body += section([f"Everything else is in {channel_mention(own)}" if own else ""])
    page = link("Live page", links[PAGE]) if links.get(PAGE) else ""
    shown = [*filter(None, [page]), *_links(run)]
    foot = [*context([" · ".join(filter(None, _about(run))), " · ".join(shown)]), *_handles(run, links)]
    return limits.fitted(body, foot)


def _title(run: Run) -> str:
    title = f"{run.target.name}: {run.diagnosis}" if run.diagnosis else run.title
    return f"{sign_of(run)} {run.incident_id} · {title}"


def sign_of(run: Run) -> str:
    if run.is_open:
        return SEVERITIES[run.severity]
    return "✅" if run.ending in ENDED else "⚪"


def _situation(run: Run) -> list[str]:
    """What users feel, when it began, and why: the first lines."""
    seen_at = max(run.users_at, run.visit.entered_at)
    since = f"began {time_beside(run.starts_at, seen_at) if run.is_open else day(run.starts_at)}"
    if run.users:
        # A closed incident is not read again: its last number keeps its time.
        read = f" · read {ago(run.users_at) if run.is_open else day(run.users_at)}" if run.users_at else ""
        read += ", before the alert that fires now" if run.users_at and run.users_at < run.fires_since else ""
        users = [f"*{line(run.users, 400)}* · {since}{read}"]
    else:
        moved = numbers(run.findings.baseline, run.latest)[:MAX_NUMBERS]
        read = when(run.findings.baseline, run.latest) if moved else ""
        users = [
            " · ".join([*(moved or ["What users feel is not known"] * run.is_open), since]),
            f"_{capitalized(read)}_" if read else "",
        ]
    return [*users, _cause(run) if run.is_open else _diagnosed(run)]


def _cause(run: Run) -> str:
    checks = flags_as_code(
        checked([(each.found, line(each.text, 200)) for each in run.findings.checks], "found", "ruled_out")
    )
    last = _last_diagnosis(run)
    # The cause is read again, with newer numbers than the checks had.
    if checks and last and last.data["cause"] != run.cause:
        checks = f"As of {time_of_day(last.at)}, {checks[:1].lower()}{checks[1:]}"
    return " ".join(filter(None, (whole_words(run.cause, CAUSE_CHARACTERS), checks)))


def _diagnosed(run: Run) -> str:
    """The last diagnosis of a closed incident, with its time: its sentence is about what was wrong then."""
    last = _last_diagnosis(run)
    if last is None:
        return ""
    found = [(str(kind), line(text, 200)) for kind, text in last.data.get("checks", ())]
    text = f"{whole_words(last.data['cause'], CAUSE_CHARACTERS)} {flags_as_code(checked(found, 'found'))}"
    return f"Diagnosis at {time_of_day(last.at)}: {text.rstrip()}"


def _last_diagnosis(run: Run) -> Post | None:
    return next((post for post in reversed(run.posts) if post.kind == "diagnosis" and post.data.get("cause")), None)


# --- what it waits for ------------------------------------------------------------------------------------------------


def now_line(run: Run, links: Mapping[str, str]) -> str:
    """What the incident waits for, and until when, in one line."""
    if run.closed_at is not None:
        lasted = lasting(run.closed_at - run.starts_at)
        since = f"{lasted} after the alert" if run.alerts else f"after {lasted}"
        return f"*{capitalized(line(run.ending_in_words, 80))}* · {day(run.closed_at)} · {since}"
    return f"{'🅿️ Parked · ' if run.parked is not None else ''}{_waits_for(run, links)}"


def standing(run: Run) -> str:
    """As `now_line`, for lists, where nothing else shows that changes are halted."""
    is_explained = run.is_halted_half_way and not (run.open_question or run.open_request)
    is_halted = run.is_open and run.halt is not None and not run.is_halted_with_all and not is_explained
    return f"{'⛔ Halted · ' if is_halted else ''}{now_line(run, {})}"


def _waits_for(run: Run, links: Mapping[str, str]) -> str:
    if (question := run.open_question) is not None:
        ask = linked(line(capitalized(question.text), 200), links.get(question.slot))
        return f"▶ Needs an answer{_by_time(question.expires_at, question.asked_at)}: {ask}"
    if (request := run.open_request) is not None:
        what = linked(line(called(run, request), 200), links.get(request.slot))
        of = f" of {teams}" if (teams := missing_teams(request)) else ""
        more = sum(each.needed for each in still_missing(request.policy, request.presses))
        needs = "approval" if of or not request.presses else f"{more} more approval{'s' * (more > 1)}"
        return f"⏳ Needs {needs}{of}{_by_time(request.expires_at, request.asked_at)}: {what}"
    if (advised := run.advised) is not None:
        what = linked(line(called(run, advised), 200), links.get(advised.slot))
        until = f" until {time_beside(run.watch.until, run.watch.started_at)}" if run.watch is not None else ""
        return f"👀 Would propose {what}; watches whether it recovers{until}"
    if run.change is not None:
        request = run.requests.get(run.change.request_id)
        title = line(called(run, request), 200) if request is not None else ""
        stage = "🔧 Planning" if not run.change.begun else "⛔ Halted" if run.is_halted else "🔧 Applying"
        return f"{stage}: *{title or line(run.visit.doing, 150)}*"
    doing = line(run.visit.doing, 150) or NOT_BEGUN
    if run.watch is not None:
        return f"👀 Checking: *{doing}*, until {time_beside(run.watch.until, run.watch.started_at)} at the latest"
    return f"🔎 Reading: *{doing}*"


def progress_of(run: Run) -> str:
    """How far the change or the watch under way is; it moves by itself."""
    under_way = None if run.open_question or run.open_request else run.change or run.watch
    return f" · {line(under_way.progress, 300)}" if under_way is not None and under_way.progress else ""


def _by_time(at: float | None, asked_at: float) -> str:
    return f" by {time_beside(at, asked_at)}" if at is not None else ""


def linked(text: str, url: str | None) -> str:
    return link(text, url) if is_link(url) else f"*{text}*"


def _path(run: Run) -> str:
    """The phases that are over, and the one under way; a phase that came again is listed where it came last.

    A change that was undone is left out with its undo if an earlier change of the same phase is still in place: after
    an undone scale-back, the replicas that were added stay.
    """
    under_way = run.change.request_id if run.change is not None and run.advised is None else ""
    ended = {each.request_id: stage_of(each.plan.verb) for each in run.requests.values() if each.outcome == "done"}
    undone = _undone(run)
    stays = {phase for one, phase in ended.items() if one not in undone}
    again = {one: by for one, by in undone.items() if ended.get(one) in stays}
    done = [phase for one, phase in ended.items() if one not in {*again, *again.values()}]
    now = next((stage_of(each.plan.verb) for each in run.requests.values() if each.request_id == under_way), "")
    over = ["Diagnosis", *(each for each in reversed(dict.fromkeys(reversed(done))) if each != now)]
    if run.watch is not None and run.change is None and len(over) > 1:
        now = "Verification"
    if len(over) < 2 and not now:
        return ""
    return " › ".join([*(f"✔ {phase}" for phase in over), *([f"*{now}*"] if now else [])])


def _undone(run: Run) -> dict[str, str]:
    """Requests whose calls were all undone by another request, with that request."""
    undone: dict[str, set[str]] = {}
    for entry in run.ledger:
        undone.setdefault(request_of(entry.call_id), set()).add(request_of(entry.undone_by))
    return {one: by.pop() for one, by in undone.items() if len(by) == 1 and by <= run.requests.keys()}


# --- notices ----------------------------------------------------------------------------------------------------------


def _banners(run: Run) -> list[Block]:
    banners = []
    if run.status_update.text and run.is_open:
        due = run.deadlines.get(NEXT_STATUS)
        following = f" · next update by {time_beside(due, run.status_update.at)}" if due is not None else ""
        news = prose(run.status_update.text, 500, people=people_of(run))
        banners.append(f"📣 {news} — {mention(run.status_update.by)}{following}")
    if run.only_advice is not None and run.is_open:
        only = run.only_advice
        why = "Observe-only" if only.reason == "observe_only" else line(capitalized(only.text), 300)
        banners.append(f"👀 *{why}*: the bot changes nothing here, and shows what it would propose.")
    for page in run.pages.values():
        if page.failing_since is not None and run.is_open:
            phone = f" Call it yourself: {line(page.phone, 200)}." if page.phone else ""
            why = f"since {moment(page.failing_since)}: {line(page.error, 300)}"
            banners.append(f"⚠️ *{line(page.team, 40)} could not be paged* {why}.{phone}")
    if run.halt is not None and run.is_open:
        by = f" by {mention(run.halt.by)}"
        what = "Everything is halted" if run.is_halted_with_all else "Halted"
        why = f": {line(run.halt.reason, 300)}" if run.halt.reason else ""
        goes_on = f" {GOES_ON}" if run.is_applying else ""
        banners.append(f"⛔ *{what}*{by}{why}. No change is sent until `{resume_command(run)}`.{goes_on}")
    for other in run.parked_before:
        until = f" until {time_beside(other.until, run.opened_at)}" if other.until is not None else ""
        active = ", ".join(line(title, 120) for title in other.active_changes[:4])
        left = f" Still in place: {active}." if active else ""
        waits_for = f"{line(other.waits_for, 200)}{until}"
        banners.append(f"🅿️ *{line(other.incident_id, 40)}* is parked: waits for {waits_for}.{left}")
    for to_do in run.left_to_do if run.is_open else ():
        banners.append(f"📝 *To do before the end:* {line(to_do.text, 300)}")
    if run.silences:
        until = time_beside(max(run.silences.values()), run.opened_at)
        banners.append(f"🔇 *Silenced* until {until}: the bot gets no updates on these alerts until then.")
    if run.alerts_resolved_at is not None and run.is_open:
        banners.append(f"All alerts resolved at {time_beside(run.alerts_resolved_at, run.opened_at)}.")
    return section(banners)


def _held(run: Run) -> list[str]:
    titles = [flags_as_code(line(title, 160)) for title in run.in_place]
    return [f"*Changes in place:* {first_of(titles, MAX_HELD, between='; ')}"] if titles else []


# --- the foot ---------------------------------------------------------------------------------------------------------


def _about(run: Run) -> list[str]:
    where = code(run.target.workload, 200) + (f" in {line(run.target.cluster, 80)}" if run.target.cluster else "")
    if not run.target.resolved:
        why = "from the alert's labels only" if run.target.namespace else "the alert's labels name no namespace"
        where += f" ({why})"
    leads = "leads" if run.is_open else "led"
    lead = f"{mention(run.lead)} {leads}" if run.lead else "Nobody leads yet" if run.is_open else ""
    return [lead, f"severity: {line(run.severity, 20)}", where, _pages(run), _alerts(run)]


def _pages(run: Run) -> str:
    """Who was paged, and whether somebody answered."""
    states = {"trigger": "no answer yet", "acknowledge": "answered", "resolve": "resolved"}
    sent = [page for page in run.pages.values() if page.sent is not None]
    each = (f"{line(page.team, 40)} at {time_of_day(page.since)} ({states[page.sent or 'trigger']})" for page in sent)
    return f"paged {', '.join(each)}" if sent else ""


def _alerts(run: Run) -> str:
    if not run.alerts:
        return ""
    firing = sum(1 for alert in run.alerts.values() if alert.status == "firing")
    names = sorted({line(alert.name, 60) for alert in run.alerts.values()})
    sign = "🔔" if firing else "🔕"
    if len(run.alerts) == 1:
        return f"{sign} {names[0]} is {'firing' if firing else 'resolved'}"
    counts = (f"{firing} firing" * bool(firing), f"{len(run.alerts) - firing} resolved" * (firing < len(run.alerts)))
    return f"{sign} {first_of(names, 3)}: {', '.join(filter(None, counts))}"


def _links(run: Run) -> list[str]:
    """The step of the runbook, and the alerts' runbooks, queries and dashboard; a too long address is left out."""
    every = links_of(run.alerts.values(), run.dashboard, starts_at=run.starts_at, closed_at=run.closed_at)
    shown = [f"📋 Runbook step: {runbook_step(run.visit.runbook)}"] if run.visit.runbook else []
    for each in every:
        made = link(line(each.label, 80), each.url)
        if len(" · ".join([*shown, made])) <= LINKS_CHARACTERS:
            shown.append(made)
    return shown


def _handles(run: Run, links: Mapping[str, str]) -> list[Block]:
    """The buttons of a card: open what waits, take the lead, skip a wait, halt. Each runs its `/incident` command."""
    if not run.is_open:
        return []
    buttons = []
    about = _waits_about(run)
    url = links.get(about)
    if about and is_link(url):
        buttons.append(link_button("Review plan" if about.startswith("request") else "Answer", LINK, url))
    if not run.lead:
        buttons.append(button("Take the lead", f"{RUN_COMMAND}lead", _value(run, "lead")))
    if run.watch is not None and not about:
        buttons.append(button("Skip this wait…", f"{RUN_COMMAND}skip", _value(run, "skip")))
    if run.halt is not None:
        means = held_back(run) or "Nothing approved waits; what is approved from now on is sent."
        ask = confirm("Resume changes?", means, yes="Resume changes", no="Cancel")
        buttons.append(button("Resume changes", f"{RUN_COMMAND}resume", _value(run, "resume"), confirm=ask))
    else:
        means = f"No change is sent until someone resumes it. {GOES_ON}"
        ask = confirm("Halt changes?", means, yes="Halt changes", no="Cancel")
        buttons.append(button("Halt changes", f"{RUN_COMMAND}halt", _value(run, "halt"), style="danger", confirm=ask))
    return actions(buttons)


def _waits_about(run: Run) -> str:
    """The slot of the message that waits for people; empty if none does."""
    waits = run.open_question or run.open_request or run.advised
    return waits.slot if waits is not None else ""


def _value(run: Run, word: str) -> str:
    return ButtonValue(run.incident_id, word).packed() or ""
