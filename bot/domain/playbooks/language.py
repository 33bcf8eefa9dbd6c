"""The playbook language, version 1, as data: what an author may write. Names in it are checked in `check`, not here.

Durations in the file are texts (`90s`, `5m`, `2h`) or names of settings; in these models they stay texts.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Discriminator, Field, Tag

from bot.domain.changes.plan import Risk
from bot.domain.kernel.form import Form
from bot.domain.kernel.runbook import RelatedRunbook, Runbook
from bot.domain.kernel.strict import Strict
from bot.domain.signals.specs import SignalSpec, tag


class Setting(Strict):
    """A number or duration that an operator may override; `why` is the reason for its default."""

    default: float | str | bool
    min: float | str | None = None
    max: float | str | None = None
    unit: str = ""
    why: str = ""


class Go(Strict):
    """One exit of a read: taken when `when` is true, or always when it is `otherwise`."""

    when: str = ""
    to: str = ""
    otherwise: str = ""
    severity: Literal["page", "ticket"] | None = None
    """How urgent the incident is from here on."""
    note: str = ""
    """A line for the timeline when this exit is taken."""

    @property
    def destination(self) -> str:
        return self.otherwise or self.to


class Choice(Strict):
    """One button of a question. `label` is on the button, `note` explains it below."""

    label: str
    to: str
    note: str = ""
    style: Literal["", "primary", "danger"] = ""
    form: Form = {}
    """Fields to fill in after the press; expressions see them as `forms.<state>.<field>`."""


class _State(Strict):
    title: str = ""
    """Its title on the card; by default its name."""
    runbook: Runbook | None = None
    """The step of the runbook that it implements: shown on the card, in the graph and in the export."""
    severity: Literal["page", "ticket"] | None = None
    """How urgent the incident is from here on."""


class _Passed(_State):
    """A state that a run comes through, maybe several times."""

    at_most: int | None = Field(default=None, ge=1, strict=True)
    """How many times it may be entered in one run (or in one divert to its playbook)."""
    beyond: str = ""
    """The next state once `at_most` is used up."""


class ReadState(_Passed):
    """Read signals, then take the first exit whose condition is true; one that cannot be decided leads to `unknown`."""

    read: tuple[str, ...] = ()
    """Signals that people are shown as well; those in its conditions are read in any case."""
    pick: dict[str, str] = {}
    """Chooses replicas: a name, and an expression for the replica's name such as `worst(usage_by_replica)`."""
    baseline: bool = False
    """Keep these readings as the run's baseline."""
    go: tuple[Go, ...] = Field(min_length=1)
    unknown: str = ""
    otherwise: str = ""
    """The next state if no condition is true, and if one cannot be decided; the loader spells it out."""


class AskState(_Passed):
    """Ask people a question; each choice names the next state."""

    ask: str
    why: str = ""
    read: tuple[str, ...] = ()
    choices: dict[str, Choice] = Field(min_length=1)
    risk: Risk = "low"
    by: str = ""
    """The group whose answers count; empty: the operators."""
    not_by: str = ""
    """An earlier question, or `opening`: the person who answered it may not answer this one."""
    expires: str = ""
    expired: str = ""
    parked: bool = False
    """The incident releases its target while it waits: a new alert opens a fresh incident."""


class ChangeState(_Passed):
    """Propose one change and apply it once granted. Every outcome but `done` is optional: people are asked.

    Later states can read the results of `run_job` and `probe_request`: `results.<state>.run_job.score`.
    """

    change: str
    with_: dict[str, Any] = Field(default={}, alias="with")
    still: str = ""
    why: str
    risk: Risk | None = None
    against: str = ""
    """The problem that the flags are edited against. The table of mitigations has each flag's direction."""
    approvers: tuple[str, ...] = ()
    """Additional groups whose members may approve; with four eyes, one member of each must approve."""
    approved_with: tuple[str, ...] = ()
    """Earlier changes of this playbook whose requests list this one: its approval covers this change too, unless this
    one's risk is higher (`approvals.plan: once` lifts that), it shows a warning, or it edits something else.
    """
    expires: str = ""
    expected: str = ""
    done: str
    not_needed: str = ""
    refused: str = ""
    expired: str = ""
    impossible: str = ""
    failed: str = ""
    otherwise: str = ""
    """The next state for each outcome that is not named; the loader spells it out."""
    unclear: str = ""

    option_of: str = ""
    """The state that recommends it; written by the loader."""
    alternatives: dict[str, str] = {}
    """The other options of that state; written by the loader."""


