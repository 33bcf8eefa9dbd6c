"""A run is the state of an incident in its playbook: everything that a decision needs, nothing that can be derived.

It is one document, saved whole by compare-and-set on `version`; Slack and the exports are derived from it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bot.domain.approvals.advice import OnlyAdvice
from bot.domain.approvals.grant import Alternative, Policy, Request
from bot.domain.changes.plan import LedgerEntry
from bot.domain.incidents.endings import ending_in_words
from bot.domain.incidents.impact import Impact
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.copies import copy_with
from bot.domain.kernel.form import Form
from bot.domain.kernel.runbook import Runbook
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import GENESIS
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.machine import UNDO
from bot.domain.signals.signal import Reading

Severity = Literal["page", "ticket", "info"]
NEXT_STATUS = "status:next:due"
"""The deadline for the next status update."""
SILENCE_ENDS = "silence:next:end"
"""When the next silence expires in Alertmanager."""
CALM_CHECK = "calm:next:look"
"""When it is read again whether the trouble is gone, while the incident waits for people."""
PARKED_REMINDER = "parked:next:reminder"
"""When people are reminded of a parked incident."""
HALT_HALF, HALT_UNANSWERED = "change:halted:half", "change:halted:unanswered"
"""When people are reminded of a change that is halted half-way, and when the lead is called."""
PostKind = Literal["diagnosis", "request", "question", "outcome", "note", "closed", "diagnostics", "verdict"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Question(_Frozen):
    """A question to people that is not a change: a written `ask`, a divert, or the built-in `ask_what_next`."""

    question_id: str
    state: str
    visit: int
    built_in: bool = False
    text: str
    why: str = ""
    choices: dict[str, str] = Field(default_factory=dict)
    """Choice key to the label on its button.

    Built-in keys: `again`, `goto:<state>`, `divert:<playbook>`, `undo`, `keep`, `hand_over`, `close`.
    """
    forms: dict[str, Form] = Field(default_factory=dict)
    """Choice key to the form that goes with it."""
    by: Policy | None = None
    """Who may answer it; None: the operators."""
    not_by: str = ""
    """The person who must not answer it."""
    notes: dict[str, str] = Field(default_factory=dict)
    """Choice key to what it means; to what was filled in, once the choice is taken with a form."""
    styles: dict[str, str] = Field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    asked_at: float
    expires_at: float | None = None
    status: Literal["open", "answered", "expired", "withdrawn"] = "open"
    answer: str = ""
    answered_by: str = ""
    answered_at: float | None = None

    @property
    def slot(self) -> str:
        """Its message in the incident's thread; the names of its deadlines begin with it."""
        return f"question:{self.question_id}"


class ActiveChange(_Frozen):
    """The change in progress in the current visit: its request and its current step."""

    state: str
    verb: str
    request_id: str = ""
    step: int = 0
    step_started_at: float = 0.0
    begun: bool = False
    """Granted and handed to the writer: from here on its outcome must be known before the run can forget it."""
    attempt: int = 0
    """Counts the effects of one step, so that each has its own id."""
    progress: str = ""
    halted: bool = False
    """The kill switch stopped its next call; resuming requests that step again."""
    replans: int = 0
    undo_of: tuple[str, ...] = ()
    """Call ids that a built-in undo reverts; empty for a written change."""
    values: dict[str, int | float] = Field(default_factory=dict)
    """Values that a person entered in place of the playbook's; planned, shown and approved in the same way."""
    edited_by: str = ""
    impact: Impact | None = None
    """The impact on users at the grant, or when a person last chose to continue."""
    closes: bool = False
    """It takes back what the incident would leave in place; then the incident closes, as a person wanted."""
    stopped: bool = False
    """It waits before its next step until a person decides whether to continue."""


class ActiveWatch(_Frozen):
    started_at: float
    until: float
    progress: str = ""


