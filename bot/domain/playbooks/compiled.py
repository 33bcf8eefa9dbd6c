"""A playbook ready to run: expressions checked, settings resolved. Built once, frozen, kept by each of its runs.

Of a playbook that was checked before, the expressions of a state are compiled when a run first comes there, since most
states are never entered.

Guards are three-valued: a clause that cannot be evaluated stops the choice there, as unknown with its reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

from bot.domain.kernel.durations import is_duration, seconds
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.kernel.numbers import is_number
from bot.domain.kernel.references import SETTINGS_PREFIX, setting_in
from bot.domain.playbooks.compiling import (
    CompiledCalm,
    CompiledFinding,
    CompiledState,
    Compiler,
    Data,
    fill,
    keeping_false,
    verdict_of,
)
from bot.domain.playbooks.expressions.expression import Expression, Scope, Unknown, names_in
from bot.domain.playbooks.expressions.template import NO_UNITS, as_written, shown
from bot.domain.playbooks.language import (
    ChangeState,
    Playbook,
    RecommendState,
    State,
    kind_of,
)
from bot.domain.playbooks.machine import PlaybookMachine
from bot.domain.playbooks.matchers import Matcher, parse_matchers
from bot.domain.playbooks.mistakes import Mistake, Report
from bot.domain.playbooks.scope import (
    findings_of,
    scope_of,
    signals_of,
    signals_of_calm,
)
from bot.domain.playbooks.source import Source
from bot.domain.signals.labels import BEFORE, words_for
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.signal import DURATION, SHOWN_UNITS, Reading, Value, in_words, unit_beside
from bot.domain.signals.specs import OF_ENGINES, ProbeSignal, SignalSpec
from bot.domain.signals.values import Overlaid, Under, Within

MAX_SEEN = 4
"""Of a part of a watch that more readings keep from holding, people read its name."""
CONCLUSIONS_KEPT = 256
PRESENCE_PROBE = "rollout_progress"
"""The probe that says whether the workload is there."""


@dataclass(frozen=True)
class Chosen:
    """The clause that decided; `text` names it with the values that it used, for the timeline."""

    index: int
    destination: str
    text: str
    seen: str
    """Only the readings, for a message."""
    read_of: tuple[str, ...] = ()
    """The signals that it is about."""


class _Derived:
    """What follows from the written playbook alone. Copies with other settings share it. Each part is made when needed.

    Faults of expressions are reported when they are compiled.
    """

    def __init__(self, playbook: Playbook, probes: Probes, report: Report) -> None:
        self._playbook, self._probes, self._report = playbook, probes, report
        self._states: dict[str, CompiledState] = {}
        self._needs: dict[str, tuple[str, ...]] = {}

    def compile_all(self) -> None:
        self._compiler.definitions(self._playbook.define)
        for name in self._playbook.states:
            self.state(name)
        _ = self.calm, self.users, self.diagnoses

    def needs(self, name: str) -> tuple[str, ...]:
        if name not in self._needs:
            self._needs[name] = signals_of(self._playbook.states[name], self._playbook.signals)
        return self._needs[name]

    def state(self, name: str) -> CompiledState:
        if name not in self._states:
            self._states[name] = self._compiler.state(("states", name), self._playbook.states[name])
        return self._states[name]

    @cached_property
    def scope(self) -> Scope:
        return scope_of(self._playbook, self._probes)

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self.scope, self._report)

    @cached_property
    def calm(self) -> CompiledCalm | None:
        return self._compiler.calm(self._playbook)

    @cached_property
    def users(self) -> tuple[CompiledFinding, ...]:
        return self._compiler.findings("users", self._playbook.users)

    @cached_property
    def diagnoses(self) -> tuple[CompiledFinding, ...]:
        return self._compiler.findings("diagnoses", self._playbook.diagnoses)

    @cached_property
    def machine(self) -> PlaybookMachine:
        return PlaybookMachine(self._playbook)

    @cached_property
    def matchers(self) -> tuple[tuple[Matcher, ...], ...]:
        return tuple(parse_matchers(line) for line in self._playbook.opens_on)

    @cached_property
    def units(self) -> Mapping[str, str]:
        """Units of the settings that texts mention: durations are seconds in expressions."""
        durations = {name for name, each in self._playbook.settings.items() if is_duration(str(each.default))}
        return {f"{SETTINGS_PREFIX}{name}": DURATION for name in durations}

    @cached_property
    def mentioned_signals(self) -> tuple[str, ...]:
        mentions = (mention for each in findings_of(self._playbook) for mention in names_in(each.source))
        named = {mention.split(".")[0] for mention in mentions}
        return tuple(name for name in self._playbook.signals if name in named)

    @cached_property
    def words_of_signals(self) -> Mapping[str, Mapping[str, str]]:
        found = {name: words_for(spec, self._probes) for name, spec in self._playbook.signals.items()}
        return {name: words._asdict() for name, words in found.items() if any(words)}

    @cached_property
    def digest(self) -> str:
        return _sha256(self._playbook.model_dump(mode="json", by_alias=True))


class Conclusion(NamedTuple):
    """What the newest readings mean; each is empty while it is not known."""

    title: str
    """What the trouble is called."""
    cause: str
    """Why, in a sentence."""
    users: str
    """What users feel."""
    read_of_users: frozenset[str] = frozenset()
    """The signals in that sentence."""


@dataclass(frozen=True)
class CompiledPlaybook:
    playbook: Playbook
    settings: dict[str, Value]
    """Effective values; durations in seconds."""
    source: Source = field(repr=False, compare=False)
    """The source it was built from, with fragments included."""
    fragments: tuple[Source, ...] = field(repr=False, compare=False)
    """The files of the included fragments."""
    probes: Probes = field(repr=False, compare=False)
    """The probes that it was checked against."""
    _derived: _Derived = field(repr=False, compare=False)
    overridden: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """Settings that somebody set, maybe to their default."""

    @property
    def name(self) -> str:
        return self.playbook.playbook

    @property
    def start(self) -> str:
        return self.playbook.start

    @property
    def file(self) -> str:
        return self.source.file

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what affects decisions: the playbook without comments, and the effective settings."""
        return _sha256({"playbook": self._derived.digest, "settings": self.settings})

    def with_settings(self, settings: Mapping[str, Value]) -> CompiledPlaybook:
        """Returns the same playbook with other effective settings, already checked."""
        return replace(self, settings={**self.settings, **settings}, overridden=self.overridden | settings.keys())

    def fault(self, mistake: Mistake) -> Fault:
        return self.source.fault(mistake)

    @property
    def machine(self) -> PlaybookMachine:
        return self._derived.machine

    def opens_on(self, labels: Mapping[str, str]) -> bool:
        """Whether an alert with these labels opens it: all matchers of any one line must match."""
        return any(all(matcher.matches(labels) for matcher in line) for line in self._derived.matchers)

    def stored(self) -> dict[str, Any]:
        """Returns the texts that it was built from, and its settings."""
        return {**self.texts(), "settings": dict(self.settings)}

    def texts(self) -> dict[str, Any]:
        """Returns the texts that it was built from."""
        fragments = {
            str(fragment.data["fragment"]): {"file": fragment.file, "source": fragment.text}
            for fragment in self.fragments
        }
        return {"file": self.file, "source": self.source.text, "fragments": fragments}

    def called(self, name: str) -> str:
        """Returns the display name of a state: its title, else its name in words."""
        return self.state(name).title or name.replace("_", " ")

    def state(self, name: str) -> State:
        return self.playbook.states[name]

    def kind(self, name: str) -> str:
        return kind_of(self.playbook.states[name])

    def evidence(self, name: str) -> tuple[str, ...]:
        """Returns the signals that a request for this change shows.

        For an option these are the ones that its recommendation lists, not all that its options mention.
        """
        state = self.playbook.states[name]
        recommends = self.playbook.states.get(state.option_of) if isinstance(state, ChangeState) else None
        return recommends.read if isinstance(recommends, RecommendState) else self.needs(name)

    def needs(self, name: str) -> tuple[str, ...]:
        """Returns all signals to read in this state: those it lists and those its expressions mention."""
        return self._derived.needs(name)

    def wanted(self, name: str) -> dict[str, SignalSpec]:
        """Returns what a state reads: its own signals, and in a watch the metrics in the sentences on the card too.

        Those come from the same pages, and sentences from readings of different times would contradict themselves.
        """
        signals = self.playbook.signals
        mentioned = self.mentioned_signals if self.kind(name) == "watch" else ()
        shown = {each: signals[each] for each in mentioned if isinstance(signals[each], OF_ENGINES)}
        return shown | {each: signals[each] for each in self.needs(name)}

    def seconds(self, text: str) -> float:
        """Returns the seconds of a duration as written in the file: `90s`, or the name of a setting."""
        name = setting_in(text)
        return seconds(text) if name is None else cast(float, self.settings[name])  # the check ensures a number

    def scope_of(self, name: str) -> Scope:
        """Returns the names that this state's expressions may mention: its own signals, and any state's results."""
        own = set(self.needs(name))
        foreign = self.playbook.signals.keys() - own
        return {known: kind for known, kind in self._derived.scope.items() if known.split(".")[0] not in foreign}

    def still(self, name: str) -> Expression | None:
        return self._derived.state(name).still

    def still_holds(self, name: str, data: Data) -> bool | Unknown:
        """Whether the reason of a change still holds; True if none is written."""
        still = self._derived.state(name).still
        return True if still is None else verdict_of(still, self._with_settings(data))

    def no_longer(self, name: str, data: Data, units: Mapping[str, str] = NO_UNITS) -> str:
        """Returns the present values behind the `still` of a change, in words for people; `units` as for `text`.

        Of signals that are one value, where there is one: `count 0` or `early no` adds little for a reader beside them.
        """
        still = self._derived.state(name).still
        if still is None:
            return ""
        plain = [each for each in still.names if each in self.playbook.signals]
        return self._seen(still, self._with_settings(data), units, plain)

    def in_words(self, unknown: Unknown, readings: Mapping[str, Reading] | None = None) -> str:
        """Returns what could not be read, by the names that people know, and why each of these readings is missing."""
        readings = readings or {}
        names: list[str] = []
        causes = [] if unknown.missing else [each.unknown for each in readings.values()]
        for name in unknown.missing:
            signal, part = _signal_and_part(name)
            label, called = self._label(name)
            reading = readings.get(signal)
            # Of an answer that came, only a part is missing.
            lacks = "" if reading is None or not reading.is_known else reading.unknown_parts.get(part, "")
            names.append(f"{label}: {called}" if lacks else label)
            causes.append(lacks or (reading.unknown if reading is not None else ""))
        text = f"{', '.join(dict.fromkeys(names))} could not be read" if names else unknown.reason
        why = "; ".join(dict.fromkeys(filter(None, causes)))
        return text + (f" ({why})" if why else "")

    def _seen(self, expression: Expression, data: Data, units: Mapping[str, str], names: Iterable[str] = ()) -> str:
        """The present values of an expression's readings, or of these; settings are known and left out."""
        seen = self._readings_in([*names] or expression.names, data, units)
        return ", ".join(f"{label}: {of} {value}" if of else f"{label} {value}" for label, of, value in seen) or (
            expression.source
        )

    def _readings_in(
        self, names: Iterable[str], data: Data, units: Mapping[str, str], *, in_detail: bool = False
    ) -> list[tuple[str, str, str]]:
        """Returns of each reading among them the label, the part of a probe's answer, and its present value.

        `in_detail`: the probe's own sentence, where it has one, in place of a yes or no.
        """
        seen = []
        for name in sorted(name for name in names if setting_in(name) is None):
            label, part = self._label(name)
            value = data.get(name, "?")
            sentence = data.get(f"{name.rpartition('.')[0]}.detail") if in_detail and isinstance(value, bool) else None
            if isinstance(sentence, str) and sentence:
                seen.append((f"{label}:", "", sentence))
            elif in_detail and part and isinstance(value, bool):
                seen.append((f"{label}:", "", part if value else f"not {part}"))
            else:
                unit = units.get(name, "") or self.unit_of_part(name)
                seen.append((label, part, _beside(label, value, unit)))
        return seen

    def unit_of_part(self, name: str) -> str:
        """The unit of this part of a probe's answer, if it has one."""
        first, part = _signal_and_part(name)
        spec = self.playbook.signals.get(first)
        probe = self.probes.get(spec.probe) if isinstance(spec, ProbeSignal) else None
        return probe.units.get(part, "") if probe is not None else ""

    def _label(self, name: str) -> tuple[str, str]:
        """The words for a signal, and for the part of a probe's answer that an expression names."""
        first, part = _signal_and_part(name)
        if first not in self.playbook.signals:
            return name.rpartition(".")[2].replace("_", " "), ""
        label = self.words_of_signals.get(first, {}).get("label") or first.replace("_", " ")
        return label + BEFORE * name.startswith("baseline."), part.replace("_", " ")

    def picks(self, name: str, data: Data) -> dict[str, str] | Unknown:
        data = self._with_settings(data)
        picked: dict[str, str] = {}
        for pick, expression in self._derived.state(name).picks.items():
            value = expression.evaluate(data)
            if isinstance(value, Unknown):
                return value
            picked[pick] = str(value)
        return picked

    def choose(self, name: str, data: Data, units: Mapping[str, str] = NO_UNITS) -> Chosen | Unknown:
        """Returns the first clause that is not false; an unknown one ends the search. Includes this state's picks.

        `units`: of the readings, as for `text`.
        """
        picked = self.picks(name, data)
        data = self._with_settings(data)
        if not isinstance(picked, Unknown):
            data = Overlaid(Under("picked.", picked), data)
        for index, clause in enumerate(self._derived.state(name).clauses):
            if clause.when is None:
                return Chosen(index, clause.to, "nothing above holds" if index else "always", "otherwise")
            verdict = verdict_of(clause.when, data)
            if isinstance(verdict, Unknown):
                is_all = verdict.missing == (clause.when.source,)
                return Unknown(verdict.reason if is_all else f"{clause.when.source}: {verdict.reason}", verdict.missing)
            if verdict:
                seen = self._seen(clause.when, data, units)
                return Chosen(index, clause.to, explain(clause.when, data), seen, _signals_of(clause.when))
        return Unknown("no clause holds and none is written for that")

    def arguments(self, name: str, data: Data, *, as_asked: bool = False) -> dict[str, Any] | Unknown:
        """Returns the `with` of a change, evaluated with `data`.

        `as_asked`: use what was read when people were asked. Readings move, and people approved the number they saw.
        """
        values = self._as_recommended(name, self._with_settings(data), as_asked=as_asked)
        rendered = fill(self._derived.state(name).arguments or {}, values)
        return rendered if isinstance(rendered, Unknown) else dict(rendered)

    def text(self, name: str, key: str, data: Data, units: Mapping[str, str] = NO_UNITS) -> str:
        """Returns a text for people, evaluated with `data`: `ask`, `why`, `expected` or `say`.

        `units`: of the readings; those of settings are known.
        """
        values = self._as_recommended(name, self._with_settings(data))
        return self._derived.state(name).texts[key].in_words(values, {**self._units, **units})

    @property
    def mentioned_signals(self) -> tuple[str, ...]:
        """Returns the signals that `users` and `diagnoses` mention."""
        return self._derived.mentioned_signals

    @property
    def words_of_signals(self) -> Mapping[str, Mapping[str, str]]:
        """Returns the label and direction of each signal that has one."""
        return self._derived.words_of_signals

    def conclusion(self, data: Data, units: Mapping[str, str] = NO_UNITS) -> Conclusion:
        """Returns what these values mean. Most readings repeat, so the last conclusions are kept."""
        data, units = self._with_settings(data), {**self._units, **units}
        key = (tuple(_hashable(data.get(name)) for name in self._mentioned_names), *units.items())
        if key not in self._concluded:
            if len(self._concluded) >= CONCLUSIONS_KEPT:
                self._concluded.clear()
            title, cause, _ = self._found(self._derived.diagnoses, data, units)
            _, users, read = self._found(self._derived.users, data, units)
            self._concluded[key] = Conclusion(title, cause, users, read)
        return self._concluded[key]

    @cached_property
    def _mentioned_names(self) -> tuple[str, ...]:
        each = [*self._derived.users, *self._derived.diagnoses]
        texts = frozenset[str]().union(*(one.title.names | one.say.names for one in each))
        return tuple(texts.union(*(one.when.names for one in each if one.when is not None)))

    @cached_property
    def _concluded(self) -> dict[tuple[object, ...], Conclusion]:
        return {}

    def _found(
        self, findings: Sequence[CompiledFinding], data: Data, units: Mapping[str, str]
    ) -> tuple[str, str, frozenset[str]]:
        """Returns the title and the sentence of the first line that holds, and the signals in that sentence."""
        verdicts: list[bool | Unknown] = []
        for each in findings:
            # The last one, without a `when`, stands for "none of the others": that has to be known.
            certain = all(verdict is False for verdict in verdicts)
            verdict = verdict_of(each.when, data) if each.when is not None else certain
            if verdict is True:
                named = each.say.names or (each.when.names if each.when is not None else frozenset())
                read = frozenset(name.split(".")[0] for name in named) & self.playbook.signals.keys()
                return each.title.in_words(data, units), each.say.in_words(data, units), read
            verdicts.append(verdict)
        return "", "", frozenset()

    @property
    def _units(self) -> Mapping[str, str]:
        return self._derived.units

    def options(self, name: str, data: Data) -> dict[str, bool | Unknown]:
        """Returns whether each option of a `recommend` is possible."""
        data = self._with_settings(data)
        state = self.playbook.states[name]
        assert isinstance(state, RecommendState)
        possible = self._derived.state(name).parts
        return {key: verdict_of(possible[key], data) if key in possible else True for key in state.options}

    def _as_recommended(self, name: str, data: Data, *, as_asked: bool = False) -> Data:
        """Returns the values with those that recommended this change, or asked about it, in place of newer ones."""
        state = self.playbook.states[name]
        if not isinstance(state, ChangeState) or not (state.option_of or as_asked):
            return data
        return Overlaid(Within(f"results.{state.option_of or name}.", data), data)

    def watch_parts(self, name: str, data: Data) -> dict[str, bool | Unknown]:
        data = self._with_settings(data)
        return {part: verdict_of(expression, data) for part, expression in self._derived.state(name).parts.items()}

    def watch_values(self, name: str, parts: Iterable[str], data: Data, units: Mapping[str, str] = NO_UNITS) -> str:
        """Returns the present values behind these parts of a watch, in words for people; `units` as for `text`.

        A part that many readings keep from holding is called by its name: nobody reads them all.
        """
        data, written = self._with_settings(data), self._derived.state(name).parts
        found: list[tuple[str, str, str]] = []
        for part in parts:
            seen = self._readings_in(keeping_false(written[part], data), data, units, in_detail=True)
            found += seen if 0 < len(seen) <= MAX_SEEN else [(f"not {part.replace('_', ' ')}", "", "")]
        return _by_label(found)

    def broke_values(self, name: str, index: int, data: Data, units: Mapping[str, str] = NO_UNITS) -> str:
        """Returns the present values that ended a watch, as `watch_values`; empty if they are too many to be read."""
        when = self._derived.state(name).broke[index].when
        seen = self._readings_in(when.names, self._with_settings(data), units, in_detail=True) if when else []
        return _by_label(seen) if len(seen) <= MAX_SEEN else ""

    def broke(self, name: str, data: Data) -> tuple[int, ...]:
        """Returns the places of the `broke` clauses that are certainly true; an unknown one does not count."""
        data = self._with_settings(data)
        verdicts = [verdict_of(clause.when, data) for clause in self._derived.state(name).broke if clause.when]
        return tuple(index for index, verdict in enumerate(verdicts) if verdict is True)

    def is_enough(self, name: str, data: Data) -> bool:
        """Returns whether a watch has certainly enough evidence for a verdict."""
        enough = self._derived.state(name).enough
        return enough is not None and verdict_of(enough, self._with_settings(data)) is True

    @cached_property
    def wanted_for_calm(self) -> Mapping[str, SignalSpec]:
        """Returns the signals that `calm` needs, and those that say whether the workload is still there."""
        named = (*signals_of_calm(self.playbook), *self._of_presence)
        return {name: self.playbook.signals[name] for name in named}

    @cached_property
    def _of_presence(self) -> list[str]:
        signals = self.playbook.signals.items()
        return [name for name, spec in signals if isinstance(spec, ProbeSignal) and spec.probe == PRESENCE_PROBE]

    def is_gone(self, readings: Mapping[str, Reading]) -> bool:
        """Whether the workload was looked for and is not there."""
        return any(readings[name].fields.get("exists") is False for name in self._of_presence if name in readings)

    def is_calm(self, data: Data, *, changed: bool) -> bool | Unknown:
        """Whether the trouble is gone; after a change, also whether it is gone under load."""
        compiled = self._derived.calm
        if compiled is None:
            return False
        data = self._with_settings(data)
        calm = verdict_of(compiled.when, data)
        if calm is not True or not changed:
            return calm
        return False if compiled.under_load is None else verdict_of(compiled.under_load, data)

    def _with_settings(self, data: Data) -> Data:
        return Overlaid(data, Under(SETTINGS_PREFIX, self.settings))