class Broke(Strict):
    when: str
    for_: str = Field("", alias="for")
    """How long it must have been true without a gap. Empty: it ends the watch at once."""
    to: str


class WatchState(_Passed):
    """Sample until every condition has held for `for`, or `within` is over; `broke` ends the watch early."""

    watch: dict[str, str] = Field(min_length=1)
    for_: str = Field(alias="for")
    within: str
    every: str = ""
    broke: tuple[Broke, ...] = ()
    enough: str = ""
    """An expression that is true once there is enough evidence: two equal checks in a row then decide."""
    say: str = ""
    """A sentence for people with the numbers of the verdict."""
    held: str
    not_held: str = ""
    unknown: str = ""
    otherwise: str = ""
    """The next state if it does not hold, and if that is not known; the loader spells it out."""
    parked: bool = False
    """The incident releases its target while it waits: a new alert opens a fresh incident."""


class Option(Strict):
    """One option of a `recommend`, as built by `loading/options.py`; its change becomes a separate state."""

    label: str
    to: str
    possible: str = ""
    why_not: str = ""
    effect: str = ""
    repeat: bool = False
    is_change: bool = True
    """False: it is offered, but never recommended."""
    given: dict[str, Any] = {}
    """The parts of its change that use the readings of this state: `with`, `why` and `expected`."""


class RecommendState(_Passed):
    """Read what the options need, then propose the first possible one and offer the others beside it."""

    recommend: str
    why: str = ""
    read: tuple[str, ...] = ()
    options: dict[str, Option] = Field(min_length=1)
    none_possible: str


PEOPLE = "people"
"""The `divert` value that hands over to people instead of another playbook."""


class DivertState(_Passed):
    """Hand the incident over to people, or continue in another playbook. The latter needs no answer."""

    divert: str
    """`people`, or the name of a playbook."""
    to_group: str = ""
    """The team, as the question names it."""
    why: str
    """The text for people."""
    taken: str = ""
    """People: the next state when somebody takes over."""
    returns: dict[str, str] | None = None
    """A playbook: the next state here for each of its ends (`otherwise` for all others); without it, none."""
    expires: str = ""
    """People: the time to answer."""
    expired: str = ""
    """People: the next state when nobody takes over in time. Without it, the incident is parked."""
    parked: bool = False
    """People: the incident releases its target while it waits: a new alert opens a fresh incident."""


End = Literal["fixed", "unproven", "self_cleared", "handed_over", "backed_out", "accepted_degraded", "not_applicable"]
ENDS: tuple[str, ...] = get_args(End)


class ReturnState(_Passed):
    """The playbook that diverted here goes on, and what is left to do here comes before the incident ends.

    Where nothing diverted here, `later` follows at once.
    """

    end: End = Field(alias="return")
    """How the divert ends."""
    later: str
    """The next state of this playbook: once the incident has nothing else to do before it ends."""
    to_do: str
    """What is left to do, for people."""


class EndState(_State):
    """The incident ends, or the divert that led to this playbook."""

    end: End
    before: str = ""
    """A fragment with the exit `done` that runs first; the end is then called `<name>_end`."""
    say: str = ""
    """The text for people."""


KINDS: dict[str, type[_State]] = {
    "recommend": RecommendState,
    "ask": AskState,
    "change": ChangeState,
    "watch": WatchState,
    "divert": DivertState,
    "return": ReturnState,
    "end": EndState,
    "read": ReadState,
}
"""The key that identifies the kind of a state; `read` comes last, because a question may read too. A read may have
`go` alone.
"""


