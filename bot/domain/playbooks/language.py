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
    """A number or duration that an operator may override; `why` is its reason."""

    default: float | str | bool
    min: float | str | None = None
    max: float | str | None = None
    unit: str = ""
    why: str = ""


class Go(Strict):
    """One way out of a read: taken when `when` is true, or always when it is `otherwise`."""

    when: str = ""
    to: str = ""
    otherwise: str = ""
    severity: Literal["page", "ticket"] | None = None
    """How urgent the incident is from here on, where this clause has found that out."""
    note: str = ""
    """What the timeline says about this way."""

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
    """What is asked for when it is pressed; its answers are `forms.<state>.<field>`."""


class _State(Strict):
    title: str = ""
    """What it is called on the card; else its name."""
    runbook: Runbook | None = None
    """The step of the runbook that it is: on the card, in the graph and in the export."""
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
    """The group of people whose answer counts; empty: the operators."""
    not_by: str = ""
    """An earlier question, or `opening`: who answered that must not answer this."""
    expires: str = ""
    expired: str = ""
    parked: bool = False
    """The incident waits outside its target's slot: a new alert opens a fresh incident meanwhile."""


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
    """The diagnosis that flags are edited against: which way each may go is in the table of mitigations."""
    approvers: tuple[str, ...] = ()
    """Groups whose people may approve too; with four eyes, one of each must."""
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
    unclear: str = ""

    option_of: str = ""
    """The state that recommends it; written by the loader."""
    alternatives: dict[str, str] = {}
    """The other options of that state; written by the loader."""


class Broke(Strict):
    when: str
    to: str


class WatchState(_Passed):
    """Sample until every named part held for `for`, or `within` is over; `broke` ends it at once."""

    watch: dict[str, str] = Field(min_length=1)
    for_: str = Field(alias="for")
    within: str
    every: str = ""
    broke: tuple[Broke, ...] = ()
    enough: str = ""
    """An expression that is true once there is enough evidence: then what two looks in a row show is the verdict."""
    say: str = ""
    """The numbers of the verdict, in a sentence for people."""
    held: str
    not_held: str = ""
    unknown: str = ""
    parked: bool = False
    """The incident waits outside its target's slot: a new alert opens a fresh incident meanwhile."""


class Option(Strict):
    """One way of a `recommend`, made by `loading/options.py` from what is written; its change is a state of its own."""

    label: str
    to: str
    possible: str = ""
    why_not: str = ""
    effect: str = ""
    repeat: bool = False
    is_change: bool = True
    """False: it is only offered, never recommended."""
    given: dict[str, Any] = {}
    """The parts of its change that are evaluated with the readings of this state: `with`, `why` and `expected`."""


class RecommendState(_Passed):
    """Read what the options need, then propose the first that is possible; the others are offered beside it."""

    recommend: str
    why: str = ""
    read: tuple[str, ...] = ()
    options: dict[str, Option] = Field(min_length=1)
    none_possible: str


PEOPLE = "people"
"""The `divert` value that hands over to people instead of another playbook."""


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
    """People: where it leads that nobody took it in time; absent, the incident is parked."""
    parked: bool = False
    """People: the incident waits outside its target's slot: a new alert opens a fresh incident meanwhile."""


End = Literal["fixed", "unproven", "self_cleared", "handed_over", "backed_out", "accepted_degraded", "not_applicable"]
ENDS: tuple[str, ...] = get_args(End)


class EndState(_State):
    """The incident ends, or the divert that led to this playbook."""

    end: End
    before: str = ""
    """A fragment with the exit `done` that runs first; the end is then called `<name>_end`."""
    say: str = ""
    """What people are told."""


KINDS: dict[str, type[_State]] = {
    "recommend": RecommendState,
    "ask": AskState,
    "change": ChangeState,
    "watch": WatchState,
    "divert": DivertState,
    "end": EndState,
    "read": ReadState,
}
"""The key that identifies the kind of a state; `read` comes last, because a question may read too."""


def state_kind(value: Any) -> str:
    return tag(value, KINDS)


State = Annotated[
    Annotated[ReadState, Tag("(read)")]
    | Annotated[RecommendState, Tag("(recommend)")]
    | Annotated[AskState, Tag("(ask)")]
    | Annotated[ChangeState, Tag("(change)")]
    | Annotated[WatchState, Tag("(watch)")]
    | Annotated[DivertState, Tag("(divert)")]
    | Annotated[EndState, Tag("(end)")],
    Discriminator(state_kind),
]


def kind_of(state: State) -> str:
    return next(kind for kind, model in KINDS.items() if isinstance(state, model))


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


class Defaults(Strict):
    """What states of a kind say where they say nothing themselves. They do not reach into fragments."""

    ask: _Answered = _Answered()
    """Of questions."""
    recommend: _RecommendDefaults = _RecommendDefaults()
    """Of recommendations; `try` and `in_place` only where an option edits flags."""
    change: _ChangeDefaults = _ChangeDefaults()
    """Of changes that are written as states of their own."""


class Calm(Strict):
    """When an incident that waits for people ends without them: its alerts are resolved and this holds."""

    when: str
    """An expression that is true when the trouble is gone."""
    under_load: str = ""
    """An expression that is true while the load is there; without it, no incident that changed something ends so."""
    for_: str = Field(alias="for")


class Finding(Strict):
    """One line of `users` or `diagnoses`: the first whose `when` is true is shown; one without `when` comes last."""

    when: str = ""
    title: str = ""
    """What the incident is called from here on; only in `diagnoses`."""
    say: str


class Playbook(Strict):
    language: Literal[1]
    playbook: str
    title: str
    summary: str = ""
    priority: int = 50
    urgent: bool = False
    """Its alerts open an incident also while their target is in maintenance."""
    tested_on: tuple[str, ...] = ()
    """Engine versions (`0.32`) it was tested on."""
    related: tuple[RelatedRunbook, ...] = ()
    """Other runbooks that belong to the same trouble: in the report."""
    opens_on: tuple[str, ...] = ()
    """Alertmanager's matchers, one list of them a line: which alerts open it."""
    opens: Literal["by_hand"] | None = None
    """No alert needs to open it. People may open every playbook."""
    form: Form = {}
    """What is asked for when it is opened by hand; its answers are `forms.opening.<field>`."""
    settings: dict[str, Setting] = {}
    calm: Calm | None = None
    """When an incident that waits for people ends without them; absent: never."""
    users: tuple[Finding, ...] = ()
    """What users feel, against their targets: the first line of the card."""
    diagnoses: tuple[Finding, ...] = ()
    """What the trouble is called, and why."""
    define: dict[str, str] = {}
    """Names for expressions of this playbook: each stands for its text wherever it is mentioned."""
    signals: dict[str, SignalSpec] = {}
    defaults: Defaults = Defaults()
    """What each state of a kind says where it says nothing itself."""
    start: str
    states: Annotated[dict[str, State], Field(min_length=1)]
