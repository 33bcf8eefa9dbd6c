"""The time that requests and questions wait for people. It begins with their message; half-way people are reminded.

A request that nobody decides expires. A question without an exit for that parks its incident; it can be answered later.
"""

from __future__ import annotations

from bot.domain.approvals.grant import Request
from bot.domain.incidents.machine import calling, entering, parking, questions
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import News, Post, Run
from bot.domain.kernel.durations import lasting
from bot.domain.kernel.redaction import redacted

UNPOSTED_SECONDS = 600.0
"""A request's time starts at most this long after its creation, even if Slack does not accept its message."""
LATE_SECONDS = 60.0
"""Slack is usually faster; each move of a question's deadline edits its message and the card."""


def expect_post(draft: Draft, request: Request) -> None:
    draft.set_deadline(f"{request.slot}:unposted", draft.at + UNPOSTED_SECONDS)


def request_posted(draft: Draft, ref: str) -> None:
    """Start the time of a request whose message is in Slack."""
    request = draft.run.requests.get(ref)
    if request is None or request.posted_at is not None or not _waits(draft.run, request):
        return
    draft.set_deadline(f"{request.slot}:unposted", None)
    _begin_its_time(draft, request.model_copy(update={"posted_at": draft.at}))


def _waits(run: Run, request: Request) -> bool:
    """Whether it waits for people: to be decided or, where it is only advised, for somebody who takes care of it."""
    return request.status == "open" or (request == run.advised and not request.carried_out and not run.lead)


def _begin_its_time(draft: Draft, request: Request) -> None:
    seconds = request.policy.expires_seconds
    # Advice does not expire; people are called at the same times.
    ends = {"expires_at": draft.at + seconds, "half_at": draft.at + seconds / 2} if request.status == "open" else {}
    draft.keep_request(request, **ends)
    draft.set_deadline(f"{request.slot}:expiry", draft.at + seconds)
    draft.set_deadline(f"{request.slot}:half", draft.at + seconds / 2)


def request_unposted(draft: Draft, ref: str) -> None:
    """Start the time of an unposted request: it may be unseen, but an incident that waits forever is worse."""
    request = draft.run.requests.get(ref)
    if request is None or not _waits(draft.run, request) or request.posted_at is not None:
        return
    waited = lasting(draft.at - request.asked_at)
    draft.record("slack", f"{ref} could not be posted for {waited}; its time starts anyway", data={"request": ref})
    _begin_its_time(draft, request)


def half_of_a_request(draft: Draft, ref: str) -> None:
    """At half of the time, remind the people who have not answered, and also ask the level above them."""
    request = draft.run.requests.get(ref)
    if request is None or not _waits(draft.run, request):
        return
    if request.status == "open":
        draft.keep_request(request, half_passed=True)
        left = f"{lasting(request.expires_at - draft.at)} left" if request.expires_at is not None else "Still"
        text = f"{left} to decide: {request.called}. Without an approval nothing changes."
    else:
        text = f"{_unanswered_advice(draft, request)} Say on its message what you do."
    again = calling.mentioned_in(draft, request.slot)
    draft.post("note", f"half:{ref}", ref, {"text": text, "user": "", "ping": True, **again})
    above = f", and {request.policy.escalate_to.team} too" if request.policy.escalate_to else ""
    draft.record("request", f"half of the time for {ref} has passed; asked again{above}")


def request_expired(draft: Draft, ref: str) -> None:
    request = draft.run.requests.get(ref)
    if request is None or not _waits(draft.run, request):
        return
    if request.status == "advised":
        # It is still advised: the trouble is watched on.
        calling.call_lead(draft, _unanswered_advice(draft, request))
        return
    draft.end_request(request, "expired")
    draft.record(
        "decided", f"{ref} expired: nobody decided in time; it will not be applied later", data={"request": ref}
    )
    who = "Not enough people approved" if request.presses else "Nobody decided"
    why = f"{who} within {lasting(draft.at - request.asked_at)}, so nothing was changed"
    _go_on_without(draft, request.called, why, because=f"request {ref} expired without a decision; nothing was changed")