class Post(_Frozen):
    """One message of the thread, in order of appearance; its text is derived from the part of the run it refers to.

    `data` holds what the run does not keep: diagnosis {"title", "cause", "checks"}, outcome {"result", "text",
    "patch", "owners_edit"}, note {"text", "user"}, closed {"ending", "text", "held": [titles],
    "to_commit": [titles]}. What addresses people also has {"news": [News], "looked": Looked}. Posts of kind
    `diagnostics` and `verdict` are of earlier versions of the bot.
    """

    slot: str
    """Unique within the incident: `request:R3`, `question:Q1`, `diagnostics:4`, `note:7`."""
    kind: PostKind
    ref: str
    at: float
    data: dict[str, Any] = Field(default_factory=dict)


CheckResult = Literal["ruled_out", "found", "unknown"]


class Check(_Frozen):
    """What one state found out about the cause, in a few words."""

    state: str
    found: CheckResult
    text: str


class News(_Frozen):
    """What happened since people were last addressed; the next message to them begins with it."""

    title: str
    result: str
    """A verdict (`held`, `not_held`, `broke`, `unknown`), or the outcome of a change that was not applied."""
    text: str
    at: float
    parts: dict[str, str] = Field(default_factory=dict)
    """Of a verdict: its parts, for the details."""


class Looked(_Frozen):
    """What was read since people were last addressed, for the details of the next message."""

    readings: dict[str, Reading] = Field(default_factory=dict)
    decisions: tuple[tuple[str, str], ...] = ()
    """The states that decided, by what people call them, each with its reason."""


class Findings(_Frozen):
    """What a run has learned in its present playbook. Another playbook begins without it."""

    path: tuple[str, ...] = ()
    """Written states entered so far, in order."""
    results: dict[str, dict[str, Reading]] = Field(default_factory=dict)
    """Written state to what was last read there."""
    answers: dict[str, str] = Field(default_factory=dict)
    answered_by: dict[str, str] = Field(default_factory=dict)
    """Written question (or `opening`) to the person who answered it last."""
    forms: dict[str, dict[str, float | str]] = Field(default_factory=dict)
    """Written question (or `opening`) to what was filled in there."""
    picked: dict[str, str] = Field(default_factory=dict)
    """Name of a pick to its replica."""
    baseline: dict[str, Reading] = Field(default_factory=dict)
    options: dict[str, tuple[Alternative, ...]] = Field(default_factory=dict)
    """Recommendation to its options, as they were when it was last made."""
    impossible: tuple[str, ...] = ()
    """Written changes for which there was no plan: they are not recommended again by themselves."""
    handed_out: tuple[dict[str, Any], ...] = ()
    """The flag edits of the last change that was not possible because an owner would revert it; empty if none was."""
    checks: tuple[Check, ...] = ()
    is_diagnosed: bool = False
    """Whether the thread has the diagnosis."""


class Frame(_Frozen):
    """Where a run comes back to after a divert."""

    playbook: str
    state: str
    """The divert."""
    findings: Findings = Field(default_factory=Findings)


class ToDo(_Frozen):
    """What a playbook left to do when it returned from a divert: the incident comes to it before it ends."""

    playbook: str
    state: str
    text: str
    """What is to do, for people."""
    findings: Findings = Field(default_factory=Findings)


class Conclusion(_Frozen):
    """How the incident ended, but for what is left to do."""

    ending: str
    text: str
    doing: ToDo | None = None
    """What it does; None once that has ended."""


class Offer(_Frozen):
    """Another playbook of this incident: an alert matches it, or it gave way. A person may move the run to it."""

    playbook: str
    title: str
    priority: int
    digest: str
    """Digest of the bundle that it was offered with."""
    alerts: tuple[str, ...] = ()
    """Fingerprints of the alerts that it is for."""
    gave_way: bool = False
    """A more urgent playbook took over from it; it begins again afterwards if its alerts still fire."""


class Note(_Frozen):
    note_id: str
    at: float
    user: str
    text: str


