"""Who rolled out the current revision and who owns the workload, according to annotations and labels.

They are notified when their deploy is reverted, not asked: it is a known state, and they may be asleep.
"""

from __future__ import annotations

from bot.domain.changes.plan import Circumstance
from bot.domain.cluster.objects import FIELD_MANAGER, annotations_of, dig, labels_of, writers_of
from bot.domain.cluster.rollout import current_replica_set, current_revision
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

CHANGE_CAUSE = "kubernetes.io/change-cause"
OWNER_WORDS = frozenset({"owner", "owners", "team", "author", "deployed-by", "maintainer", "contact"})
"""The last part of a label or annotation name: `team`, `example.com/owner`."""


def deployers_of(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Returns `owner=U0ANA`, `change-cause=helm upgrade by ana`; empty if no label or annotation names a person."""
    newest, workload = current_replica_set(snapshot) or {}, snapshot.workload or {}
    # A Deployment's cause may already belong to the next revision; the ReplicaSet keeps its own.
    cause = annotations_of(newest).get(CHANGE_CAUSE) or annotations_of(workload).get(CHANGE_CAUSE)
    named = {"change-cause": cause} if cause else {}
    for metadata in (labels_of(workload), annotations_of(workload)):
        for key, value in sorted(metadata.items()):
            word = key.rpartition("/")[2].lower()
            if word in OWNER_WORDS and value:
                named.setdefault(word, value)
    return tuple(f"{word}={value}" for word, value in named.items())


def _writer_of_template(workload: Obj) -> str:
    """Returns the field manager that wrote the pod template last, such as `helm`; empty if it is the bot or unknown."""
    written = [
        one for one in writers_of(workload) if not one.subresource and "f:template" in (dig(one.fields, "f:spec") or {})
    ]
    last = max(written, key=lambda one: one.time).manager if written else ""
    return "" if last == FIELD_MANAGER else last


def deployer_circumstance(snapshot: ClusterSnapshot, deployers: tuple[str, ...]) -> Circumstance:
    current = current_revision(snapshot)
    what = f"revision {current.number}" if current is not None else "what runs"
    if deployers:
        text = f"{what} is of {', '.join(deployers)}: told in the thread when it is taken back, not asked"
    elif writer := _writer_of_template(snapshot.workload or {}):
        text = f"{writer} deployed {what}, and no {CHANGE_CAUSE} and no owner label names a person; tell them yourself"
    else:
        text = f"who deployed {what} is not known: no {CHANGE_CAUSE} and no owner label; tell them yourself"
    return Circumstance(name="deployed_by", grade="note", text=text)
