"""Residual changes: what a run changed and did not undo, shown to a person before the incident ends."""

from __future__ import annotations

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import LedgerEntry, change_of
from bot.domain.incidents.run import Run

LEFTOVER_VERBS = frozenset(verb.name for verb in VERBS.values() if verb.leaves_behind)
"""Verbs whose effects the bot must not leave behind at an end without a person's consent."""


def residual_changes(run: Run) -> tuple[LedgerEntry, ...]:
    """Returns canaries, cordons, isolated replicas and held rollouts, with all calls of their change."""
    still = still_rollouts(run)
    changes = {change_of(entry.call_id) for entry in still}
    kept = {entry.call_id for entry in run.held if entry.verb in LEFTOVER_VERBS or change_of(entry.call_id) in changes}
    kept |= {entry.call_id for entry in still}
    return tuple(entry for entry in run.ledger if entry.call_id in kept)


def is_only_of_nodes(left: tuple[LedgerEntry, ...]) -> bool:
    """Whether only nodes that take no pods are left: no canary, no isolated replica and no held rollout."""
    return all(entry.verb in VERBS and VERBS[entry.verb].takes_node for entry in left)


def still_rollouts(run: Run) -> tuple[LedgerEntry, ...]:
    """Returns the newest call per workload that holds its rollout and that no later call has released.

    It may be a call that undoes another: such a call has no undo.
    """
    newest = {str(entry.target): entry for entry in run.ledger if entry.holds is not None and not entry.undone_by}
    return tuple(entry for entry in newest.values() if entry.holds)
