"""What a run has changed and not taken back: shown to a person before the incident ends."""

from __future__ import annotations

from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import LedgerEntry
from bot.domain.incidents.run import Run

LEFTOVER_VERBS = frozenset(verb.name for verb in VERBS.values() if verb.leaves_behind)
"""What the bot must not leave behind at an end without a person saying so."""


def residual_changes(run: Run) -> tuple[LedgerEntry, ...]:
    """Canaries, cordons, isolated replicas, and rollouts that stand still half-way, all calls of their change."""
    still = still_rollouts(run)
    changes = {change_of(entry) for entry in still}
    kept = {entry.call_id for entry in run.held if entry.verb in LEFTOVER_VERBS or change_of(entry) in changes}
    kept |= {entry.call_id for entry in still}
    return tuple(entry for entry in run.ledger if entry.call_id in kept)


def still_rollouts(run: Run) -> tuple[LedgerEntry, ...]:
    """The newest call on each workload that holds its rollout, where no later one has let it go.

    A call that takes something back may be among them: it has no undo of its own.
    """
    newest = {str(entry.target): entry for entry in run.ledger if entry.holds is not None and not entry.undone_by}
    return tuple(entry for entry in newest.values() if entry.holds)


def change_of(entry: LedgerEntry) -> str:
    """The change whose call it was, as incident and request."""
    return entry.call_id.rpartition("/")[0]
