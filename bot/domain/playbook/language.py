"""The playbook language, version 1, as data: what an author may write. Names in it are checked in `check`, not here.

Durations in the file are texts (`90s`, `5m`, `2h`) or names of settings; in these models they stay texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from bot.domain.change.plan import Risk
from bot.domain.form import Form

Take = Literal["last", "avg", "p50", "p90", "p99", "max", "min", "rate", "steady", "increase", "slope"]
Across = Literal["max", "min", "avg", "sum", "each"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Setting(_Strict):
    """A number or duration that an operator may override; `why` is its reason."""

    default: float | str | bool
    min: float | str | None = None
    max: float | str | None = None
    unit: str = ""
    why: str = ""


class MetricSignal(_Strict):
    """One engine metric: per replica and engine rank over the window first (`take`), then across replicas."""

    metric: str
    over: str = "5m"
    ending: str = ""
    """When the window ends: now where it is empty, else `incident.starts_at` or `results.<state>.<signal>`."""
    take: Take = "p90"
    across: Across = "max"
    of: str = "target"
    """`target`: replicas of the workload; `spare`: our canary; `picked.<name>`: that one replica."""
    unit: str = ""


class RatioSignal(_Strict):
    """The increase of one counter per increase of another, over the same window; 0/0 is unknown."""

    ratio: tuple[str, str]
    over: str = "5m"
    ending: str = ""
    across: Across = "sum"
    """`sum`: both sides summed over replicas first; `each`: one ratio a replica; `max`: the worst of those."""
    of: str = "target"
    unit: str = ""


class MeanSignal(_Strict):
    """The mean of a histogram's observations in the window: increase of its sum per increase of its count."""

    mean: str
    over: str = "30m"
    ending: str = ""
    of: str = "target"
    across: Across = "sum"
    unit: str = ""


class QuantileSignal(_Strict):
    """A quantile of a histogram's observations in the window, over all replicas together."""

    quantile: float
    histogram: str
    over: str = "5m"
    ending: str = ""
    of: str = "target"
    unit: str = ""


class ShareSignal(_Strict):
    """The share of a histogram's observations above a target in the window: a burn rate is share / (1 - objective)."""

    share_above: float | str
    """The target in the histogram's unit: a number, a duration (`500ms`) or `settings.<name>`."""
    histogram: str
    """Which histogram's observations are counted."""
    over: str = "5m"
    ending: str = ""
    of: str = "target"
    unit: str = ""


class StallSignal(_Strict):
    """The sign of a full stall while preemptions are silent: running falls, waiting rises, nothing finishes."""

    stall: Literal["engine"]
    over: str = "60s"
    ending: str = ""
    of: str = "target"


def signal_kind(value: Any) -> str:
    return _tag(value, SIGNAL_KINDS)


def _tag(value: Any, kinds: Iterable[str]) -> str:
    """The tag of a union's member; in brackets, so that no key of a file is ever taken for it."""
    keys = value if isinstance(value, dict) else getattr(type(value), "model_fields", ())
    return next((f"({kind})" for kind in kinds if kind in keys), "()")


def comparable_kind(value: Any) -> str:
    return _tag(value, COMPARABLE)


class ComparedSignal(_Strict):
    """A reading now per the same reading in the past at similar load: 1 is unchanged, 0.5 is half.

    The past is cut into windows as long as the reading's own (`over`). Those count in which as many requests arrived
    per second as now, give or take `load_within`; compared is with their median. No such load in the past is unknown.
    """

    compared: Annotated[
        Annotated[MetricSignal, Tag("(metric)")]
        | Annotated[RatioSignal, Tag("(ratio)")]
        | Annotated[MeanSignal, Tag("(mean)")]
        | Annotated[QuantileSignal, Tag("(histogram)")],
        Discriminator(comparable_kind),
    ]
    past: str = "24h"
    """How far the past reaches back. Without Prometheus an hour is kept."""
    ending: str = ""
    """When the past ends: where the present window begins, else `incident.starts_at` or `results.<state>.<signal>`."""
    load_within: float = Field(0.2, gt=0, lt=1)
    """The share by which arrivals may differ; 0.2 is ±20 %."""
    unit: str = ""

    @property
    def over(self) -> str:
        return self.compared.over

    @property
    def of(self) -> str:
        return self.compared.of


class ProbeSignal(_Strict):
    probe: str
    of: str = "target"
    parameters: dict[str, Any] = {}


COMPARABLE: dict[str, type[_Strict]] = {
    "metric": MetricSignal,
    "ratio": RatioSignal,
    "mean": MeanSignal,
    "histogram": QuantileSignal,
}
"""What gives one number, which can be compared."""
SIGNAL_KINDS: dict[str, type[_Strict]] = {
    "metric": MetricSignal,
    "ratio": RatioSignal,
    "mean": MeanSignal,
    "share_above": ShareSignal,
    "histogram": QuantileSignal,
    "compared": ComparedSignal,
    "stall": StallSignal,
    "probe": ProbeSignal,
}
"""The key that tells which signal it is. A share names its `histogram` too, so it comes before the quantile."""


SignalSpec = Annotated[
    Annotated[MetricSignal, Tag("(metric)")]
    | Annotated[RatioSignal, Tag("(ratio)")]
    | Annotated[MeanSignal, Tag("(mean)")]
    | Annotated[ShareSignal, Tag("(share_above)")]
    | Annotated[QuantileSignal, Tag("(histogram)")]
    | Annotated[ComparedSignal, Tag("(compared)")]
    | Annotated[StallSignal, Tag("(stall)")]
    | Annotated[ProbeSignal, Tag("(probe)")],
    Discriminator(signal_kind),
]


