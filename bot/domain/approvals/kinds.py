"""What each kind of change asks of people by default: whose approval, how many, and how long they have.

A kind is the verb, or a narrower name where the same verb may do more harm. The settings may ask otherwise; a playbook
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
    """So many people of one team, or of any of several (`serving or platform`)."""

    model_config = ConfigDict(frozen=True)

    team: str
    needed: int = 1

    def __str__(self) -> str:
        return self.team if self.needed == 1 else f"{self.needed} {self.team}"


class Asked(BaseModel):
    """What one kind asks beside its risk; no shares: the people of the risk level."""

    model_config = ConfigDict(frozen=True)

    shares: tuple[Share, ...] = ()
    expires_seconds: float | None = None
    """None: the time of its risk level."""


def shares_of(text: str) -> tuple[Share, ...]:
    """Read `serving + 2 lead` or `serving or platform`; raise `ValueError` for what is neither."""
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
    """Both together: of each team the larger number."""
    needed: dict[str, int] = {}
    for share in (*shares, *others):
        needed[share.team] = max(share.needed, needed.get(share.team, 0))
    return tuple(Share(team=team, needed=count) for team, count in needed.items())


# --- kinds ------------------------------------------------------------------------------------------------------------

CONTRACT, QUALITY, SILENCE = "client_contract", "answer_quality", "silence"
_EVERY = (
    *CHANGE_KINDS.values(),
    ChangeKind(CONTRACT, "high", "serving + model", minutes=30),  # clients see errors or truncation
    ChangeKind(QUALITY, "high", "serving + model", minutes=60),  # a silent loss of quality
    ChangeKind(SILENCE, "low", minutes=30),  # two hours at most; asked for by command and confirmed in its form
)

DEFAULTS: Mapping[str, Asked] = {
    kind.name: Asked(
        shares=shares_of(kind.approved_by) if kind.approved_by else (), expires_seconds=kind.minutes * MINUTE
    )
    for kind in _EVERY
    if kind.minutes is not None
}
"""OPERATIONS' table of approvals. Without teams: one of those who approve its risk."""

RISKS_OF_KINDS: Mapping[str, Risk] = {kind.name: kind.risk for kind in _EVERY}
"""The least risk of each kind, as operations agreed on it; settings and playbooks may raise it, never lower it."""
KINDS = tuple(RISKS_OF_KINDS)

VERB_OF_KIND: Mapping[str, str] = {
    kind.name: verb.name for verb in VERBS.values() for kind in verb.kinds if kind.name != verb.name
}
"""The verb of each narrower kind that belongs to one verb alone."""


def kinds_of_verb(name: str) -> tuple[str, ...]:
    """What a change by this verb may turn out to be."""
    verb = VERBS[name]
    proven = (verb.proven_kind,) if verb.proven_kind else ()
    return (*(kind.name for kind in verb.kinds), *proven, *((CONTRACT, QUALITY) if verb.edits_engines else ()))


CONTRACT_EDITS = frozenset(
    {"--max-model-len", "--max-num-queued-reqs", "--max-num-queued-tokens", "--override-generation-config"}
)
"""What makes the engine refuse or truncate what it answered before."""
QUALITY_EDITS = frozenset(
    {"--kv-cache-dtype", "--attention-backend", "--attention-config", "--quantization", "--dtype", "--model"}
    | {"VLLM_ATTENTION_BACKEND", "ENABLE_TRIATTENTION", "TRIATTN_RUNTIME_KV_BUDGET"}
)
"""What may make answers worse while every number looks well."""


def kind_of(plan: Plan, earlier: Iterable[Plan] = ()) -> str:
    """The kind of a plan; `earlier`: those of this run that were applied to the end, oldest first."""
    canary = next((each for each in reversed(tuple(earlier)) if each.verb == "canary"), None)
    # A canary's plan that only turns traffic to it does not repeat what it was started with.
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
    """`client_contract` or `answer_quality` where an edit is of that sort; else empty."""
    touched = set(names)
    return QUALITY if touched & QUALITY_EDITS else CONTRACT if touched & CONTRACT_EDITS else ""


def _edits(plan: Plan) -> Mapping[str, Any]:
    edits = plan.choices.get("edits")
    return edits if isinstance(edits, Mapping) else {}
