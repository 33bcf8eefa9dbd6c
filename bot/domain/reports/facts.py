"""What a report says about an incident: times, decisions, changes, readings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, computed_field

from bot.domain.incidents.endings import ending_in_words
from bot.domain.kernel.links import Link
from bot.domain.kernel.runbook import RelatedRunbook, Runbook
from bot.domain.kernel.timeline import StoredHead
from bot.domain.signals.signal import Reading


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True)


class Visit(_Fact):
    state: str
    title: str = ""
    """What people call the state."""
    kind: str
    because: str
    entered_at: float
    took_seconds: float | None
    """None for the state it is in, or ended in."""
    runbook: Runbook | None = None
    """The step of the runbook that it is."""


class Diagnosed(_Fact):
    """What the bot took the trouble for, as it told people."""

    at: float
    title: str
    cause: str
    users: str
    found: tuple[str, ...] = ()
    """What a check found, most often the cause."""
    ruled_out: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be ruled out."""


class Phase(_Fact):
    """States of one kind in a row."""

    name: str
    began_at: float
    took_seconds: float | None


class FollowUp(_Fact):
    text: str
    who: str = ""
    """Who wrote it; empty where the timeline itself suggests it."""


class Waited(_Fact):
    """One request or question, from the moment it was put to people until they decided it or it was void."""

    about: str
    text: str
    asked_at: float
    ended_at: float | None


class Decided(_Fact):
    at: float
    who: str
    what: str
    granted: bool = False
    """Whether a request was approved."""
    digest: str = ""
    """Of the plan that was decided about."""
    reason: str = ""


class Applied(_Fact):
    """A change that was done, and who approved it."""

    request: str
    title: str
    at: float
    by: tuple[str, ...] = ()
    """Empty where no approval was needed."""


class Called(_Fact):
    """One call to the cluster; what it altered as `before → after` lines."""

    at: float
    text: str
    done: bool
    call_id: str = ""
    verb: str = ""
    """Empty where an earlier version of the bot recorded it."""
    detail: str = ""
    differences: tuple[str, ...] = ()


class Compared(_Fact):
    name: str
    baseline: Reading | None
    last: Reading | None


class Judged(_Fact):
    at: float
    state: str
    title: str = ""
    """What people call the watch."""
    verdict: str
    parts: dict[str, str]
    text: str


class Head(_Fact):
    """A head of the chain that was posted to Slack: there it can be compared by people."""

    entry: int
    head: str
    matches: int | None
    """The entry with this hash; 0 for the empty timeline, None when no entry before it has it."""
    channel: str
    message: str


class Report(_Fact):
    incident: str
    title: str
    target: str
    severity: str
    playbook: str
    alerts: tuple[str, ...]
    began_at: float
    """When the alert that opened it began to fire, or when it was opened, whichever is earlier."""
    opened_at: float
    first_act_at: float | None
    closed_at: float | None
    """None while it is open, also when it was reopened."""
    ending: str
    links: tuple[Link, ...] = ()
    """The alerts' runbooks and queries, and the dashboard."""
    related: tuple[RelatedRunbook, ...] = ()
    """Other runbooks that belong to the same trouble."""
    diagnosis: Diagnosed | None = None
    """Its title is empty if only checks found something."""
    users_at_the_end: str = ""
    firing_at_the_end: tuple[str, ...] = ()
    """The alerts that fired when it closed."""
    applied: tuple[Applied, ...] = ()
    phases: tuple[Phase, ...] = ()
    follow_ups: tuple[FollowUp, ...] = ()
    path: tuple[Visit, ...]
    waits: tuple[Waited, ...]
    waited_seconds: float
    """Time in which at least one request or question was open."""
    decisions: tuple[Decided, ...]
    calls: tuple[Called, ...]
    readings: tuple[Compared, ...]
    verdicts: tuple[Judged, ...]
    ignored: int
    """Kinds of late or strange events; identical ones are folded before they come here."""
    held: tuple[str, ...]
    """What was still in the cluster when it closed."""
    people: dict[str, str]
    """User ids to names, as their presses carried them."""
    entries: int
    broken_at: int | None
    """The number of the first entry that does not follow from the one before; None when the chain is consistent."""
    heads: tuple[Head, ...]
    stored: StoredHead | None = None
    """What the run itself says of the end of this timeline; None where it was not asked, or is not there any more."""
    head_fault: str = ""
    """Where the timeline does not end as the run says."""

    @property
    def called(self) -> str:
        """What people read for its trouble, as on the card."""
        return (self.diagnosis.title if self.diagnosis is not None else "") or self.title

    @property
    def ending_in_words(self) -> str:
        verbs = [call.verb for call in self.calls if call.done]
        return ending_in_words(self.ending, verbs=verbs, holds=bool(self.held))

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator above a property
    @property
    def act_seconds(self) -> float | None:
        """From open to the first act of a person: this incident's part in the MTTA."""
        return None if self.first_act_at is None else self.first_act_at - self.opened_at

    @computed_field  # type: ignore[prop-decorator]  # mypy knows no decorator above a property
    @property
    def close_seconds(self) -> float | None:
        """From open to closed: this incident's part in the MTTR."""
        return None if self.closed_at is None else self.closed_at - self.opened_at
