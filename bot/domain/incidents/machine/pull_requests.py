"""A pull request with the patch that was handed out to the owner of a workload: a person who may approve wants it."""

from __future__ import annotations

from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import Commanded, PullRequestSettled
from bot.domain.incidents.machine import events
from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.offered_patch import EDIT, PULL_REQUEST, REPOSITORY, is_wanted
from bot.domain.incidents.run import Post
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.redaction import redacted


def wanted(draft: Draft, event: Commanded) -> None:
    """Open the pull request of the message `event.to`, once. Without a permitted person's authority, nothing."""
    post = next((each for each in draft.run.posts if each.slot == event.to and REPOSITORY in each.data), None)
    authority = event.authority
    if post is None or authority is None or not authority.allowed:
        return events.say(draft, event.user, "No pull request was opened: nobody with permission wanted one.")
    if draft.run.is_halted:
        return events.say(draft, event.user, "Changes are halted, so no pull request was opened. Resume them first.")
    if is_wanted(post):
        return events.say(draft, event.user, "A pull request with this patch was wanted already.")
    edit = OwnersEdit.model_validate(post.data[EDIT])
    text = f"wants a pull request in {post.data[REPOSITORY]}: {edit}"
    draft.record("decided", text, who=event.user, data={EDIT: post.data[EDIT], "reason": authority.reason})
    _keep(draft, post, {"by": event.user})
    return draft.want(
        OpenPullRequest(effect_id=f"pull_request/{event.event_id}", slot=post.slot, edit=edit, wanted_by=event.user)
    )


def settled(draft: Draft, event: PullRequestSettled) -> None:
    post = next((each for each in draft.run.posts if each.slot == event.slot), None)
    if post is None:
        return draft.ignore(f"a pull request for a message that is not kept: {event.slot}")
    text = f"pull request opened: {event.url}" if event.url else f"no pull request could be opened: {event.reason}"
    draft.record("note", text, who=event.user, data={"url": event.url})
    return _keep(draft, post, {"by": event.user, "url": event.url, "reason": redacted(event.reason)})


def _keep(draft: Draft, post: Post, state: dict[str, str]) -> None:
    kept = copy_with(post, data=post.data | {PULL_REQUEST: state})
    draft.set(posts=tuple(kept if each is post else each for each in draft.run.posts))
