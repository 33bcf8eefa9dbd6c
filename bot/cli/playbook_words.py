"""`incident-bot playbook words`: the names that a playbook may use, from the tables that the check uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bot.adapters.yaml_playbooks import packaged_fragments
from bot.domain.changes.catalogue import VERBS
from bot.domain.flags.mitigations import DIRECTIONS, mitigations
from bot.domain.playbooks.expressions.functions import FUNCTIONS, METHODS
from bot.domain.playbooks.language import ENDS
from bot.domain.signals.metric import SHAPES, TAKES, UNITS
from bot.domain.signals.signal import Kind
from bot.probes.catalogue import PROBES

KINDS_SAY: dict[Kind, str] = {
    "number": "number", "text": "text", "flag": "true or false", "by_replica": "numbers by replica",
}  # fmt: skip


def words(which: str) -> Iterator[str]:
    """The words of one kind; of all if it is empty."""
    for kind, told in _TOLD.items():
        if which in ("", kind):
            yield f"# {kind}"
            yield from told()
            yield ""


def _verbs() -> Iterator[str]:
    for name, verb in VERBS.items():
        yield f"{name}: {verb.help}"
        for argument in sorted(verb.arguments, key=lambda each: each.name):
            need = {"required": " (needed)", "one_of": " (one of these)", "optional": ""}[argument.need]
            yield f"  {argument.name}{need}: {argument.help}"
        for part, kind in verb.results.items():
            yield f"  gives results.<state>.{name}.{part}: {KINDS_SAY[kind]}"


def _probes() -> Iterator[str]:
    for name, probe in PROBES.items():
        yield f"{name}: {probe.help}"
        for parameter, help_line in probe.parameters.items():
            yield f"  with {parameter}: {help_line}"
        for kind, said in KINDS_SAY.items():
            yield from _list(f"{said}:", (f".{part}" for part, its in probe.kinds.items() if its == kind))


def _metrics() -> Iterator[str]:
    for name, shape in sorted(SHAPES.items()):
        taken = f"take {', '.join(sorted(TAKES[shape]))}" if TAKES[shape] else _of_a_histogram(name)
        yield f"{name} ({UNITS.get(name, 'number')}): a {shape}; {taken}"


def _of_a_histogram(name: str) -> str:
    """It has no `take`: each method to read one is a separate kind of signal."""
    return f"{{mean: {name}}}, {{histogram: {name}, quantile: 0.99}} or {{histogram: {name}, share_above: 1}}"


def _functions() -> Iterator[str]:
    for function in FUNCTIONS:
        takes = ", ".join(KINDS_SAY[kind] for kind in function.takes)
        yield f"{function.name}({takes}): {function.says}"
    yield f"of texts: {', '.join(f'.{method}()' for method in sorted(METHODS))}"


def _fragments() -> Iterator[str]:
    for name, read in sorted(packaged_fragments().items()):
        if read.fragment is None:
            continue
        yield f"{name}: {read.fragment.summary}"
        for parameter, said in read.fragment.parameters.items():
            yield f"  with {parameter}{'' if 'default' in said.model_fields_set else ' (needed)'}: {said.why}"
        for way_out, meaning in read.fragment.exits.items():
            yield f"  exits {way_out}: {meaning}"
        yield from _list("reads", read.fragment.signals)


def _mitigations() -> Iterator[str]:
    for flag, effects in sorted(mitigations().mitigations.items()):
        yield f"{flag} ({', '.join(sorted(DIRECTIONS))}): against {', '.join(sorted(effects))}"


def _endings() -> Iterator[str]:
    yield ", ".join(ENDS)


def _list(word: str, names: Iterable[str]) -> Iterator[str]:
    if listed := ", ".join(names):
        yield f"  {word} {listed}"


_TOLD: dict[str, Callable[[], Iterator[str]]] = {
    "verbs": _verbs,
    "probes": _probes,
    "metrics": _metrics,
    "functions": _functions,
    "fragments": _fragments,
    "mitigations": _mitigations,
    "endings": _endings,
}
