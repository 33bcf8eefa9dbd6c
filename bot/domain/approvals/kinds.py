"""The default approvals of each kind of change: which teams, how many people, and how much time.

A kind is the verb, or a narrower name if the same verb may do more harm. Settings may change the approvals; a playbook
may only raise a risk and shorten a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from bot.domain.approvals.grant import APPROVERS
from bot.domain.changes.catalogue import CHANGE_KINDS, VERBS
from bot.domain.changes.plan import Plan, Risk
from bot.domain.changes.verb import ChangeKind

TEAM_NAMES = (APPROVERS, "serving", "platform", "model", "lead")
OR = " or "
MINUTE = 60.0


class Share(BaseModel):
    """A number of people of one team, or of any of several (`serving or platform`)."""

    model_config = ConfigDict(frozen=True)

    team: str
    needed: int = 1

    def __str__(self) -> str:
        return self.team if self.needed == 1 else f"{self.needed} {self.team}"


class Asked(BaseModel):
    """The approvals of one kind besides its risk; no shares: the people of the risk level."""

    model_config = ConfigDict(frozen=True)

    shares: tuple[Share, ...] = ()
    expires_seconds: float | None = None
    """None: the time of its risk level."""
    is_set: bool = False
    """The settings name these teams: they are asked exactly so. Else one person of any of them is enough."""


def shares_of(text: str) -> tuple[Share, ...]:
    """Parses `serving + 2 lead` or `serving or platform`; raise `ValueError` for anything else."""
    shares = tuple(_share(part.strip()) for part in text.split("+"))
    if len({share.team for share in shares}) < len(shares):
        raise ValueError(f"'{text}' names a team twice; write a number before it")
    return shares


def _share(text: str) -> Share:
    found = re.fullmatch(r"(?:([1-9])\s+)?(\w+(?:\s+or\s+\w+)*)", text)
    names = re.split(r"\s+or\s+", found[2]) if found else []
    if found is None or not set(names) <= set(TEAM_NAMES):
        raise ValueError(f"'{text}' names no team; write for example serving + lead, of: {', '.join(TEAM_NAMES)}")
    return Share(team=OR.join(names), needed=int(found[1] or 1))


def more_of(shares: Iterable[Share], others: Iterable[Share]) -> tuple[Share, ...]:
    """Merges both: for each team the larger number."""
    needed: dict[str, int] = {}
    for share in (*shares, *others):
        needed[share.team] = max(share.needed, needed.get(share.team, 0))
    return tuple(Share(team=team, needed=count) for team, count in needed.items())


# --- kinds ------------------------------------------------------------------------------------------------------------

CONTRACT, QUALITY = "client_contract", "answer_quality"
SILENCE, PULL_REQUEST = "silence", "pull_request"
_EVERY = (
    *CHANGE_KINDS.values(),
    ChangeKind(CONTRACT, "high", "serving + model", minutes=30),  # clients see errors or truncation
    ChangeKind(QUALITY, "high", "serving + model", minutes=60),  # a silent loss of quality
    ChangeKind(SILENCE, "low", minutes=30),  # two hours at most; requested by command and confirmed in its form
    ChangeKind(PULL_REQUEST, "low", minutes=30),  # changes nothing until somebody merges it
)

DEFAULTS: Mapping[str, Asked] = {
    kind.name: Asked(
        shares=shares_of(kind.approved_by) if kind.approved_by else (), expires_seconds=kind.minutes * MINUTE
    )
    for kind in _EVERY
    if kind.minutes is not None
}
"""OPERATIONS' table of approvals. Without teams: one approver of its risk level."""

RISKS_OF_KINDS: Mapping[str, Risk] = {kind.name: kind.risk for kind in _EVERY}
"""The minimum risk of each kind, as agreed by operations; settings and playbooks may raise it, never lower it."""
KINDS = tuple(RISKS_OF_KINDS)

VERB_OF_KIND: Mapping[str, str] = {
    kind.name: verb.name for verb in VERBS.values() for kind in verb.kinds if kind.name != verb.name
}
"""The verb of each narrower kind that belongs to a single verb."""


def kinds_of_verb(name: str) -> tuple[str, ...]:
    """Returns the kinds that a change by this verb may have."""
    verb = VERBS[name]
    proven = (verb.proven_kind,) if verb.proven_kind else ()
    return (*(kind.name for kind in verb.kinds), *proven, *((CONTRACT, QUALITY) if verb.edits_engines else ()))


CONTRACT_EDITS = frozenset(
    {"--max-model-len", "--max-num-queued-reqs", "--max-num-queued-tokens", "--override-generation-config"}
)
"""Edits that make the engine refuse or truncate what it answered before."""
QUALITY_EDITS = frozenset(
    {"--kv-cache-dtype", "--attention-backend", "--attention-config", "--quantization", "--dtype", "--model"}
    | {"VLLM_ATTENTION_BACKEND", "ENABLE_TRIATTENTION", "TRIATTN_RUNTIME_KV_BUDGET"}
)
"""Edits that may make answers worse while all metrics look good."""


def kind_of(plan: Plan, earlier: Iterable[Plan] = ()) -> str:
    """Returns the kind of a plan; `earlier`: this run's fully applied plans, oldest first."""
    canary = next((each for each in reversed(tuple(earlier)) if each.verb == "canary"), None)
    # A plan that only rotates a canary does not repeat the edits it was started with.
    edits = _edits(canary if plan.verb == "rotate_canary" and canary is not None else plan)
    verb = VERBS.get(plan.verb)
    if verb is None:
        return plan.verb
    reaches_people = plan.choices.get("rotation") != "out"
    if verb.edits_engines and reaches_people and (touched := kind_of_edits(edits)):
        return touched
    if verb.proven_kind and canary is not None and _edits(canary) == edits:
        return verb.proven_kind
    return next((kind.name for kind in verb.kinds if kind.risk == plan.risk), plan.verb)


def kind_of_edits(names: Collection[str]) -> str:
    """Returns `client_contract` or `answer_quality` if an edit is of that sort; else empty."""
    touched = {name.partition(".")[0] for name in names}  # a key of a JSON flag edits that flag
    return QUALITY if touched & QUALITY_EDITS else CONTRACT if touched & CONTRACT_EDITS else ""


def _edits(plan: Plan) -> Mapping[str, Any]:
    edits = plan.choices.get("edits")
    return edits if isinstance(edits, Mapping) else {}