def _unanswered_advice(draft: Draft, request: Request) -> str:
    waited = lasting(draft.at - request.asked_at)
    return f"Nobody has answered for {waited}, and the bot only advises this: {request.called}."


def question_posted(draft: Draft, ref: str) -> None:
    """Give people the whole time of a question from now on, where Slack took its message late."""
    question = draft.run.questions.get(ref)
    late = draft.at - question.asked_at if question is not None and question.status == "open" else 0.0
    if question is None or late < LATE_SECONDS:
        return
    for name, due_at in draft.run.deadlines.items():
        if name.startswith(f"{question.slot}:"):
            draft.set_deadline(name, due_at + late)
    if question.expires_at is not None:
        draft.keep_question(question, expires_at=question.expires_at + late)
    draft.record("slack", f"{ref} was posted {lasting(late)} late; its time starts now", data={"question": ref})


def half_of_a_question(draft: Draft, ref: str) -> None:
    """Mention the people again at half of the time that a question may wait."""
    question = draft.run.questions.get(ref)
    if question is None or question.status != "open" or draft.run.parked is not None:
        return
    if questions.is_taken(draft.run, question):
        return
    waited = lasting(draft.at - question.asked_at)
    mentions = calling.mentioned_in(draft, question.slot)
    # Without people to mention, the question itself says it.
    if mentions.get("mentions"):
        calling.note(draft, f"Waiting for an answer for {waited}: {question.text}", mentions)


def question_expired(draft: Draft, ref: str) -> None:
    """Take the exit for that; without one, park the incident with its question open."""
    question = draft.run.questions.get(ref)
    if question is None or question.status != "open":
        return None
    if not question.built_in and draft.playbook.machine.next(draft.run.visit.machine_state, "expired") is None:
        draft.record("answered", f"nobody answered {ref} in time; it can still be answered", data={"question": ref})
        return question_unanswered(draft, ref)
    draft.keep_question(question, status="expired")
    draft.set(question="")
    draft.record("answered", f"question {ref} expired without an answer", data={"question": ref})
    return _go_on_without(draft, question.text, "Nobody answered in time", because=f"nobody answered {ref} in time")


def _go_on_without(draft: Draft, asked: str, why: str, *, because: str) -> None:
    """Take the exit for what expired and call the lead, in the question that follows at once if there is one."""
    before, text = len(draft.run.posts), f"{why}: {asked}"
    calling.call_lead(draft, text)
    entering.go(draft, "expired", because=because)
    new = draft.run.posts[before:]
    if [post.kind for post in new] == ["note", "question"]:
        _join(draft, *new, title=redacted(asked), text=f"{why}.{new[0].data['text'].removeprefix(redacted(text))}")


def _join(draft: Draft, note: Post, question: Post, *, title: str, text: str) -> None:
    """Show a note at the head of the question after it, to the people of both. One to another team stays alone."""
    mentions = question.data.get("mentions", ())
    if mentions != calling.mentioned(draft).get("mentions"):
        return
    news = News(title=title, result="expired", text=text, at=draft.at).model_dump(mode="json")
    data = question.data | {
        "news": [*question.data.get("news", ()), news],
        "mentions": list(dict.fromkeys((*note.data["mentions"], *mentions))),
    }
    draft.set(posts=(*draft.run.posts[:-2], question.model_copy(update={"data": data})))


def question_unanswered(draft: Draft, ref: str) -> None:
    """Park an incident whose question nobody answered; it can still be answered."""
    question = draft.run.questions.get(ref)
    if question is None or question.status != "open":
        return
    draft.keep_question(question, expires_at=None)
    if draft.run.parked is not None:
        return
    is_taken = questions.is_taken(draft.run, question)
    if not is_taken:
        calling.call_lead(draft, f"Nobody has answered yet, and it can still be answered: {question.text}")
    if draft.run.change is not None and draft.run.change.begun:
        # Between two steps of a change the incident keeps its target's slot, and people are called every day.
        draft.set_deadline(f"{question.slot}:unanswered", draft.at + parking.REMIND_SECONDS)
    else:
        parking.park(draft, unanswered=not is_taken)
