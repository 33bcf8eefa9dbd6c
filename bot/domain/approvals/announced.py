"""Changes that are announced instead of approved: cleaning up, what an earlier approval covered, and pre-approved ones.

Each function returns the reason, as people read it (`no approval: …`); empty means that people are asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from bot.domain.approvals.grant import Request
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import DRAIN, RISKS, LedgerEntry, Plan, Risk
from bot.domain.cluster.owner import AUTOSCALERS
from bot.domain.kernel.schedule import open_until
from bot.domain.kernel.target import Target

CLEANED_BY_UNDO = frozenset(verb.name for verb in VERBS.values() if verb.undo_cleans_up)
ACCEPTED = {"replace_busy_replica": DRAIN}
"""The warning that comes with every plan of a kind."""


def cleans_up(plan: Plan, ledger: Iterable[LedgerEntry]) -> str:
    """Whether the plan only removes the bot's own canary, returns a replica or puts an autoscaler's floor back."""
    verb = VERBS.get(plan.verb)
    if verb is None or _has_warnings(plan):
        return ""
    if verb.cleans_up:
        return "it only cleans up what the bot did"
    if verb.name != "undo" or not plan.calls:
        return ""
    verbs = {entry.call_id: entry.verb for entry in ledger}
    is_own = all(verbs.get(call.undoes) in CLEANED_BY_UNDO for call in plan.calls)
    is_floor = all(call.target.kind in AUTOSCALERS for call in plan.calls)
    return "it only takes back what the bot added" if is_own or is_floor else ""


_COVERS = " covers it"


def covering(reason: str) -> str:
    """Returns the request whose approval is the reason why a change is only announced; empty for another reason."""
    return reason.removesuffix(_COVERS) if reason.endswith(_COVERS) else ""


def covered(plan: Plan, risk: Risk, state: str, earlier: Iterable[Request]) -> str:
    """Whether an approved request of this run showed this change as its next step, and the plan is what it showed.

    It covers the change once: if it failed or was taken back, people are asked. What was only announced covers nothing.
    """
    granted = [one for one in earlier if one.status == "granted"]
    asked = [one for one in granted if not one.policy.announced and state in {step.state for step in one.covers}]
    if not asked or not _is_as_shown(plan, asked[-1].plan):
        return ""
    if any(one.state == state and covering(one.policy.announced) == asked[-1].request_id for one in granted):
        return ""
    if RISKS.index(risk) > RISKS.index(asked[-1].plan.risk) or _has_warnings(plan):
        return ""
    return f"{asked[-1].request_id}{_COVERS}"


def _is_as_shown(plan: Plan, shown: Plan) -> bool:
    """Whether both name the same edits or the same replica, or it only asks the canary that was approved."""
    if shown.verb == "canary" and "canary" in plan.choices:
        return bool(plan.choices["canary"] == shown.choices.get("name"))
    both = plan.choices.keys() & shown.choices.keys() & {"edits", "replica", "uid", "node"}
    return bool(both) and all(plan.choices[key] == shown.choices[key] for key in both)


def _has_warnings(plan: Plan, *, besides: str = "") -> bool:
    return any(each.grade == "warning" and each.name != besides for each in plan.circumstances)


_PRE_APPROVES = "the settings pre-approve "


def is_pre_approved(reason: str) -> bool:
    """Whether a rule of the settings is the reason why a change is only announced."""
    return reason.startswith(_PRE_APPROVES)


def times(plan: Plan) -> int:
    """How often a plan counts for a rule that limits how often its kind is pre-approved."""
    return max(1, len(plan.choices.get("replicas", ())))


class PreApproved(BaseModel):
    """One rule of the settings: this kind of change, within these bounds, needs no press.

    A rule for a kind of `scale` is for more replicas: people are asked before one is taken away.
    """

    model_config = ConfigDict(frozen=True)

    change: str
    """A kind of change, as in `approvals.who`."""
    at_most: int
    """How often in one incident; each of several replicas that are replaced together counts."""
    targets: tuple[str, ...] = ()
    """`namespace/name` or `cluster/namespace/name`, with `*`; empty: every target."""
    hours: str = ""
    """`22:00-06:00`, UTC; empty: always."""
    least_serving: int = 0
    """Replicas that must be in rotation; 0: any number. An unknown number is not enough."""
    most_replicas: int = 0
    """The workload must not have more afterwards; 0: no limit."""

    def permits(self, plan: Plan, kind: str, target: Target, done: Iterable[str], *, at: float) -> bool:
        """`done`: the kinds of the changes that this incident has begun, as often as they count."""
        is_left = sum(earlier == kind for earlier in done) + times(plan) <= self.at_most
        return kind == self.change and is_left and self._bounds(plan) and self._is_for(target) and self._is_open(at)

    def _bounds(self, plan: Plan) -> bool:
        if plan.verb == "scale" and plan.choices.get("ends"):
            return False
        serve = plan.serving is not None and plan.serving >= self.least_serving
        wanted = plan.choices.get("to", 0)
        return (serve or not self.least_serving) and (wanted <= self.most_replicas or not self.most_replicas)

    def _is_for(self, target: Target) -> bool:
        return not self.targets or any(map(target.matches, self.targets))

    def _is_open(self, at: float) -> bool:
        return not self.hours or open_until(self.hours, at) is not None

    def __str__(self) -> str:
        return f"{self.change} ({self.bounds})"

    @property
    def bounds(self) -> str:
        targets = "for " + ", ".join(self.targets) if self.targets else ""
        hours = f"{self.hours} UTC" if self.hours else ""
        serving = f"with {self.least_serving} in rotation" if self.least_serving else ""
        most = f"up to {self.most_replicas} replicas" if self.most_replicas else ""
        bounds = [f"at most {self.at_most} in one incident", serving, most, targets, hours]
        return ", ".join(filter(None, bounds))


def pre_approved(
    rules: Iterable[PreApproved], plan: Plan, kind: str, target: Target, done: Iterable[str], *, at: float
) -> str:
    """Whether a rule of the settings permits this plan now. A plan with a warning is always asked about.

    Only the warning that a rule is about does not count: an operator who pre-approves that a busy replica is replaced
    accepts that its streams are cut.
    """
    done = tuple(done)
    found = next((rule for rule in rules if rule.permits(plan, kind, target, done, at=at)), None)
    if found is None or _has_warnings(plan, besides=ACCEPTED.get(found.change, "")):
        return ""
    return f"{_PRE_APPROVES}it ({found.bounds})"
