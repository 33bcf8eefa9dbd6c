"""The words that a playbook may use beside its own: verbs with their arguments, and what is taken of which metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verb:
    """What `with` may hold; `one_of` are arguments of which exactly one is needed."""

    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    one_of: frozenset[str] = frozenset()
    restores: bool = False
    """It takes back something of ours: it needs no reason that still holds."""

    @property
    def arguments(self) -> frozenset[str]:
        return self.required | self.optional | self.one_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VERBS: dict[str, Verb] = {
    "scale": Verb(one_of=_words("by to")),
    "canary": Verb(required=_words("edits"), optional=_words("rotation")),
    "rotate_canary": Verb(required=_words("rotation")),
    "promote": Verb(),
    "remove_canary": Verb(restores=True),
    "set_flags": Verb(required=_words("edits")),
    "isolate_replica": Verb(required=_words("replica")),
    "replace_replica": Verb(required=_words("replica")),
    "return_replica": Verb(required=_words("replica"), restores=True),
    "rollback": Verb(optional=_words("revision")),
    "restart": Verb(),
    "cordon_node": Verb(one_of=_words("node replica")),
    "uncordon_node": Verb(one_of=_words("node replica"), restores=True),
    "drain_node": Verb(one_of=_words("node replica"), optional=_words("others")),
    "run_job": Verb(required=_words("template"), optional=_words("replica env within_minutes")),
    "probe_request": Verb(required=_words("replica max_tokens"), optional=_words("within_minutes")),
    "undo": Verb(optional=_words("of"), restores=True),
}
"""Every verb with its arguments. What `run_job` and `probe_request` come back with is in `domain.signal.RESULTS`."""

NUMBERS = _words("by to revision max_tokens within_minutes")
"""Arguments that are numbers, whichever verb has them."""

TAKES: dict[str, frozenset[str]] = {
    "counter": _words("rate steady increase last"),
    "gauge": _words("last avg p50 p90 p99 max min slope"),
    "histogram": frozenset(),
}
"""What may be taken of a metric's samples in a window, by its shape."""
