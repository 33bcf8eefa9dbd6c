"""Events: what happened to a run. The storage stamps each event with its own time; the event id deduplicates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bot.domain.approvals.advice import OnlyAdvice
from bot.domain.approvals.grant import Authority, Press
from bot.domain.changes.plan import LedgerEntry, PlanResult, Result
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.run import Offer, PageAction
from bot.domain.incidents.series import Series
from bot.domain.kernel.alert import Alert
from bot.domain.signals.signal import Reading


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)

    event_id: str
    at: float = 0.0
    """Epoch seconds of the storage's clock, set by the storage when it receives the event."""

    @property
    def may_wait(self) -> bool:
        """Whether it can be read together with the next event: nothing is decided because of it."""
        return False


class AlertChanged(_Event):
    kind: Literal["alert_changed"] = "alert_changed"
    alert: Alert
    truncated: int = 0
    """How many more alerts Alertmanager left out of the same webhook."""
    offer: Offer | None = None
    """The playbook that such an alert opens, if it differs from the run's."""


class OpenedByHand(_Event):
    """A person opened the incident; the form has already validated the fields."""

    kind: Literal["opened_by_hand"] = "opened_by_hand"
    user: str
    user_name: str = ""
    fields: dict[str, float | str] = Field(default_factory=dict)
    seen: str = ""
    """What the person sees, in words; may be empty."""


class SignalsRead(_Event):
    kind: Literal["signals_read"] = "signals_read"
    effect_id: str
    readings: dict[str, Reading]


class CalmRead(_Event):
    """What `calm` of the playbook needs, read while the incident waits for people."""

    kind: Literal["calm_read"] = "calm_read"
    effect_id: str
    readings: dict[str, Reading]


class Planned(_Event):
    """The result of planning, with the readings that it used."""

    kind: Literal["planned"] = "planned"
    effect_id: str
    result: PlanResult
    readings: dict[str, Reading] = Field(default_factory=dict)
    only_advice: OnlyAdvice | None = None
    """Why the change is only advised now."""


class Pressed(_Event):
    kind: Literal["pressed"] = "pressed"
    press: Press


class Judged(_Event):
    kind: Literal["judged"] = "judged"
    press: Press
    pressed_at: float
    authority: Authority


class StepSettled(_Event):
    """One step of a plan ended. `superseded` carries the plan as it would be now; `withheld`: the bot sent nothing."""

    kind: Literal["step_settled"] = "step_settled"
    effect_id: str
    request_id: str
    step: int
    call_id: str = ""
    result: Result | Literal["not_needed", "still_unknown", "lapsed", "interfered", "withheld", "affected"]
    detail: str = ""
    replanned: PlanResult | None = None
    readings: dict[str, Reading] = Field(default_factory=dict)
    """Signals read right before the call."""
    impact: Impact | None = None
    """For the first step: the impact at the grant. With `affected`: the impact now."""
    evidence: dict[str, Any] = Field(default_factory=dict)


class Progressed(_Event):
    """Progress of the current step; displayed, never used for decisions."""

    kind: Literal["progressed"] = "progressed"
    effect_id: str
    text: str
    readings: dict[str, Reading] = Field(default_factory=dict)


class Watched(_Event):
    """The verdict of a watch and of each of its named parts."""

    kind: Literal["watched"] = "watched"
    effect_id: str
    verdict: Literal["held", "not_held", "unknown", "broke"]
    broke: int | None = None
    parts: dict[str, str] = Field(default_factory=dict)
    readings: dict[str, Reading] = Field(default_factory=dict)
    detail: str = ""


class AdviceWatched(_Event):
    """How the trouble went on after a change was advised; `lifted`: the change may be requested now."""

    kind: Literal["advice_watched"] = "advice_watched"
    effect_id: str
    request_id: str
    result: Literal["recovered", "not_recovered", "lifted"]
    recovered_at: float | None = None
    readings: dict[str, Reading] = Field(default_factory=dict)
    detail: str = ""


class Due(_Event):
    """A deadline of the run passed."""

    kind: Literal["due"] = "due"
    deadline: str
    due_at: float


ALL = "all"
CommandName = Literal[
    "halt", "resume", "note", "undo", "resolve", "lead", "export", "reset", "divert", "graph", "status", "skip",
    "silence", "unsilence", "reopen", "pin", "handover", "followup", "freeze", "pull_request",
]  # fmt: skip


class CommandKind(NamedTuple):
    """When a command counts, and what it shows."""

    when_closed: bool = False
    """A closed incident accepts it."""
    is_written: bool = False
    """What people add to an incident; the report of a closed one is stored again with it."""
    without_playbook: bool = False
    """An incident whose playbook cannot be read any more accepts it."""
    shows_presence: bool = False
    """Somebody is there: nobody needs to be called any more."""