def _by_label(seen: Iterable[tuple[str, str, str]]) -> str:
    """The values of readings, each label once."""
    by_label: dict[str, dict[str, None]] = {}
    for label, of, value in seen:
        by_label.setdefault(f"{label}:" if of else label, {})[f"{of} {value}".strip()] = None
    return "; ".join(f"{label} {', '.join(values)}".strip() for label, values in by_label.items())


def _hashable(value: Value | None) -> object:
    return tuple(value.items()) if isinstance(value, dict) else (type(value), value)


def explain(expression: Expression, data: Data) -> str:
    """Returns the expression with the present values of its names."""
    seen = [f"{name} = {_shown(data[name])}" if name in data else f"{name} = ?" for name in sorted(expression.names)]
    return f"{expression.source} ({', '.join(seen)})" if seen else expression.source


def _sha256(decides: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def compile_playbook(
    playbook: Playbook,
    settings: Mapping[str, Value],
    *,
    source: Source,
    fragments: tuple[Source, ...] = (),
    probes: Probes,
    report: Report,
) -> CompiledPlaybook:
    """Compiles every expression and reports each fault; a playbook with faults must not be run."""
    derived = _Derived(playbook, probes, report)
    derived.compile_all()
    return CompiledPlaybook(playbook, dict(settings), source, fragments, probes, derived)


def checked_before(
    playbook: Playbook,
    settings: Mapping[str, Value],
    *,
    source: Source,
    fragments: tuple[Source, ...] = (),
    probes: Probes,
) -> CompiledPlaybook:
    """A playbook that was found sound. If an expression has a fault all the same, using it raises `PlaybookError`."""

    def refuse(mistake: Mistake) -> None:
        raise PlaybookError((source.fault(mistake),))

    return CompiledPlaybook(playbook, dict(settings), source, fragments, probes, _Derived(playbook, probes, refuse))


def _shown(value: Value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(number)}" for name, number in sorted(value.items()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return f"{as_written(value)}" if float(value).is_integer() else f"{value:.4g}"


def _signals_of(expression: Expression) -> tuple[str, ...]:
    return tuple(sorted({_signal_and_part(name)[0] for name in expression.names if setting_in(name) is None}))


def _signal_and_part(name: str) -> tuple[str, str]:
    """The signal and the part of `signal.part`, also behind `baseline.` and `results.state.`."""
    first, _, part = name.removeprefix("baseline.").partition(".")
    if first == "results":
        first, _, part = part.partition(".")[2].partition(".")
    return first, part


def _beside(label: str, value: Value, unit: str) -> str:
    """A value beside its label: no words around it give a unit of another kind, such as `per finished request`."""
    return in_words(value, SHOWN_UNITS.get(unit, unit_beside(label, unit))) if is_number(value) else shown(value, unit)
