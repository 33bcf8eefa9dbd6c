"""A pull request with what the owner of a workload has to change: a person who may approve wants it."""

from __future__ import annotations

from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import Commanded, EffectFailed, PullRequestSettled
from bot.domain.incidents.machine import events
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.offered_patch import EDIT, edit_of, is_wanted
from bot.domain.incidents.run import PullRequest
from bot.domain.kernel.redaction import redacted


def wanted(draft: Draft, event: Commanded) -> None:
    """Open the pull request of the message `event.to`, once. Without a permitted person's authority, nothing."""
    edit, authority = edit_of(draft.run, event.to), event.authority
    if edit is None or authority is None or not authority.allowed:
        return events.say(draft, event.user, "No pull request was opened: nobody with permission wanted one.")
    if draft.run.is_halted:
        return events.say(draft, event.user, "Changes are halted, so no pull request was opened. Resume them first.")
    if is_wanted(draft.run, event.to):
        return events.say(draft, event.user, "This pull request was wanted already.")
    data = {EDIT: edit.model_dump(mode="json"), "reason": authority.reason}
    draft.record("decided", f"wants a pull request in {edit.file}: {edit}", who=event.user, data=data)
    effect_id = f"pull_request/{event.event_id}"
    _keep(draft, event.to, PullRequest(by=event.user, effect_id=effect_id))
    return draft.want(OpenPullRequest(effect_id=effect_id, slot=event.to, edit=edit, wanted_by=event.user))


def settled(draft: Draft, event: PullRequestSettled) -> None:
    text = f"pull request opened: {event.url}" if event.url else f"no pull request could be opened: {event.reason}"
    draft.record("note", text, who=event.user, data={"url": event.url})
    _keep(draft, event.slot, PullRequest(by=event.user, url=event.url, reason=redacted(event.reason)))


def given_up(draft: Draft, event: EffectFailed) -> bool:
    """Whether the effect was a pull request. It may be wanted again: the message with the patch says why."""
    wanted_by_it = (each for each in draft.run.pull_requests.items() if each[1].effect_id == event.effect_id)
    slot, pull_request = next(wanted_by_it, ("", None))
    if pull_request is None:
        return False
    failed = PullRequestSettled(
        event_id=event.event_id, at=event.at, slot=slot, reason=event.reason, user=pull_request.by
    )
    settled(draft, failed)
    return True


def _keep(draft: Draft, slot: str, pull_request: PullRequest) -> None:
    draft.set(pull_requests=draft.run.pull_requests | {slot: pull_request})