COMMANDS: Mapping[CommandName, CommandKind] = {
    "halt": CommandKind(without_playbook=True, shows_presence=True),
    "resume": CommandKind(shows_presence=True),
    "undo": CommandKind(shows_presence=True),
    "resolve": CommandKind(shows_presence=True),
    "divert": CommandKind(shows_presence=True),
    "skip": CommandKind(shows_presence=True),
    "reset": CommandKind(),
    "reopen": CommandKind(when_closed=True),
    "freeze": CommandKind(),
    "silence": CommandKind(shows_presence=True),
    "unsilence": CommandKind(),
    "pull_request": CommandKind(when_closed=True),
    "lead": CommandKind(without_playbook=True, shows_presence=True),
    "handover": CommandKind(),
    "status": CommandKind(shows_presence=True),
    "note": CommandKind(when_closed=True, is_written=True, without_playbook=True),
    "followup": CommandKind(when_closed=True, is_written=True, without_playbook=True),
    "pin": CommandKind(when_closed=True, is_written=True, without_playbook=True),
    "export": CommandKind(when_closed=True, without_playbook=True),
    "graph": CommandKind(when_closed=True),
}


class Commanded(_Event):
    """A slash command for one run, already authorized."""

    kind: Literal["commanded"] = "commanded"
    command: CommandName
    user: str
    user_name: str = ""
    text: str = ""
    to: str = ""
    """The state to continue in, the next lead, the freeze that holds, or the message whose patch is proposed; `ALL` if
    everything is halted, not only this run.
    """
    visit: int | None = None
    """The stay in a state that a skip is about; None: the present one."""
    seconds: float | None = None
    """Time until the next status, or how long to silence."""
    silences: dict[str, dict[str, str]] = Field(default_factory=dict)
    """The alerts to silence, as shown: alert name to labels."""
    authority: Authority | None = None
    """The authority of the person who confirmed a silence or wants a pull request, kept as evidence."""
    happened_at: float | None = None
    author: str = ""
    link: str = ""
    """Time, author and link of a pinned message."""


class Silenced(_Event):
    """Alertmanager accepted the silences."""

    kind: Literal["silenced"] = "silenced"
    ids: tuple[str, ...]
    about: tuple[str, ...]
    ends_at: float
    user: str


class SilencesEnded(_Event):
    kind: Literal["silences_ended"] = "silences_ended"
    ids: tuple[str, ...]


class PullRequestSettled(_Event):
    """The pull request for a patch is open, or could not be opened."""

    kind: Literal["pull_request_settled"] = "pull_request_settled"
    slot: str
    """The message with the patch."""
    url: str = ""
    reason: str = ""
    """Why there is none."""
    user: str


class Paged(_Event):
    """A team's pager accepted a call, its acknowledgement or its end."""

    kind: Literal["paged"] = "paged"
    page: str
    action: PageAction
    through: str
    """PagerDuty, Opsgenie or the webhook."""
    key: str
    """By which the pager deduplicates."""


class PageFailed(_Event):
    """A team's pager did not accept a call; if `lasting`, it is not sent again."""

    kind: Literal["page_failed"] = "page_failed"
    page: str
    reason: str
    lasting: bool


class SeriesRead(_Event):
    """The signals that the run was judged on, as lines over its whole time."""

    kind: Literal["series_read"] = "series_read"
    effect_id: str
    lines: tuple[Series, ...]


CARD = "card"
"""The slot of the message that shows the state of the incident."""


class Posted(_Event):
    """A message of this run is now in Slack; a request's expiry counts from here."""

    kind: Literal["posted"] = "posted"
    slot: str
    ts: str
    channel: str

    @property
    def may_wait(self) -> bool:
        return self.slot == CARD


class ChangesPassedOn(_Event):
    """Another incident of the target ended as superseded; its active changes belong to this one now."""

    kind: Literal["changes_passed_on"] = "changes_passed_on"
    by: str
    entries: tuple[LedgerEntry, ...]


class EffectFailed(_Event):
    """An effect was abandoned, with a reason for people to read."""

    kind: Literal["effect_failed"] = "effect_failed"
    effect_id: str
    effect_kind: str
    reason: str


Event = Annotated[
    AlertChanged
    | OpenedByHand
    | SignalsRead
    | CalmRead
    | Planned
    | Pressed
    | Judged
    | StepSettled
    | Progressed
    | Watched
    | AdviceWatched
    | Due
    | Commanded
    | Silenced
    | SilencesEnded
    | PullRequestSettled
    | Paged
    | PageFailed
    | SeriesRead
    | Posted
    | ChangesPassedOn
    | EffectFailed,
    Field(discriminator="kind"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
