"""All verbs by name: the `VERB` of each file in `verbs/`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from bot.domain.changes import verbs
from bot.domain.changes.verb import ChangeKind, Verb
from bot.domain.signals.signal import Kind


def _found() -> dict[str, Verb]:
    files = (f"{verbs.__name__}.{each.name}" for each in pkgutil.iter_modules(verbs.__path__))
    declared: list[Verb] = [importlib.import_module(file).VERB for file in files]
    return {verb.name: verb for verb in declared}


VERBS: Mapping[str, Verb] = _found()
CHANGE_KINDS: Mapping[str, ChangeKind] = {kind.name: kind for verb in VERBS.values() for kind in verb.kinds}
RESULTS: Mapping[str, Mapping[str, Kind]] = {name: verb.results for name, verb in VERBS.items() if verb.results}