class Go(_Strict):
    """One way out of a read: taken when `when` is true, or always when it is `otherwise`."""

    when: str = ""
    to: str = ""
    otherwise: str = ""

    @property
    def destination(self) -> str:
        return self.otherwise or self.to


class Choice(_Strict):
    """One button of a question. `label` is on the button, `note` explains it below."""

    label: str
    to: str
    note: str = ""
    style: Literal["", "primary", "danger"] = ""
    form: Form = {}
    """What is asked for when it is pressed; its answers are `forms.<state>.<field>`."""


class _State(_Strict):
    title: str = ""
    """What it is called on the card; else its name."""
    covers: tuple[str, ...] = ()
    """Rows of the coverage table that it is for."""
    severity: Literal["page", "ticket"] | None = None
    """How urgent the incident is from here on, where this state has found that out."""


class _Passed(_State):
    """A state that a run comes through, maybe several times."""

    at_most: int | None = Field(default=None, ge=1)
    """How often it may be entered in one run (or in one divert to its playbook)."""
    beyond: str = ""
    """Where one entry more leads instead."""


class ReadState(_Passed):
    """Read signals, then go where the first clause that is not false says; unknown goes to `unknown`."""

    read: tuple[str, ...]
    pick: dict[str, str] = {}
    """Name of a pick to an expression that gives a replica's name, e.g. `worst(usage_by_replica)`."""
    baseline: bool = False
    """Keep these readings as the run's baseline."""
    go: tuple[Go, ...] = Field(min_length=1)
    unknown: str = ""


class AskState(_Passed):
    """Put a question to people; each choice names where it leads."""

    ask: str
    why: str = ""
    read: tuple[str, ...] = ()
    choices: dict[str, Choice] = Field(min_length=1)
    risk: Risk = "low"
    by: str = ""
    """The group of people whose answer counts; empty: whoever may steer."""
    not_by: str = ""
    """An earlier question, or `opening`: who answered that must not answer this."""
    expires: str = ""
    expired: str = ""


class ChangeState(_Passed):
    """Propose one change and apply it once granted. Every outcome but `done` may be left out: people are asked then.

    What `run_job` and `probe_request` come back with is read by later states: `results.<state>.run_job.score`.
    """

    change: str
    with_: dict[str, Any] = Field(default={}, alias="with")
    still: str = ""
    why: str
    risk: Risk | None = None
    against: str = ""
    """The diagnosis that flags are edited against: which way each may go is in the table of levers."""
    approvers: tuple[str, ...] = ()
    """Groups of people of which one more each must approve."""
    expires: str = ""
    expected: str = ""
    done: str
    not_needed: str = ""
    refused: str = ""
    expired: str = ""
    impossible: str = ""
    failed: str = ""
    unclear: str = ""


class Broke(_Strict):
    when: str
    to: str


class WatchState(_Passed):
    """Sample until every named part held for `for`, or `within` is over; `broke` ends it at once."""

    watch: dict[str, str] = Field(min_length=1)
    for_: str = Field(alias="for")
    within: str
    every: str = ""
    broke: tuple[Broke, ...] = ()
    held: str
    not_held: str = ""
    unknown: str = ""


PEOPLE = "people"
"""What a divert names that hands over to people, and not to another playbook."""


class DivertState(_Passed):
    """Hand the incident over to people, or go on in another playbook; the latter asks nobody: it changes nothing."""

    divert: str
    """`people`, or the name of a playbook."""
    to_group: str = ""
    """Which people, in a word: the question names them."""
    why: str
    """What people are told."""
    taken: str = ""
    """People: where it leads that somebody took it."""
    returns: dict[str, str] | None = None
    """A playbook: where each of its ends leads here (`otherwise` for all others); absent, it never comes back."""
    expires: str = ""
    """People: how long they have."""
    expired: str = ""
    """People: where it leads that nobody took it in time."""


End = Literal["fixed", "unproven", "self_cleared", "handed_over", "backed_out", "accepted_degraded", "not_applicable"]
ENDS: tuple[str, ...] = get_args(End)


class EndState(_State):
    """The incident ends, or the divert that led to this playbook."""

    end: End
    say: str = ""
    """What people are told."""


KINDS: dict[str, type[_State]] = {
    "ask": AskState,
    "change": ChangeState,
    "watch": WatchState,
    "divert": DivertState,
    "end": EndState,
    "read": ReadState,
}
"""The key that tells which state it is; `read` comes last, because a question may read too."""


def state_kind(value: Any) -> str:
    return _tag(value, KINDS)


State = Annotated[
    Annotated[ReadState, Tag("(read)")]
    | Annotated[AskState, Tag("(ask)")]
    | Annotated[ChangeState, Tag("(change)")]
    | Annotated[WatchState, Tag("(watch)")]
    | Annotated[DivertState, Tag("(divert)")]
    | Annotated[EndState, Tag("(end)")],
    Discriminator(state_kind),
]


def kind_of(state: State) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(state, model))


class Playbook(_Strict):
    language: Literal[1]
    playbook: str
    title: str
    summary: str = ""
    priority: int = 50
    rehearsed_on: tuple[str, ...] = ()
    """Engine versions (`0.32`) it was rehearsed on."""
    opens_on: tuple[str, ...] = ()
    """Alertmanager's matchers, one list of them a line: which alerts open it."""
    opens: Literal["by_hand"] | None = None
    """A person may open it too."""
    form: Form = {}
    """What is asked for when it is opened by hand; its answers are `forms.opening.<field>`."""
    settings: dict[str, Setting] = {}
    signals: dict[str, SignalSpec] = {}
    start: str
    states: Annotated[dict[str, State], Field(min_length=1)]