def state_kind(value: Any) -> str:
    kind = tag(value, KINDS)
    return "(read)" if kind == "()" and isinstance(value, dict) and "go" in value else kind


State = Annotated[
    Annotated[ReadState, Tag("(read)")]
    | Annotated[RecommendState, Tag("(recommend)")]
    | Annotated[AskState, Tag("(ask)")]
    | Annotated[ChangeState, Tag("(change)")]
    | Annotated[WatchState, Tag("(watch)")]
    | Annotated[DivertState, Tag("(divert)")]
    | Annotated[ReturnState, Tag("(return)")]
    | Annotated[EndState, Tag("(end)")],
    Discriminator(state_kind),
]


def kind_of(state: State) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(state, model))


def question_without_options(name: str) -> str:
    """The state that asks what is left where a recommendation has no possible option and no `none_possible`."""
    return f"{name}_none"


class _Answered(Strict):
    expires: str = ""
    expired: str = ""


class _ChangeDefaults(_Answered):
    done: str = ""
    not_needed: str = ""
    refused: str = ""
    impossible: str = ""
    failed: str = ""
    unclear: str = ""


class _RecommendDefaults(_ChangeDefaults):
    none_possible: str = ""
    still: str = ""
    try_: str = Field(default="", alias="try")
    """The state that judges a canary and rolls it out."""
    in_place: str = ""
    """True when a flag edit may be made without a canary."""
    by_owner: str = ""
    """The state that waits for the owner of the workload, where it would revert an edit without a canary."""


class Defaults(Strict):
    """Defaults for all states of a kind. They do not apply inside fragments."""

    ask: _Answered = _Answered()
    """For questions."""
    recommend: _RecommendDefaults = _RecommendDefaults()
    """For recommendations; `try`, `in_place` and `by_owner` apply only where an option edits flags."""
    change: _ChangeDefaults = _ChangeDefaults()
    """For changes that are not options."""


class Calm(Strict):
    """When an incident that waits for people closes by itself: its alerts are resolved and this holds."""

    when: str
    """An expression that is true when the problem is gone."""
    under_load: str = ""
    """An expression that is true while there is load. Without it, an incident with changes never closes by itself."""
    for_: str = Field(alias="for")


class Finding(Strict):
    """One line of `users` or `diagnoses`: the first whose `when` is true is shown; one without `when` comes last."""

    when: str = ""
    title: str = ""
    """The title of the incident from here on; only in `diagnoses`."""
    say: str


class Playbook(Strict):
    language: Literal[1]
    playbook: str
    title: str
    summary: str = ""
    priority: int = Field(default=50, strict=True)
    urgent: bool = False
    """Its alerts open an incident also while their target is in maintenance."""
    tested_on: tuple[str, ...] = ()
    """Engine versions (`0.32`) it was tested on."""
    related: tuple[RelatedRunbook, ...] = ()
    """Other runbooks about the same problem: listed in the report."""
    opens_on: tuple[str, ...] = ()
    """Alertmanager matchers, one string per line: the alerts that open it."""
    opens: Literal["by_hand"] | None = None
    """No alert opens it. People may open every playbook by hand."""
    form: Form = {}
    """Fields to fill in when it is opened by hand; expressions see them as `forms.opening.<field>`."""
    uses: tuple[str, ...] = ()
    """Fragments without states: their signals and settings may be named as if they were defined here."""
    settings: dict[str, Setting] = {}
    calm: Calm | None = None
    """When an incident that waits for people closes by itself; without it, never."""
    users: tuple[Finding, ...] = ()
    """What users feel, compared with their targets: the first line of the card."""
    diagnoses: tuple[Finding, ...] = ()
    """Names for the problem, with reasons."""
    define: dict[str, str] = {}
    """Named expressions of this playbook."""
    signals: dict[str, SignalSpec] = {}
    """What it reads. A probe without parameters needs no definition: its name is enough."""
    defaults: Defaults = Defaults()
    """Defaults for all states of a kind."""
    start: str
    states: Annotated[dict[str, State], Field(min_length=1)]
