"""Calling people: whom a message mentions, and which team is paged.

Severity decides who is called: `page` mentions a team and pages it, `ticket` mentions it, `info` does neither. The team
that is on call for the target is called for the first thing that waits for a person, the lead once nobody answered, and
any team that a playbook hands over to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bot.domain.approvals.contacts import LEAD, Contact
from bot.domain.incidents.effect import PageTeam
from bot.domain.incidents.event import ALL, COMMANDS, Commanded, EffectFailed, Event, Judged, Paged, PageFailed
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import Page, Run
from bot.domain.kernel.redaction import redacted

PAGE_EFFECT = "page/"
"""Begins the id of an effect that pages; the name of the page follows."""


def follow(draft: Draft, before: Run, event: Event) -> None:
    """Bring the pages in line with the run, after every decision."""
    if not draft.run.is_open:
        _want_all(draft, "resolve")
    elif _somebody_acted(draft.run, before, event):
        _want_all(draft, "acknowledge")
    elif draft.run.parked is None and (why := _waits_for(draft.run)):
        if before.severity == "info" != draft.run.severity and _waits_for(before) == why:
            note(draft, f"It is urgent now: {why}", mentioned(draft))
        if draft.run.severity == "page":
            _page(draft, draft.rules.contacts.on_call_for(draft.run.target), why)


def mentioned(draft: Draft, team: Contact | None = None) -> dict[str, Any]:
    """Returns a message's `mentions`: the Slack ids of this team, else of who leads and of the team on call."""
    contact = team or draft.rules.contacts.on_call_for(draft.run.target)
    people = contact.mentions if team is not None else _with_the_lead(draft, contact.mentions)
    return {"mentions": list(people)} if people and draft.run.severity != "info" else {}


def _with_the_lead(draft: Draft, people: Iterable[str]) -> tuple[str, ...]:
    """A person who took the lead, or was named for it, is not always a member of the team on call."""
    return tuple(dict.fromkeys((*filter(None, [draft.run.lead]), *people)))


def mentioned_in(draft: Draft, slot: str) -> dict[str, Any]:
    """Returns the `mentions` of an earlier message, to mention the same people again, else those of `mentioned`."""
    data = next((post.data for post in draft.run.posts if post.slot == slot), {})
    return {"mentions": list(_with_the_lead(draft, data["mentions"]))} if "mentions" in data else mentioned(draft)


def called(draft: Draft, team: str) -> Contact:
    """Returns the team, or who is called in its place. Without people in Slack, those on call are mentioned for it."""
    contacts, target = draft.rules.contacts, draft.run.target
    contact = contacts.team(team, target) or contacts.instead_of(team, target)
    return contact.or_mentions(contacts.on_call_for(target))


def call(draft: Draft, team: str, why: str) -> str:
    """Page a team. Returns what people must know: that it is not configured, or how to call it themselves."""
    contact = called(draft, team)
    if draft.run.severity == "page":
        _page(draft, contact, why, again=True)
    by_phone = _by_phone(contact)
    if draft.rules.contacts.team(team, draft.run.target) is None:
        return f"The settings name nobody for {team}, so {contact.team} is called instead. {by_phone}".strip()
    return by_phone


def _by_phone(contact: Contact) -> str:
    return f"Call {contact.team} yourself: {contact.phone}." if contact.phone and not contact.has_pager else ""


def call_lead(draft: Draft, why: str, *, always_posted: bool = False) -> None:
    """Nobody answered: call the team above. `always_posted`: no other message of the thread says it."""
    contact = called(draft, LEAD)
    text, mentions = " ".join(filter(None, (why, _by_phone(contact)))), mentioned(draft, contact)
    if always_posted or mentions.get("mentions"):
        note(draft, text, mentions)
    if draft.run.severity == "page":
        _page(draft, contact, why, again=True)


def call_on_call(draft: Draft, why: str) -> None:
    """Post a note for the team on call and, where the severity pages, call it again: something else is wrong now."""
    contact = draft.rules.contacts.on_call_for(draft.run.target)
    note(draft, why, mentioned(draft, contact))
    if draft.run.severity == "page":
        _page(draft, contact, why, again=True)


