"""Events: what happened to a run. Each is stamped with the storage's time as it enters; its id deduplicates it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bot.domain.approvals.grant import Authority, Press
from bot.domain.changes.plan import PlanResult, Result
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.run import Offer
from bot.domain.incidents.series import Series
from bot.domain.kernel.alert import Alert
from bot.domain.signals.signal import Reading


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True)

    event_id: str
    at: float = 0.0
    """Epoch seconds of the storage's clock, written by the storage as the event enters."""


class AlertChanged(_Event):
    kind: Literal["alert_changed"] = "alert_changed"
    alert: Alert
    truncated: int = 0
    """How many more alerts of the same webhook Alertmanager left out."""
    offer: Offer | None = None
    """The playbook that such an alert opens, where it is another than the run's."""


class OpenedByHand(_Event):
    """A person opened the incident; the fields were judged by the form before."""

    kind: Literal["opened_by_hand"] = "opened_by_hand"
    user: str
    user_name: str = ""
    fields: dict[str, float | str] = {}


class SignalsRead(_Event):
    kind: Literal["signals_read"] = "signals_read"
    effect_id: str
    readings: dict[str, Reading]


class Planned(_Event):
    """What planning came to, with the readings that it used."""

    kind: Literal["planned"] = "planned"
    effect_id: str
    result: PlanResult
    readings: dict[str, Reading] = {}


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
    readings: dict[str, Reading] = {}
    """What was read right before the call."""
    impact: Impact | None = None
    """With the first step: at the grant. With `affected`: now."""
    evidence: dict[str, Any] = {}


class Progressed(_Event):
    """What can be said about the step under way; shown, never decided on."""

    kind: Literal["progressed"] = "progressed"
    effect_id: str
    text: str
    readings: dict[str, Reading] = {}


class Watched(_Event):
    """A watch came to a verdict, with the verdict of each of its named parts."""

    kind: Literal["watched"] = "watched"
    effect_id: str
    verdict: Literal["held", "not_held", "unknown", "broke"]
    broke: int | None = None
    parts: dict[str, str] = {}
    readings: dict[str, Reading] = {}
    detail: str = ""


class Due(_Event):
    """A deadline of the run passed."""

    kind: Literal["due"] = "due"
    deadline: str
    due_at: float


ALL = "all"


class Commanded(_Event):
    """A slash command that concerns one run, already judged as permitted."""

    kind: Literal["commanded"] = "commanded"
    command: Literal[
        "halt", "resume", "note", "undo", "resolve", "lead", "export", "reset", "divert", "graph", "status", "skip",
        "silence", "unsilence", "reopen", "pin",
    ]  # fmt: skip
    user: str
    user_name: str = ""
    text: str = ""
    to: str = ""
    """The state to go on in; `ALL` where everything is halted and not this run by itself."""
    seconds: float | None = None
    """Until the next status; how long to silence."""
    silences: dict[str, dict[str, str]] = {}
    """What is to be silenced, as it was shown: alert name to labels."""
    authority: Authority | None = None
    """Of who confirmed a silence, kept as evidence."""
    happened_at: float | None = None
    author: str = ""
    link: str = ""
    """Of a pinned message: when, by whom, and where it was said."""


class Silenced(_Event):
    """Alertmanager took the silences."""

    kind: Literal["silenced"] = "silenced"
    ids: tuple[str, ...]
    about: tuple[str, ...]
    ends_at: float
    user: str


class SilencesEnded(_Event):
    kind: Literal["silences_ended"] = "silences_ended"
    ids: tuple[str, ...]


class SeriesRead(_Event):
    """What the run was judged on, as lines over its whole time."""

    kind: Literal["series_read"] = "series_read"
    effect_id: str
    lines: tuple[Series, ...]


class Posted(_Event):
    """A message of this run is in Slack now; a request's expiry counts from here."""

    kind: Literal["posted"] = "posted"
    slot: str
    ts: str
    channel: str


class EffectFailed(_Event):
    """An effect was given up, with the reason for people."""

    kind: Literal["effect_failed"] = "effect_failed"
    effect_id: str
    effect_kind: str
    reason: str


Event = Annotated[
    AlertChanged
    | OpenedByHand
    | SignalsRead
    | Planned
    | Pressed
    | Judged
    | StepSettled
    | Progressed
    | Watched
    | Due
    | Commanded
    | Silenced
    | SilencesEnded
    | SeriesRead
    | Posted
    | EffectFailed,
    Field(discriminator="kind"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
