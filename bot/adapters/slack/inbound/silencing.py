"""`/incident silence`: shows exactly what would be silenced; a permitted person then confirms it.

A silence hides alerts, so it is approved like a low-risk change and bound to the matchers that were shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.adapters.slack.escape import code, line
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.boundary import NotDoneError, Submission, decides_alone, permitted
from bot.adapters.slack.inbound.command import Answer, Command, closed, reply
from bot.adapters.slack.inbound.naming import Naming
from bot.adapters.slack.inbound.operator_commands import INCIDENT, event_of, store
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.services import Services
from bot.domain.approvals.grant import Authority, Policy
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import lasting, seconds
from bot.domain.kernel.form import Form, FormField, problems
from bot.domain.kernel.redaction import shown_value
from bot.domain.kernel.silence import digest_of, matchers_of

SILENCE_FORM = "silence"
LABEL, LABELS_A_LINE = 200, 6
"""As many as fit one line of a section, however long they are."""
MAX_SILENCE_LENGTH = 2 * 3600.0
"""The longest silence that one person may create here; longer ones are created in Alertmanager."""
WHY: Form = {"text": FormField(label="Why?", max_length=500, why="Shown in Alertmanager and on the timeline.")}
CHANGED = "The firing alerts have changed since this was shown. Close this form and send the command again."
NOT_KNOWN = "The bot does not know Alertmanager's address: set `alertmanager.url` in its settings."


class Silencing:
    def __init__(self, services: Services, naming: Naming) -> None:
        self._services, self._naming = services, naming

    async def begin(self, command: Command) -> Answer:
        if self._services.silencers is None:
            raise NotDoneError(NOT_KNOWN)
        run, rest = await self._naming.run_and_text(command)
        how_long, _, why = rest.partition(" ")
        if how_long.lower() == "off":
            return await self._end(command, run)
        await self._authority(command.user, self._services.silencers(run.target))
        duration = _duration(how_long, why, run)
        matchers = matchers_of(run.alerts.values())
        if not matchers:
            raise NotDoneError(f"No alert of {line(run.incident_id, 40)} is firing, so there is nothing to silence.")
        kept = {INCIDENT: run.incident_id, "seconds": f"{duration:.0f}", "shown": digest_of(matchers)}
        blocks = [
            *section(
                [f"*Silenced for {lasting(duration)}*, or until {line(run.incident_id, 40)} closes, in Alertmanager:"]
            ),
            *section([text for name, labels in matchers.items() for text in _covered(name, labels)]),
            *context(["Until then, alerts with these labels page nobody and do not reach the bot."]),
            *forms.inputs(WHY, filled={"text": why.strip()}),
        ]
        return forms.Modal(SILENCE_FORM, f"Silence {run.incident_id}", "Silence", blocks, command.place | kept)

    async def confirmed(self, sent: Submission) -> None:
        if self._services.silencers is None:
            raise NotDoneError(NOT_KNOWN)
        run = await self._services.incidents.load(sent.kept[INCIDENT])
        if run is None:
            raise NotDoneError(CHANGED)
        authority = await self._authority(sent.user, self._services.silencers(run.target))
        if wrong := problems(WHY, sent.fields):
            raise NotDoneError(fields=wrong)
        if not run.is_open:
            raise NotDoneError(closed(run, "silence"))
        matchers = matchers_of(run.alerts.values())
        if digest_of(matchers) != sent.kept["shown"]:
            raise NotDoneError(CHANGED)
        event = event_of(
            sent.command, "silence", text=str(sent.fields["text"]), seconds=float(sent.kept["seconds"]),
            silences=matchers, authority=authority,
        )  # fmt: skip
        await store(self._services.incidents, event, sent.kept[INCIDENT])

    async def _authority(self, user: str, policy: Policy) -> Authority:
        """The authority of a person who may decide alone. Raise `NotDoneError` for anyone else."""
        return await decides_alone(
            self._services.people,
            user,
            policy,
            at=self._services.clock.now(),
            refusal="Not done",
            so=" for a silence, so one person cannot create it here.",
        )

    async def _end(self, command: Command, run: Run) -> Answer:
        """Ends the silences. Every operator may do this, since it hides nothing."""
        await permitted(self._services.people.may_operate(command.user, at=self._services.clock.now()))
        # Stored all the same: a silence of a moment ago may not be in the run yet.
        await store(self._services.incidents, event_of(command, "unsilence"), run.incident_id)
        name = line(run.incident_id, 40)
        return reply(
            f"The silences of {name} are being ended." if run.silences else f"{name} has no silence by the bot."
        )


def _duration(how_long: str, why: str, run: Run) -> float:
    usage = f"`/incident silence {run.incident_id} 30m WHY`"
    try:
        duration = seconds(how_long)
    except ValueError:
        raise NotDoneError(f"Give a duration and a reason: {usage}, or `off` to end it.") from None
    if not 0 < duration <= MAX_SILENCE_LENGTH or not why.strip():
        raise NotDoneError(f"A silence lasts at most two hours and needs a reason: {usage}.")
    return duration


def _covered(alertname: str, labels: Mapping[str, str]) -> list[str]:
    """The matchers in lines that wrap on a phone, so that all of them are visible before they are confirmed."""
    pairs = [
        code(f"{name}={shown_value(name, value)}", LABEL)
        for name, value in sorted(labels.items())
        if name != "alertname"
    ]
    rows = [" ".join(pairs[at : at + LABELS_A_LINE]) for at in range(0, len(pairs), LABELS_A_LINE)]
    return [f"*{line(alertname, LABEL)}*{' with' if rows else 'with any labels'}", *rows]