def call_the_next(draft: Draft) -> None:
    """Address the pages to who is on call now: those of before end, and who was called is called again."""
    run, target = draft.run, draft.run.target
    called = {page.team for page in run.pages.values() if page.wanted != "resolve"}
    _want_all(draft, "resolve")
    why = _waits_for(run)
    for team in sorted(called) if why and run.severity == "page" and run.parked is None else ():
        contact = draft.rules.contacts.team(team, target)
        if contact is not None and contact.has_pager:
            count = sum(page.team == team for page in run.pages.values())
            text = redacted(f"{run.incident_id} {target} was handed over: {why}")
            name = f"{team}/{count + 1}"
            _want(draft, Page(name=name, team=team, text=text, since=draft.at, phone=contact.phone))


def note(draft: Draft, text: str, mentions: dict[str, Any]) -> None:
    draft.post_note(text, **mentions)
    draft.record("note", text, data=mentions)


def paged(draft: Draft, event: Paged) -> None:
    page = draft.run.pages.get(event.page)
    if page is None:
        draft.ignore(f"an unknown page: {event.page}")
        return
    if event.action == "trigger":
        draft.record("note", f"paged {page.team} through {event.through}: {page.text}", data={"key": event.key})
    elif page.error:
        draft.record("note", f"{event.through} was reached again for {page.team}")
    known = {"sent": event.action, "failing_since": None, "error": ""}
    draft.set(pages=draft.run.pages | {page.name: page.model_copy(update=known)})


def page_failed(draft: Draft, event: PageFailed) -> None:
    """Show that a team could not be paged. If its pager refuses for good, the lead is called instead."""
    page = draft.run.pages.get(event.page)
    if page is None:
        draft.ignore(f"an unknown page that failed: {event.page}")
        return
    since = page.failing_since if page.failing_since is not None else draft.at
    failing = page.model_copy(update={"failing_since": since, "error": redacted(event.reason)})
    draft.set(pages=draft.run.pages | {page.name: failing})
    draft.record("failed", f"{page.team} could not be paged: {event.reason}", data={"lasting": event.lasting})
    if event.lasting and page.wanted == "trigger" and page.team != LEAD:
        call_lead(draft, f"{page.team} could not be paged: {event.reason}")


def given_up(draft: Draft, event: EffectFailed) -> bool:
    """Returns whether the effect was a page. It is not sent again, like one that its pager refuses for good."""
    page = event.effect_id.removeprefix(PAGE_EFFECT)
    if page == event.effect_id or page not in draft.run.pages:
        return False
    page_failed(draft, PageFailed(event_id=event.event_id, at=event.at, page=page, reason=event.reason, lasting=True))
    return True


def _waits_for(run: Run) -> str:
    if run.open_question is not None:
        return run.open_question.text
    if run.advised is not None and not run.advised.carried_out:
        return f"Would propose: {run.advised.called}"
    return run.open_request.called if run.open_request is not None else ""


def _somebody_acted(run: Run, before: Run, event: Event) -> bool:
    if isinstance(event, Commanded):
        if event.to == ALL or not event.user:
            return False  # a halt of everything reaches incidents that nobody has looked at
        # A person who is named takes over; without a name the team is called again.
        is_taken = event.command == "handover" and bool(event.to)
        return is_taken or COMMANDS[event.command].shows_presence
    counted = (run.requests, run.questions, run.visit.number) != (
        before.requests,
        before.questions,
        before.visit.number,
    )
    return isinstance(event, Judged) and counted


def _page(draft: Draft, contact: Contact, why: str, *, again: bool = False) -> None:
    """Page a team that is not being paged; `again`: also one that has answered an earlier page, or was not reached."""
    earlier = [page for page in draft.run.pages.values() if page.team == contact.team]
    answered = bool(earlier) and earlier[-1].wanted == "acknowledge"
    if not contact.has_pager or (answered and not again):
        return
    if earlier and earlier[-1].wanted == "trigger":
        if again and earlier[-1].error:
            # Its pager may have refused it for good, with a key that is corrected by now.
            _want(draft, earlier[-1])
        return
    name = f"{contact.team}/{len(earlier) + 1}" if earlier else contact.team
    text = redacted(f"{draft.run.incident_id} {draft.run.target}: {why}")
    _want(draft, Page(name=name, team=contact.team, text=text, since=draft.at, phone=contact.phone))


def _want_all(draft: Draft, action: str) -> None:
    for page in draft.run.pages.values():
        if page.wanted == "trigger" or (page.wanted == "acknowledge" and action == "resolve"):
            _want(draft, page.model_copy(update={"wanted": action}))


def _want(draft: Draft, page: Page) -> None:
    draft.set(pages=draft.run.pages | {page.name: page})
    draft.want(PageTeam(effect_id=f"{PAGE_EFFECT}{page.name}", page=page.name))
