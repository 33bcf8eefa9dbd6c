"""`/incident silence`: what exactly would be silenced is shown first; one who may decide it confirms just that.

A silence hides alerts, so it is decided as a change of low risk is, and bound to what was shown.
"""

from __future__ import annotations

from collections.abc import Mapping

from bot.adapters.slack.escape import code, line
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.boundary import NotDoneError, Submission, permitted
from bot.adapters.slack.inbound.command import Answer, Command, closed, reply
from bot.adapters.slack.inbound.steering_words import INCIDENT, PointedAt, event_of, store
from bot.adapters.slack.outbound.blocks import context, section
from bot.adapters.slack.outbound.words import span
from bot.adapters.slack.services import Services
from bot.domain.approvals.grant import Authority, Policy, still_missing_at_best
from bot.domain.incidents.run import Run
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.form import Form, FormField, problems
from bot.domain.kernel.redaction import shown_value
from bot.domain.kernel.silence import digest_of, matchers_of

SILENCE_FORM = "silence"
LABEL, LABELS_A_LINE = 200, 6
"""As many as fit one line of a section, however long they are."""
MAX_SILENCE_LENGTH = 2 * 3600.0
"""What one person may decide; longer ones are made in Alertmanager, by whoever answers for them there."""
WHY: Form = {"text": FormField(label="Why?", max_length=500, why="It stands in Alertmanager and on the timeline.")}
NOT_KNOWN = "The bot does not know Alertmanager's address: set `alertmanager.url` in its settings."


class Silencing:
    def __init__(self, services: Services, pointed_at: PointedAt) -> None:
        self._services, self._pointed_at = services, pointed_at

    async def begin(self, command: Command) -> Answer:
        if self._services.silencers is None:
            raise NotDoneError(NOT_KNOWN)
        run, rest = await self._pointed_at(command)
        how_long, _, why = rest.partition(" ")
        if how_long.lower() == "off":
            return await self._end(command, run)
        await self._authority(command.user, self._services.silencers)
        duration = _duration(how_long, why, run)
        matchers = matchers_of(run.alerts.values())
        if not matchers:
            raise NotDoneError(f"No alert of {line(run.incident_id, 40)} fires, so there is nothing to silence.")
        kept = {INCIDENT: run.incident_id, "seconds": f"{duration:.0f}", "shown": digest_of(matchers)}
        blocks = [
            *section(
                [f"*Silenced for {span(duration)}*, or until {line(run.incident_id, 40)} closes, in Alertmanager:"]
            ),
            *section([text for name, labels in matchers.items() for text in _covered(name, labels)]),
            *context(["An alert with these labels pages nobody meanwhile, nor does the bot hear of it."]),
            *forms.inputs(WHY, filled={"text": why.strip()}),
        ]
        return forms.Modal(SILENCE_FORM, f"Silence {run.incident_id}", "Silence", blocks, command.place | kept)

    async def confirmed(self, sent: Submission) -> None:
        if self._services.silencers is None:
            raise NotDoneError(NOT_KNOWN)
        authority = await self._authority(sent.user, self._services.silencers)
        if wrong := problems(WHY, sent.fields):
            raise NotDoneError(fields=wrong)
        run = await self._services.incidents.load(sent.kept[INCIDENT])
        if run is not None and not run.is_open:
            raise NotDoneError(closed(run, "silence"))
        matchers = matchers_of(run.alerts.values()) if run is not None else {}
        if digest_of(matchers) != sent.kept["shown"]:
            raise NotDoneError("Other alerts fire than when this was shown. Close it and say the command again.")
        event = event_of(
            sent.command, "silence", text=str(sent.fields["text"]), seconds=float(sent.kept["seconds"]),
            silences=matchers, authority=authority,
        )  # fmt: skip
        await store(self._services.incidents, event, sent.kept[INCIDENT])

    async def _authority(self, user: str, policy: Policy) -> Authority:
        """Of who may decide it alone. Raise `NotDoneError` for anybody else."""
        authority = await permitted(self._services.people.authority(user, policy, at=self._services.clock.now()))
        missing = still_missing_at_best(policy, {user: authority.teams})
        if missing or not policy.own_work_counts:
            wants = " and ".join(f"{demand.needed} of {demand.team}" for demand in policy.demands)
            raise NotDoneError(f"The settings ask {wants} for a silence, so nobody makes one alone from here.")
        return authority

    async def _end(self, command: Command, run: Run) -> Answer:
        """Alerts that speak again hide nothing: whoever steers may do that."""
        await permitted(self._services.people.may_steer(command.user, at=self._services.clock.now()))
        await store(self._services.incidents, event_of(command, "unsilence"), run.incident_id)
        return reply(f"The silences of {line(run.incident_id, 40)} are being ended.")


def _duration(how_long: str, why: str, run: Run) -> float:
    usage = f"`/incident silence {run.incident_id} 30m why`, at most 2h, or `off`"
    try:
        duration = seconds(how_long)
    except ValueError:
        raise NotDoneError(f"Say for how long and why: {usage}.") from None
    if not 0 < duration <= MAX_SILENCE_LENGTH or not why.strip():
        raise NotDoneError(f"A silence has an end within two hours and a reason: {usage}.")
    return duration


def _covered(alertname: str, labels: Mapping[str, str]) -> list[str]:
    """In lines that wrap on a phone: nobody should confirm what runs out of the form."""
    pairs = [
        code(f"{name}={shown_value(name, value)}", LABEL)
        for name, value in sorted(labels.items())
        if name != "alertname"
    ]
    rows = [" ".join(pairs[at : at + LABELS_A_LINE]) for at in range(0, len(pairs), LABELS_A_LINE)]
    return [f"*{line(alertname, LABEL)}*{' with' if rows else ', wherever it comes from'}", *rows]
