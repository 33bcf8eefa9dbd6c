"""How people call the ends of an incident, in Slack, reports and statistics alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from bot.domain.changes.catalogue import VERBS

ENDINGS: Mapping[str, str] = MappingProxyType(
    {
        "fixed": "fixed and verified",
        "self_cleared": "recovered by itself",
        "resolved_by_itself": "recovered by itself",
        "resolved_after_a_change": "recovered after a change",
        "accepted_degraded": "closed as degraded, accepted",
        "handed_over": "handed over to people",
        "backed_out": "taken back",
        "not_applicable": "not a case for this playbook",
        "unproven": "closed without proof",
        "resolved_by_hand": "closed by hand",
        "superseded": "continued in another incident",
    }
)
PASSING = frozenset(verb.name for verb in VERBS.values() if not verb.lasts)
"""Verbs of which nothing is left once the canary is gone."""


def ending_in_words(ending: str, *, verbs: Collection[str], holds: bool) -> str:
    """`verbs`: of the changes that the bot made; `holds`: whether one of them is still in place."""
    if ending == "fixed" and not holds and PASSING.issuperset(verbs):
        return "verified without a lasting change by the bot" if verbs else "verified without a change by the bot"
    if ending == "not_applicable" and verbs:
        return "closed, nothing left to fix"
    return ENDINGS.get(ending) or ending.replace("_", " ")