class Parked(_Frozen):
    """The incident waits outside its target's slot: the next alert of the target opens a fresh incident."""

    since: float
    unanswered: bool = False
    """It is parked because nobody answered, not because its playbook waits."""
    reads_alerts: bool = False
    """Its watch reads the target's alerts (probe `alert_again`): they go to this incident and open no other."""


class ParkedIncident(_Frozen):
    """A parked incident of the same target, as it was when this one opened."""

    incident_id: str
    waits_for: str
    until: float | None = None
    active_changes: tuple[str, ...] = ()


PageAction = Literal["trigger", "acknowledge", "resolve"]


class Page(_Frozen):
    """A call of one team by its pager, from its trigger to the end of the incident."""

    name: str
    """The team; a later call of the same team has a number too, because a pager rings once for each name."""
    team: str
    text: str
    since: float
    wanted: PageAction = "trigger"
    sent: PageAction | None = None
    """What the pager has confirmed last."""
    failing_since: float | None = None
    error: str = ""
    phone: str = ""


class PullRequest(_Frozen):
    """A pull request that a person wanted; without address and reason it is being opened."""

    by: str
    url: str = ""
    reason: str = ""
    """Why none was opened."""
    effect_id: str = ""
    """The effect that opens it."""


class Visit(_Frozen):
    """A stay in a state of the playbook, from one entry to the next."""

    number: int = 1
    """Counts the entries; effects carry it."""
    state: str
    """The written state."""
    machine_state: str
    """The state of the machine: a written state, or `<state>/planning|awaiting|applying`."""
    doing: str = ""
    """The state's display name; empty in runs from before this field existed."""
    runbook: Runbook | None = None
    """The step of the runbook that this state is."""
    entered_at: float
    readings: dict[str, Reading] = Field(default_factory=dict)
    """Signals read since then."""


class Halt(_Frozen):
    by: str
    """The person who halted the run."""
    reason: str = ""
    """In that person's words; empty if none were given."""
    with_all: bool = False
    """Everything is halted, not only this run, and only a resume for all lifts it."""


class StatusUpdate(_Frozen):
    """The newest update that a person wrote for those who wait for news."""

    text: str = ""
    by: str = ""
    at: float = 0.0
    """Initially, when the incident opened."""


class InSlack(_Frozen):
    """What is known of the incident's messages in Slack."""

    card_posted: bool = False
    places: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """The message of each request and question: slot to channel and ts. A press from elsewhere is on a copy."""
    anchored: tuple[str, ...] = ()
    """Slots whose message carries a head of the timeline and is confirmed to be in Slack."""


class TimelineHead(_Frozen):
    hash: str = GENESIS
    length: int = 0


