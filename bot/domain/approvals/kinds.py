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
from bot.domain.changes.plan import Plan, Risk
from bot.domain.changes.risks import FLOORS

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
    """What one kind asks beside its risk; no shares: whoever the risk level names."""

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

DEFAULTS: Mapping[str, Asked] = {
    kind: Asked(shares=shares_of(who) if who else (), expires_seconds=minutes * MINUTE)
    for kind, who, minutes in (
        ("probe_request", "", 30),  # no user sees it
        ("run_job", "", 30),
        ("return_replica", "", 30),  # it restores
        ("remove_canary", "", 30),
        (SILENCE, "", 30),  # two hours at most; asked for by command and confirmed in its form
        ("scale", "", 20),  # one more: reversible, restarts nothing
        ("scale_more", "", 20),
        ("isolate_replica", "", 15),  # one replica
        ("replace_replica", "", 15),
        ("canary", "", 15),
        ("rotate_canary", "", 15),
        ("undo", "", 15),  # going back must be easier than going on
        ("cordon_node", "serving or platform", 10),
        ("uncordon_node", "platform", 60),  # it may put users on bad silicon
        ("rollback", "", 15),  # known state; two people at 3 a.m. cost more than they save
        ("promote", "", 15),  # all replicas, after a spare has shown it
        ("set_flags", "serving + lead", 10),  # all replicas, unproven
        ("restart", "serving + lead", 10),
        (CONTRACT, "serving + model", 30),  # clients see errors or truncation
        (QUALITY, "serving + model", 60),  # a silent loss of quality
        ("replace_busy_replica", "serving + lead", 10),  # cuts users
        ("drain_node", "platform + serving", 10),  # other people's pods
    )
}
"""OPERATIONS' table of approvals. Nothing before the minutes: one of those who approve its risk."""

RISKS_OF_KINDS: Mapping[str, Risk] = {**FLOORS, CONTRACT: "high", QUALITY: "high"}

ALTERS = frozenset({"set_flags", "promote", "canary", "rotate_canary"})
"""Verbs that give answers by other settings than before."""
KINDS_OF_VERBS: Mapping[str, tuple[str, ...]] = {
    "scale": ("scale", "scale_more", "scale_over_half"),
    "replace_replica": ("replace_replica", "replace_busy_replica"),
    "set_flags": ("set_flags", "promote", CONTRACT, QUALITY),
    "promote": ("promote", CONTRACT, QUALITY),
    "canary": ("canary", CONTRACT, QUALITY),
    "rotate_canary": ("rotate_canary", CONTRACT, QUALITY),
}
"""What a verb may turn out to be; others are only themselves."""

VERB_OF_KIND: Mapping[str, str] = {
    "scale_more": "scale",
    "scale_over_half": "scale",
    "replace_busy_replica": "replace_replica",
}
"""The verb of each narrower kind that belongs to one verb alone."""

KINDS = tuple(dict.fromkeys((*DEFAULTS, *FLOORS)))

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
    spare = next((each for each in reversed(tuple(earlier)) if each.verb == "canary"), None)
    # A spare's plan that only turns traffic to it does not repeat what it was started with.
    edits = _edits(spare if plan.verb == "rotate_canary" and spare is not None else plan)
    reaches_people = plan.choices.get("rotation") != "out"
    if plan.verb in ALTERS and reaches_people and (touched := kind_of_edits(edits)):
        return touched
    match plan.verb:
        case "scale":
            return {"low": "scale", "medium": "scale_more", "high": "scale_over_half"}[plan.risk]
        case "replace_replica" if plan.risk == FLOORS["replace_busy_replica"]:
            return "replace_busy_replica"
        case "set_flags" if spare is not None and _edits(spare) == edits:
            return "promote"
    return plan.verb


def kind_of_edits(names: Collection[str]) -> str:
    """`client_contract` or `answer_quality` where an edit is of that sort; else empty."""
    touched = set(names)
    return QUALITY if touched & QUALITY_EDITS else CONTRACT if touched & CONTRACT_EDITS else ""


def _edits(plan: Plan) -> Mapping[str, Any]:
    edits = plan.choices.get("edits")
    return edits if isinstance(edits, Mapping) else {}
