"""Lets a person open an incident under the same rule as an alert: one open incident for each target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bot.domain.incidents.event import OpenedByHand
from bot.domain.incidents.run import Run, before_start, parked_incident
from bot.domain.kernel.errors import OpeningError
from bot.domain.kernel.form import Answer, FormField, answers, problems
from bot.domain.kernel.target import Target
from bot.domain.playbooks.bundle import Bundle
from bot.flow.ports.storage import Playbooks, RunStore
from bot.flow.restrictions import Restrictions


@dataclass(frozen=True)
class Opening:
    """An incident that a person wants to open; `submission_id` is that of the form, and counts once."""

    submission_id: str
    playbook: str
    target: Target
    user: str
    user_name: str = ""
    fields: Mapping[str, Answer] | None = None
    seen: str = ""
    """What the person sees, in words; may be empty."""


@dataclass(frozen=True)
class Opened:
    incident_id: str
    is_new: bool
    """False: the target already had an open incident, or this form was submitted before."""


class OpenByHand:
    def __init__(
        self, runs: RunStore, playbooks: Playbooks, restrictions: Restrictions, *, wake: Callable[[str], None]
    ) -> None:
        self._restrictions = restrictions
        self._runs, self._playbooks, self._wake = runs, playbooks, wake

    def form(self, playbook: str, target: Target) -> Mapping[str, FormField]:
        """The form's fields; raises `OpeningError` if there is no such playbook."""
        return self._bundle(playbook, target).entry_playbook.playbook.form

    async def __call__(self, opening: Opening) -> Opened:
        """Raises `OpeningError` with the errors by field. Nothing is stored then."""
        bundle = self._bundle(opening.playbook, opening.target)
        form, given = bundle.entry_playbook.playbook.form, opening.fields or {}
        if wrong := problems(form, given):
            raise OpeningError("; ".join(wrong.values()), wrong)
        event = OpenedByHand(
            event_id=f"opened/{opening.submission_id}",
            user=opening.user,
            user_name=opening.user_name,
            fields=answers(form, given),
            seen=opening.seen,
        )
        while True:
            current = await self._runs.open_incident(opening.target.key)
            if current is not None:
                return Opened(current, is_new=False)
            run = begun(await self._runs.next_incident_id(), opening, bundle, at=await self._runs.now())
            found = await self._runs.load_all(await self._runs.parked_incidents(opening.target.key))
            advice = await self._restrictions.advice(run, at=run.opened_at)
            run = run.with_(only_advice=advice, parked_before=tuple(parked_incident(one) for one in found))
            stored = await self._runs.open(run, event, bundle=bundle, submission_id=opening.submission_id)
            if stored is not None:
                self._wake(stored)
                return Opened(stored, is_new=stored == run.incident_id)

    def _bundle(self, playbook: str, target: Target) -> Bundle:
        bundle = self._playbooks.bundle(playbook, target)
        if bundle is None:
            raise OpeningError(f"there is no playbook '{playbook}'")
        return bundle


def begun(incident_id: str, opening: Opening, bundle: Bundle, *, at: float) -> Run:
    """The run as it is before its first decision."""
    playbook = bundle.entry_playbook
    return Run(
        incident_id=incident_id,
        target=opening.target,
        title=playbook.playbook.title,
        opened_at=at,
        starts_at=at,
        playbook=playbook.name,
        digest=bundle.digest,
        visit=before_start(playbook, at=at),
    )
