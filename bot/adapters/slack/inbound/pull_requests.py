"""The button of what the owner of a workload has to change: opens a pull request with it.

A pull request is approved like a low-risk change: somebody else still has to merge it.
"""

from __future__ import annotations

from bot.adapters.slack.inbound.boundary import Click, NotDoneError, decides_alone
from bot.adapters.slack.inbound.command import Command
from bot.adapters.slack.inbound.operator_commands import event_of, store
from bot.adapters.slack.inbound.presses import OLD_BUTTON, value_of
from bot.adapters.slack.services import Services
from bot.domain.incidents.offered_patch import edit_of, is_wanted

WANTED = "This pull request was wanted already; the message shows what became of it."
NOTHING = "There is nothing to propose any more: the change was taken back, or the incident with the patch is closed."


class PullRequestButton:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def pressed(self, click: Click) -> None:
        value = value_of(click)
        run = await self._services.incidents.load(value.incident_id)
        policy_of = self._services.may_want_pull_request
        if run is None or policy_of is None:
            raise NotDoneError(OLD_BUTTON)
        if edit_of(run, value.about) is None:
            raise NotDoneError(NOTHING)
        if is_wanted(run, value.about):
            raise NotDoneError(WANTED)
        authority = await decides_alone(
            self._services.people,
            click.user,
            policy_of(run.target),
            at=self._services.clock.now(),
            refusal="No pull request was opened",
            so=", so one person cannot open a pull request here.",
        )
        command = Command.read(
            "pull_request",
            user=click.user,
            user_name=click.user_name,
            # The same click delivered twice is the same command.
            trigger_id=f"{click.message_ts}/{click.action_ts}",
        )
        event = event_of(command, "pull_request", to=value.about, authority=authority)
        await store(self._services.incidents, event, run.incident_id)
