"""What becomes of what the owner of a workload has to change: the button for a pull request, or its link."""

from __future__ import annotations

from bot.adapters.slack import press_value
from bot.adapters.slack.escape import line, link, mention
from bot.adapters.slack.limits import Block
from bot.adapters.slack.outbound.blocks import actions, button, context
from bot.adapters.slack.press_value import ButtonValue
from bot.domain.incidents.offered_patch import edit_of
from bot.domain.incidents.run import PullRequest, Run


def linked(wanted: PullRequest) -> str:
    """Its number, as a link; empty while it is not open."""
    number = wanted.url.rpartition("/")[2]
    return link(f"Pull request {number}" if number.isdigit() else "Pull request", wanted.url) if wanted.url else ""


def pull_request(run: Run, slot: str) -> list[Block]:
    """For the message in `slot`; empty if there is nothing to propose and nothing was."""
    wanted = run.pull_requests.get(slot)
    if wanted is not None and wanted.url:
        return context([f"🔗 {linked(wanted)}, opened for {mention(wanted.by)}."])
    if wanted is not None and not wanted.reason:
        return context([f"🔗 Opening a pull request for {mention(wanted.by)}…"])
    failed = f"❌ No pull request was opened: {line(wanted.reason, 500)}" if wanted is not None else ""
    edit, packed = edit_of(run, slot), ButtonValue(run.incident_id, slot).packed()
    if edit is None or packed is None:
        return context([failed])
    opens = button("Open a pull request", press_value.PULL_REQUEST, packed)
    return [*actions([opens]), *context([failed or f"In {line(edit.file, 200)}. Nothing changes until it is merged."])]
