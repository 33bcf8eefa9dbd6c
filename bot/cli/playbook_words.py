"""`incident-bot playbook words`: the names that a playbook may use, from the tables that the check uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from bot.adapters.yaml_playbooks import packaged_fragments
from bot.domain.changes.catalogue import VERBS
from bot.domain.flags.mitigations import DIRECTIONS, mitigations
from bot.domain.playbooks.expressions.functions import FUNCTIONS, METHODS
from bot.domain.playbooks.language import ENDS
from bot.domain.signals.metric import METRICS, TAKES
from bot.domain.signals.signal import Kind
from bot.probes.catalogue import PROBES

KIND_TEXTS: dict[Kind, str] = {
    "number": "number", "text": "text", "flag": "true or false", "by_replica": "numbers by replica",
}  # fmt: skip


def words(which: str) -> Iterator[str]:
    """The words of one kind; of all if it is empty."""
    for kind, lines in _SECTIONS.items():
        if which in ("", kind):
            yield f"# {kind}"
            yield from lines()
            yield ""


def _verbs() -> Iterator[str]:
    for name, verb in VERBS.items():
        yield f"{name}: {verb.help}"
        for argument in sorted(verb.arguments, key=lambda each: each.name):
            need = {"required": " (needed)", "one_of": " (one of these)", "optional": ""}[argument.need]
            yield f"  {argument.name}{need}: {argument.help}"
        for part, kind in verb.results.items():
            yield f"  gives results.<state>.{name}.{part}: {KIND_TEXTS[kind]}"


def _probes() -> Iterator[str]:
    for probe in PROBES.values():
        yield f"{probe.name}: {probe.help}"
        for name, parameter in probe.parameters.items():
            yield f"  parameters, {name}: {parameter.help}"
        for kind, text in KIND_TEXTS.items():
            yield from _list(f"{text}:", (f".{part}" for part, its in probe.kinds.items() if its == kind))


def _metrics() -> Iterator[str]:
    for name, metric in sorted(METRICS.items()):
        takes = TAKES[metric.shape]
        taken = f"take {', '.join(sorted(takes))}" if takes else _of_a_histogram(name)
        yield f"{name} ({metric.unit}): a {metric.shape}; {taken}"


def _of_a_histogram(name: str) -> str:
    """It has no `take`: each method to read one is a separate kind of signal."""
    return f"{{mean: {name}}}, {{histogram: {name}, quantile: 0.99}} or {{histogram: {name}, share_above: 1}}"


def _functions() -> Iterator[str]:
    for function in FUNCTIONS:
        takes = ", ".join(KIND_TEXTS[kind] for kind in function.takes)
        yield f"{function.name}({takes}): {function.says}"
    yield f"of texts: {', '.join(f'.{method}()' for method in sorted(METHODS))}"


def _fragments() -> Iterator[str]:
    for name, read in sorted(packaged_fragments().items()):
        if read.fragment is None:
            continue
        yield f"{name}: {read.fragment.summary}"
        for parameter, declared in read.fragment.parameters.items():
            yield f"  with {parameter}{'' if 'default' in declared.model_fields_set else ' (needed)'}: {declared.why}"
        for exit_name, meaning in read.fragment.exits.items():
            yield f"  exits {exit_name}: {meaning}"
        yield from _list("reads" if read.fragment.states else "signals, for 'uses'", read.fragment.signals)
        if not read.fragment.states:
            yield from _list("settings", read.fragment.settings)


def _mitigations() -> Iterator[str]:
    for flag, effects in sorted(mitigations().mitigations.items()):
        yield f"{flag} ({', '.join(sorted(DIRECTIONS))}): against {', '.join(sorted(effects))}"


def _endings() -> Iterator[str]:
    yield ", ".join(ENDS)


KEYS = {
    "define": (
        "of a playbook: names for expressions; each stands for its text wherever the playbook mentions it",
        ("define: {waits: waiting > settings.queue_limit}",),
    ),
    "when": (
        "of an edit: it is made only if this is true; false and unknown leave it out",
        ("with: {edits: [{flag: --max-num-seqs, value: 64, when: waiting > 50}]}",),
    ),
    "first_of": (
        "of an edit, instead of flag: the first that the engine's version has; the last if none or not known",
        ("with: {edits: [{first_of: [--max-num-active-seqs, --max-num-seqs], value: 64}]}",),
    ),
    "recommend": (
        "a kind of state: its first possible option is proposed as the change <state>_<option>, the others beside it; "
        "with try, a flag edit goes to a canary first",
        (
            "relieve:",
            "  recommend: How do we relieve the queue?",
            "  still: waits",
            "  done: verify",
            "  none_possible: people",
            "  try: judge",
            "  options:",
            "    grow: {label: Add a replica, possible: room.free_gpus > 0, change: scale, with: {by: 1}}",
            "    cap:",
            "      label: Cap the sequences",
            "      change: set_flags",
            "      against: latency_decode",
            "      with: {edits: [{flag: --max-num-seqs, value: 64}]}",
            "    hand_over: {label: Hand over, to: people}",
        ),
    ),
    "defaults": (
        "of a playbook: what its states of a kind (ask, recommend, change) say where they say nothing themselves",
        ("defaults: {ask: {expires: settings.answer_within, expired: people}}",),
    ),
    "otherwise": (
        "of a read, a change, a recommendation or a watch: the next state for each outcome that it does not name, such "
        "as refused, expired and failed, or not_held and unknown; of a read: no condition is true, or one is unknown",
        (
            "is_busy: {go: [{when: waiting > 10, to: relieve}], otherwise: calm}",
            "promote: {change: promote, still: waits, why: It helped., done: verify, otherwise: people}",
        ),
    ),
    "repeat": (
        "of an option: it may be recommended again in the incident, but not right after it was refused, and not with "
        "the values in its label that a canary had before",
        ("cap: {label: 'Limit to ${cap} requests', repeat: true, change: set_flags, with: {edits: […]}}",),
    ),
    "approved_with": (
        "of a change: earlier changes or recommendations whose request lists this one; their approval covers it, "
        "unless its risk is higher, it has a warning, or it edits something else",
        ("promote: {change: promote, approved_with: [relieve], still: waits, why: It helped., done: verify}",),
    ),
    "parked": (
        "of an ask, a watch or a divert to people: the wait leaves the target's slot, so that the next alert opens a "
        "fresh incident; a watch that reads the probe alert_again receives the alert itself",
        ("patch: {ask: Is the patch there?, choices: {there: {label: It is there, to: look}}, parked: true}",),
    ),
    "return": (
        "a kind of state: the playbook that diverted here goes on, and what is left to do here comes before the "
        "incident ends; where nothing diverted here, it comes at once",
        (
            "elsewhere:",
            "  return: fixed",
            "  to_do: Give the node to the hardware team.",
            "  later: ticket",
        ),
    ),
    "runbook": (
        "of a state or an include: the step of your runbook; on the card, the request, the graph and the report",
        ("runbook: {step: 2. Relieve the queue, url: https://wiki.example/queue}",),
    ),
    "related": (
        "of a playbook: other runbooks that belong to the same trouble, and the playbooks that follow them; in the "
        "report",
        ("related: [{runbook: GPU faults, url: https://wiki.example/gpu, playbook: gpu-fault}]",),
    ),
}
"""Keys that an example explains best: what each means, and the example's lines."""


def _keys() -> Iterator[str]:
    for name, (meaning, example) in KEYS.items():
        yield f"{name}: {meaning}"
        yield from (f"    {line}" for line in example)


def _list(word: str, names: Iterable[str]) -> Iterator[str]:
    if listed := ", ".join(names):
        yield f"  {word} {listed}"


_SECTIONS: dict[str, Callable[[], Iterator[str]]] = {
    "verbs": _verbs,
    "probes": _probes,
    "metrics": _metrics,
    "functions": _functions,
    "fragments": _fragments,
    "mitigations": _mitigations,
    "endings": _endings,
    "keys": _keys,
}
