"""Effects: external work that a run requests. Their ids name the visit: leaving the state voids them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bot.domain.approvals.grant import Press
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import LedgerEntry
from bot.domain.kernel.alert import Alert

Lane = Literal["people", "cards", "reads", "waits", "pages"]
"""Each kind of effect runs in one lane, so that effects blocked on one dependency never delay the others."""
LANES: tuple[Lane, ...] = get_args(Lane)


_READING = re.compile(r"v\d+/(?:read|watch|advice/.*)")


def is_a_reading(effect_id: str) -> bool:
    """Whether the run waits for what this effect reads or watches."""
    return _READING.fullmatch(effect_id) is not None


class _Effect(BaseModel):
    model_config = ConfigDict(frozen=True)

    lane: ClassVar[Lane] = "reads"
    not_done: ClassVar[str]
    """Says that it failed; the reason follows."""
    is_awaited: ClassVar[bool] = False
    """A person awaits it in the thread; an unjudged press was acknowledged but decided nothing."""
    effect_id: str
    visit: int | None = None
    """The visit that it belongs to; void once the run has left it. None: due whatever the run does."""


class ReadSignals(_Effect):
    not_done: ClassVar[str] = "the signals could not be read"
    kind: Literal["read_signals"] = "read_signals"
    state: str
    names: tuple[str, ...]


class ReadCalm(_Effect):
    """Read whether the trouble is gone, while the incident waits for people and its alerts are resolved."""

    not_done: ClassVar[str] = "whether the trouble is gone could not be read"
    kind: Literal["read_calm"] = "read_calm"


class PlanChange(_Effect):
    not_done: ClassVar[str] = "the change could not be planned"
    kind: Literal["plan_change"] = "plan_change"
    state: str


class JudgePress(_Effect):
    lane: ClassVar[Lane] = "people"
    not_done: ClassVar[str] = "the person who pressed could not be looked up, so the press decided nothing"
    is_awaited: ClassVar[bool] = True
    kind: Literal["judge_press"] = "judge_press"
    press: Press
    pressed_at: float


class ApplyStep(_Effect):
    lane: ClassVar[Lane] = "waits"
    not_done: ClassVar[str] = "the step could not be completed"
    kind: Literal["apply_step"] = "apply_step"
    request_id: str
    step: int

    def call_id(self, incident_id: str) -> str:
        """The id under which its call is claimed, sent and recorded."""
        return f"{incident_id}/{self.request_id}/{self.step}"


class WatchSignals(_Effect):
    lane: ClassVar[Lane] = "waits"
    not_done: ClassVar[str] = "the signals could not be watched"
    kind: Literal["watch_signals"] = "watch_signals"
    state: str
    started_at: float


class WatchAdvice(_Effect):
    """Watch whether the trouble ends after a change was advised."""

    lane: ClassVar[Lane] = "waits"
    not_done: ClassVar[str] = "whether the trouble ended could not be watched"
    kind: Literal["watch_advice"] = "watch_advice"
    request_id: str


class Notify(_Effect):
    """An ephemeral answer, visible to one person."""

    lane: ClassVar[Lane] = "people"
    not_done: ClassVar[str] = "an answer could not be delivered"
    kind: Literal["notify"] = "notify"
    user: str
    channel: str
    text: str
    response_url: str = ""


class ShowInSlack(_Effect):
    """Update the card and the thread to the newest run; one per incident is enough."""

    lane: ClassVar[Lane] = "cards"
    not_done: ClassVar[str] = "Slack could not be updated"
    kind: Literal["show_in_slack"] = "show_in_slack"


class ReleaseLeases(_Effect):
    lane: ClassVar[Lane] = "people"
    not_done: ClassVar[str] = "the leases could not be released; they will expire"
    kind: Literal["release_leases"] = "release_leases"
    request_id: str = ""
    """Only its leases: performed late, the next change may have claimed some. Empty: all of the incident."""


ExportFormat = Literal["md", "json", "html"]


class ExportTimeline(_Effect):
    lane: ClassVar[Lane] = "cards"
    not_done: ClassVar[str] = "the timeline could not be uploaded here"
    is_awaited: ClassVar[bool] = True
    kind: Literal["export_timeline"] = "export_timeline"
    format: ExportFormat
    wanted_by: str = ""


class StoreReport(_Effect):
    """Keep the report of the closed incident outside, in all its formats."""

    not_done: ClassVar[str] = "the report could not be stored"
    kind: Literal["store_report"] = "store_report"


class DrawPath(_Effect):
    """Post a picture of the playbook, with the path the run took, to the incident's thread."""

    lane: ClassVar[Lane] = "cards"
    not_done: ClassVar[str] = "the picture of the playbook could not be posted here"
    is_awaited: ClassVar[bool] = True
    kind: Literal["draw_way"] = "draw_way"