class Run(_Frozen):
    incident_id: str
    version: int = 0
    target: Target
    title: str
    severity: Severity = "ticket"
    severity_found: Severity | None = None
    """The severity that a playbook last found; None while only the alerts set it."""
    opened_at: float
    starts_at: float
    """The startsAt of its first alert, never after `opened_at`: windows before the incident end here."""
    closed_at: float | None = None
    ending: str = ""
    """How it ended (`fixed`, `unproven`, …); empty while open."""
    lead: str = ""
    status_update: StatusUpdate = StatusUpdate()
    pages: dict[str, Page] = Field(default_factory=dict)
    """Pages by name, oldest first."""
    pull_requests: dict[str, PullRequest] = Field(default_factory=dict)
    """By the message that shows what it changes."""
    silences: dict[str, float] = Field(default_factory=dict)
    """Alertmanager ids of the silences that the bot holds for it, with their ends."""
    alerts: dict[str, Alert] = Field(default_factory=dict)
    """Fingerprint to the newest alert."""
    dashboard: str = ""
    """The address of the target's dashboard, with `$from` and `$to` still open; empty if there is none."""
    alerts_resolved_at: float | None = None
    calm_since: float | None = None
    """Since when each check found the trouble gone, while the incident waits for people."""
    parked: Parked | None = None
    parked_before: tuple[ParkedIncident, ...] = ()
    """Incidents of this target that were parked when this one opened."""

    playbook: str
    """The current playbook."""
    digest: str
    """Digest of the bundle with its effective settings: a run keeps the bundle it started with."""
    frames: tuple[Frame, ...] = ()
    """The diverts that it will return from, the innermost last."""
    to_do: tuple[ToDo, ...] = ()
    """What is left to do before the incident ends, in order."""
    conclusion: Conclusion | None = None
    """How it ended, while it does what was left to do."""
    diverts: int = 0
    """How often it was diverted to another playbook."""
    offers: dict[str, Offer] = Field(default_factory=dict)
    """Other playbooks of this incident, by name."""
    visit: Visit
    diagnosis: str = ""
    """What the trouble is called; empty until it is known."""
    cause: str = ""
    """Why, in a sentence."""
    users: str = ""
    """What users feel, against their targets."""
    users_at: float = 0.0
    """When that was read."""
    news: tuple[News, ...] = ()
    looked: Looked = Field(default_factory=Looked)
    findings: Findings = Field(default_factory=Findings)
    latest: dict[str, Reading] = Field(default_factory=dict)
    """The newest reading of each signal, for the card's `baseline → now`."""

    only_advice: OnlyAdvice | None = None
    """Why changes are only advised, as it was when the run opened or last planned a change."""
    change: ActiveChange | None = None
    watch: ActiveWatch | None = None
    requests: dict[str, Request] = Field(default_factory=dict)
    questions: dict[str, Question] = Field(default_factory=dict)
    question: str = ""
    """Id of the open question; the run waits for its answer."""
    ledger: tuple[LedgerEntry, ...] = ()
    halt: Halt | None = None
    deadlines: dict[str, float] = Field(default_factory=dict)
    """Name to the time at which a `due` event is due: `request:R1:expiry`, `question:Q2:expiry`, …"""
    posts: tuple[Post, ...] = ()
    notes: tuple[Note, ...] = ()
    in_slack: InSlack = InSlack()
    counter: int = 0
    """Numbers requests, questions and notes of this incident."""
    ignored: dict[str, int] = Field(default_factory=dict)
    """Unexpected events by description, with how often each occurred."""
    timeline: TimelineHead = TimelineHead()

    @property
    def left_to_do(self) -> tuple[ToDo, ...]:
        """What is left to do before the incident ends, with what it does already."""
        doing = self.conclusion.doing if self.conclusion is not None else None
        return self.to_do if doing is None else (doing, *self.to_do)

    @property
    def is_open(self) -> bool:
        return self.closed_at is None

    @property
    def is_applying(self) -> bool:
        """Whether an approved change has begun and may go on."""
        return self.change is not None and self.change.begun and not self.change.stopped

    @property
    def is_halted_half_way(self) -> bool:
        """Whether a change has begun and is halted before its end."""
        return self.is_halted and self.change is not None and self.change.begun

    @property
    def is_halted(self) -> bool:
        """Whether a person halted it, or a halt stopped its change."""
        return self.halt is not None or (self.change is not None and self.change.halted)

    @property
    def is_halted_with_all(self) -> bool:
        return self.halt is not None and self.halt.with_all

    @property
    def leaves_no_file(self) -> bool:
        """Its closing message is all there is to read: it was no case for the playbook, and nobody was asked."""
        return self.ending == "not_applicable" and not self.requests and not self.questions

    @property
    def ending_in_words(self) -> str:
        return self.end_called(self.ending)

    def end_called(self, ending: str) -> str:
        """What people call this ending of it."""
        return ending_in_words(ending, verbs=[entry.verb for entry in self.ledger], holds=bool(self.held))

    @property
    def reads_alerts(self) -> bool:
        """Whether it is parked in a watch to which new alerts of its target belong."""
        return self.parked is not None and self.parked.reads_alerts and self.watch is not None

    @property
    def open_request(self) -> Request | None:
        change = self.change
        request = self.requests.get(change.request_id) if change else None
        return request if request and request.status == "open" else None

    @property
    def is_undoing(self) -> bool:
        """Whether it is in an undo that a person asked for, outside the states of its playbook."""
        return self.visit.machine_state.startswith(f"{UNDO}/")

    @property
    def advised(self) -> Request | None:
        """The advice whose effect the run watches."""
        request = self.requests.get(self.change.request_id) if self.change else None
        return request if request and request.status == "advised" else None

    @property
    def open_question(self) -> Question | None:
        question = self.questions.get(self.question) if self.question else None
        return question if question and question.status == "open" else None

    @property
    def held(self) -> tuple[LedgerEntry, ...]:
        """Active changes: applied calls that can be undone and were not."""
        return tuple(entry for entry in self.ledger if entry.undo and not entry.undone_by)

    @property
    def in_place(self) -> tuple[str, ...]:
        """The titles of the active changes, for people. Of several numbers of replicas only the last counts, and none
        if it is the number before the first change. What only took an earlier change back leaves nothing.
        """
        scaled: dict[str, list[LedgerEntry]] = {}
        for entry in self.held:
            if entry.verb == "scale" and entry.differences:
                scaled.setdefault(str(entry.target), []).append(entry)
        over = {entry.call_id for entries in scaled.values() for entry in entries[:-1]}
        over |= {entries[-1].call_id for entries in scaled.values() if _before(entries[0]) == _after(entries[-1])}
        # A call that only ends a held rollout or restores the rollout strategy is not listed as a change.
        over |= {entry.call_id for entry in self.held if entry.holds is False}
        targets = {entry.call_id: entry.target for entry in self.ledger}
        over |= {entry.undone_by for entry in self.ledger if targets.get(entry.undone_by) == entry.target}
        return tuple(entry.title for entry in self.held if entry.call_id not in over)

    @property
    def firing(self) -> tuple[str, ...]:
        """The names of its alerts that fire, each once."""
        return tuple(dict.fromkeys(alert.name for alert in self._firing_alerts))

    @property
    def fires_since(self) -> float:
        """When the newest alert that fires began; 0 if none does."""
        return max((alert.starts_at.timestamp() for alert in self._firing_alerts), default=0.0)

    @property
    def _firing_alerts(self) -> list[Alert]:
        return [alert for alert in self.alerts.values() if alert.status == "firing"]

    def fires(self, offer: Offer) -> bool:
        """Whether an alert that this playbook is for still fires."""
        return any(name in self.alerts and self.alerts[name].status == "firing" for name in offer.alerts)

    @property
    def called(self) -> str:
        """What the trouble was found to be, else what the alert called it."""
        return self.diagnosis or self.title

    def with_(self, **changes: Any) -> Run:
        """A copy with some fields replaced; the fields are trusted to be of the right types."""
        return copy_with(self, **changes)


def _before(entry: LedgerEntry) -> dict[str, Any]:
    return {each.path: each.before for each in entry.differences}


def _after(entry: LedgerEntry) -> dict[str, Any]:
    return {each.path: each.after for each in entry.differences}


def before_start(playbook: CompiledPlaybook, *, at: float) -> Visit:
    """The visit of a run before its first decision: no state has been entered yet."""
    start = playbook.start
    return Visit(number=0, state=start, machine_state=playbook.machine.entry(start), entered_at=at)


def parked_incident(run: Run) -> ParkedIncident:
    """Returns what another incident of the target shows about this parked one."""
    question, watch = run.open_question, run.watch
    until = question.expires_at if question is not None else watch.until if watch is not None else None
    waits_for = question.text if question is not None else run.visit.doing or run.visit.state
    return ParkedIncident(incident_id=run.incident_id, waits_for=waits_for, until=until, active_changes=run.in_place)