class ReadSeries(_Effect):
    """Read the run's most relevant signals over its whole time, for its timeline."""

    not_done: ClassVar[str] = "the history of the signals could not be read"
    kind: Literal["read_series"] = "read_series"


class DrawChart(_Effect):
    """Draw the lines of the timeline as one chart, with the decisions marked, and show it in Slack."""

    lane: ClassVar[Lane] = "cards"
    not_done: ClassVar[str] = "the chart could not be posted here"
    kind: Literal["draw_chart"] = "draw_chart"
    slot: str = ""
    """The message of the thread that shows it; empty: it is a message of its own."""


class SilenceAlerts(_Effect):
    """Silence this incident's alerts in Alertmanager for a while."""

    not_done: ClassVar[str] = "the alerts could not be silenced"
    is_awaited: ClassVar[bool] = True
    kind: Literal["silence_alerts"] = "silence_alerts"
    about: dict[str, dict[str, str]]
    """Alert name to labels, as shown and confirmed."""
    ends_at: float
    why: str
    wanted_by: str
    wanted_at: float = 0.0


class EndSilences(_Effect):
    not_done: ClassVar[str] = "the silences could not be ended"
    is_awaited: ClassVar[bool] = True
    kind: Literal["end_silences"] = "end_silences"
    ids: tuple[str, ...]


class OpenPullRequest(_Effect):
    """Propose in git what the owner of the workload has to change."""

    not_done: ClassVar[str] = "a pull request could not be opened"
    kind: Literal["open_pull_request"] = "open_pull_request"
    slot: str
    """The message with the patch."""
    edit: OwnersEdit
    wanted_by: str


class PageTeam(_Effect):
    """Bring a page to what the run wants; one per page is enough."""

    lane: ClassVar[Lane] = "pages"
    not_done: ClassVar[str] = "a team could not be paged"
    kind: Literal["page_team"] = "page_team"
    page: str


class RouteAgain(_Effect):
    """Return an alert to the intake, because this incident left its target's slot before it received the alert."""

    lane: ClassVar[Lane] = "people"
    not_done: ClassVar[str] = "an alert could not be routed again"
    kind: Literal["route_again"] = "route_again"
    alert: Alert
    truncated: int = 0


class PassOnChanges(_Effect):
    """Give the active changes of a superseded incident to the one that has the target now."""

    lane: ClassVar[Lane] = "people"
    not_done: ClassVar[str] = "the active changes could not be passed on to the next incident"
    kind: Literal["pass_on_changes"] = "pass_on_changes"
    to: str
    entries: tuple[LedgerEntry, ...]


Effect = Annotated[
    ReadSignals
    | ReadCalm
    | PlanChange
    | JudgePress
    | ApplyStep
    | WatchSignals
    | WatchAdvice
    | Notify
    | ShowInSlack
    | ReleaseLeases
    | ExportTimeline
    | StoreReport
    | DrawPath
    | ReadSeries
    | DrawChart
    | SilenceAlerts
    | EndSilences
    | OpenPullRequest
    | PageTeam
    | RouteAgain
    | PassOnChanges,
    Field(discriminator="kind"),
]
EFFECT: TypeAdapter[Effect] = TypeAdapter(Effect)
KINDS: Mapping[str, type[_Effect]] = {kind.model_fields["kind"].default: kind for kind in get_args(get_args(Effect)[0])}
