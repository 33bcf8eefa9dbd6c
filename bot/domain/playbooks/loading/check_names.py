"""Checks names and values one by one: whether each is known and allowed in its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from bot.domain.approvals.contacts import TEAMS
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.verb import Argument, ArgumentKind
from bot.domain.flags.flag_history import life_of_flag
from bot.domain.flags.flag_rules import fault_of_value
from bot.domain.flags.flag_table import newest_table
from bot.domain.flags.mitigations import DIRECTIONS, effect_of, mitigations
from bot.domain.kernel.durations import is_duration, seconds
from bot.domain.kernel.form import OPENING, Form
from bot.domain.kernel.numbers import is_number
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.expressions.expression import did_you_mean, names_in
from bot.domain.playbooks.expressions.functions import FUNCTION_NAMES
from bot.domain.playbooks.language import (
    ENDS,
    PEOPLE,
    AskState,
    ChangeState,
    DivertState,
    EndState,
    Playbook,
    ReadState,
    RecommendState,
    State,
    WatchState,
)
from bot.domain.playbooks.matchers import MatcherError, parse_matchers
from bot.domain.playbooks.mistakes import Mistake, Path, as_written
from bot.domain.playbooks.scope import RESERVED, Written, findings_of, signals_of, written_expressions
from bot.domain.playbooks.settings import finite_number, looks_like_duration
from bot.domain.signals.comparison import comparison_fault
from bot.domain.signals.metric import METRICS, TAKES
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.specs import (
    STARTS_AT,
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
)

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAMES_SOMETHING = re.compile(r"(answers|baseline|forms|picked|results|settings|target)(\.\w+)+", re.ASCII)
_PLAYBOOK_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
# Words reserved by CEL: a signal of such a name could not be written in an expression.
_CEL_WORDS = frozenset(
    """as break const continue else false for function if import in let loop namespace null package return true var void
    while""".split()  # noqa: SIM905 - a line of words reads better than 21 quoted ones
)

Mistakes = Iterator[Mistake]
MAX_FIELDS = 20


def check_names(playbook: Playbook, settings: Mapping[str, object], probes: Probes) -> Mistakes:
    yield from _spelling(playbook)
    yield from _alerts(playbook)
    yield from _form(("form",), playbook.form)
    yield from _known(("start",), playbook.start, playbook.states, "state")
    yield from _calm(playbook, settings)
    yield from _findings(playbook)
    for name, signal in playbook.signals.items():
        yield from _signal(("signals", name), signal, playbook, settings, probes)
    for name, state in playbook.states.items():
        yield from _state(("states", name), state, playbook, settings)
        for written in written_expressions(state):
            yield from _compared_choices(("states", name, *written.path), written, playbook)


_COMPARED = re.compile(r"""\b(answers|forms)((?:\.\w+)+)\s*[!=]=\s*(["'])((?:(?!\3).)*)\3""")


def _compared_choices(path: Path, written: Written, playbook: Playbook) -> Mistakes:
    """An answer is compared with the key of a choice; with any other text, the condition would never hold."""
    for found in _COMPARED.finditer(written.source):
        of, name, word = found[1], found[2][1:], found[4]
        choices = _choices_of_question(name, playbook) if of == "answers" else _options_of_field(name, playbook)
        if choices and word not in choices:
            what = f"'{name}' has no choice '{word}'"
            hint = did_you_mean(word, choices) or f"Write one of {', '.join(sorted(choices))}."
            yield Mistake(path, what, hint, written.offset + found.start(4) + 1)


def _choices_of_question(name: str, playbook: Playbook) -> Collection[str]:
    state = playbook.states.get(name)
    return state.choices.keys() if isinstance(state, AskState) else ()


def _options_of_field(name: str, playbook: Playbook) -> Collection[str]:
    of, _, field = name.partition(".")
    state = playbook.states.get(of)
    filled = [choice.form for choice in state.choices.values()] if isinstance(state, AskState) else []
    found = [form[field].options for form in (*filled, *([playbook.form] if of == OPENING else [])) if field in form]
    return {key for options in found for key in options}


def _known(path: Path, word: str, words: Iterable[str], noun: str) -> Mistakes:
    words = frozenset(words)
    if word not in words:
        yield Mistake(path, f"unknown {noun} '{word}'", did_you_mean(word, words) or _where_known(noun))


def _where_known(noun: str) -> str:
    if noun in ("probe", "metric", "verb"):
        return f"List them with 'incident-bot playbook words {noun}s'."
    if noun == "team":
        return f"Name one of {', '.join(TEAMS)}."
    return "Name a state that asks." if noun == "question" else f"Define the {noun}, or name another."


# --- words -----------------------------------------------------------------------------------------------------------


def _spelling(playbook: Playbook) -> Mistakes:
    if not _PLAYBOOK_NAME.fullmatch(playbook.playbook) and playbook.playbook != "?":
        yield Mistake(("playbook",), f"'{playbook.playbook}' is no name", "Use small letters, digits and hyphens.")
    for path in _named_things(playbook):
        name = str(path[-1])
        if not _NAME.fullmatch(name):
            yield Mistake(path, f"'{name}' is no name", "Use small letters, digits and underscores.", at_key=True)
        elif path[0] == "define" and name in playbook.signals:
            yield Mistake(path, f"'{name}' is a signal already", "Take another name.", at_key=True)
        elif path[0] in ("signals", "define") and name in RESERVED | FUNCTION_NAMES | _CEL_WORDS:
            yield Mistake(path, f"'{name}' means something else in expressions", "Take another name.", at_key=True)


def _named_things(playbook: Playbook) -> Iterator[Path]:
    yield from (("settings", name) for name in playbook.settings)
    yield from (("signals", name) for name in playbook.signals)
    yield from (("define", name) for name in playbook.define)
    for name, state in playbook.states.items():
        if not _has_bad_option(name, state):
            yield ("states", name)
        match state:
            case ReadState():
                yield from (("states", name, "pick", pick) for pick in state.pick)
            case AskState():
                yield from (("states", name, "choices", choice) for choice in state.choices)
            case RecommendState():
                yield from (("states", name, "options", option) for option in state.options)
            case WatchState():
                yield from (("states", name, "watch", part) for part in state.watch)
            case _:
                pass


def _has_bad_option(name: str, state: State) -> bool:
    """Whether the change's name is wrong only because that of its option is, which is reported there."""
    option = name.removeprefix(f"{state.option_of}_") if isinstance(state, ChangeState) and state.option_of else ""
    return bool(option) and not _NAME.fullmatch(option)


def _alerts(playbook: Playbook) -> Mistakes:
    for index, line in enumerate(playbook.opens_on):
        at: Path = ("opens_on", index)
        try:
            matchers = parse_matchers(line)
        except MatcherError as error:
            yield Mistake(at, error.what, error.hint, error.column)
            continue
        if all(matcher.matches({}) for matcher in matchers):
            yield Mistake(at, "this line opens on alerts of any name", 'Add a matcher such as alertname="MyAlert".')


def _duration(path: Path, text: str, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    if not text:
        return
    if text.startswith("settings."):
        name = text.removeprefix("settings.")
        yield from _known(path, name, playbook.settings, "setting")
        if name in settings:
            yield from _setting_as_duration(name, playbook.settings[name].default)
        return
    try:
        length = seconds(text)
    except ValueError:
        yield Mistake(path, f"'{text}' is not a duration", "Write 90s, 5m, 1h30m or settings.<name>.")
        return
    # `_long_enough` reports a `for` of zero.
    if length <= 0 and path[-1] != "for":
        yield Mistake(path, f"'{text}' is no time at all", "Write 90s, 5m, 1h30m or settings.<name>.")


def _setting_as_duration(name: str, default: float | str | bool) -> Mistakes:
    written = f"{default:g}" if isinstance(default, float) else str(default)
    if is_duration(written) or looks_like_duration(default):  # the latter is reported when settings are checked
        return
    hint = f"Write {written}s, {written}m or {written}h." if written.isdigit() else "Write 90s, 5m or 1h30m."
    yield Mistake(("settings", name, "default"), f"'{written}' is not a duration, and '{name}' is used as one", hint)


# --- signals ---------------------------------------------------------------------------------------------------------


def _signal(
    path: Path, signal: SignalSpec, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    if isinstance(signal, ComparedSignal):
        yield from _compared(path, signal, playbook, settings, probes)
        return
    if not isinstance(signal, ProbeSignal):
        yield from _duration((*path, "over"), signal.over, playbook, settings)
        yield from _ending((*path, "ending"), signal.ending, playbook)
    yield from _whose((*path, "of"), signal.of, playbook)
    match signal:
        case MetricSignal():
            yield from _taken(path, signal)
        case RatioSignal():
            for index, metric in enumerate(signal.ratio):
                yield from _metric((*path, "ratio", index), metric, "counter")
        case MeanSignal():
            yield from _metric((*path, "mean"), signal.mean, "histogram")
        case QuantileSignal():
            yield from _metric((*path, "histogram"), signal.histogram, "histogram")
            if not 0 < signal.quantile < 1:
                yield Mistake((*path, "quantile"), "a quantile lies between 0 and 1", "Write 0.99 for p99.")
        case ShareSignal():
            yield from _metric((*path, "histogram"), signal.histogram, "histogram")
            if isinstance(signal.share_above, str):
                yield from _target((*path, "share_above"), signal.share_above, playbook, settings)
        case ProbeSignal():
            yield from _probe(path, signal, playbook, settings, probes)
        case _:
            pass


def _probe(
    path: Path, signal: ProbeSignal, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    yield from _known((*path, "probe"), signal.probe, probes, "probe")
    if probe := probes.get(signal.probe):
        for name in sorted(signal.parameters.keys() - probe.parameters.keys()):
            hint = did_you_mean(name, probe.parameters) or "It takes none."
            yield Mistake((*path, "parameters", name), f"'{signal.probe}' has no parameter '{name}'", hint, at_key=True)
        for name, value in signal.parameters.items():
            at = (*path, "parameters", name)
            if name in probe.durations:
                yield from _duration(at, str(value), playbook, settings)
            elif isinstance(value, str) and value.startswith("settings."):
                setting = value.removeprefix("settings.")
                yield from _known(at, setting, playbook.settings, "setting")
                if name in probe.numbers and setting in settings and not is_number(settings[setting]):
                    yield Mistake(at, f"'{value}' is not a number", "Write a number, or a setting that is one.")
            elif name in probe.numbers and not _is("a number", value):
                yield Mistake(at, f"{as_written(value)} is not a number", "Write a number or settings.<name>.")


def _compared(
    path: Path, signal: ComparedSignal, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    yield from _duration((*path, "past"), signal.past, playbook, settings)
    yield from _ending((*path, "ending"), signal.ending, playbook)
    inner = list(_signal((*path, "compared"), signal.compared, playbook, settings, probes))
    yield from inner
    if not inner and (fault := comparison_fault(signal)):
        yield Mistake((*path, "compared"), fault, "Compare it otherwise, or something else.", at_key=True)


def _target(path: Path, text: str, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    """A number and a duration are written alike; a setting may be either."""
    setting = playbook.settings.get(text.removeprefix("settings."))
    if setting is not None and isinstance(setting.default, int | float) and not isinstance(setting.default, bool):
        return
    try:
        finite_number(text)
    except ValueError:
        yield from _duration(path, text, playbook, settings)


def _ending(path: Path, ending: str, playbook: Playbook) -> Mistakes:
    """A window may end at the start of the incident, or at an earlier reading."""
    if not ending:
        return
    read = {
        f"results.{name}.{signal}"
        for name, state in playbook.states.items()
        if not isinstance(state, ChangeState)
        for signal in signals_of(state, playbook.signals)
    }
    if ending not in read | {STARTS_AT}:
        hint = did_you_mean(ending, read | {STARTS_AT}) or f"Write {STARTS_AT} or results.<state>.<signal>."
        yield Mistake(path, f"no window can end at '{ending}'", hint)


def _taken(path: Path, signal: MetricSignal) -> Mistakes:
    if signal.metric not in METRICS:
        yield from _metric((*path, "metric"), signal.metric, "gauge")
    elif signal.take not in TAKES[shape := METRICS[signal.metric].shape]:
        at = (*path, "take") if "take" in signal.model_fields_set else (*path, "metric")
        yield Mistake(at, f"'{signal.metric}' is a {shape}: it has no {signal.take}", _TAKE_HINTS[shape])


_TAKE_HINTS = {
    "counter": "Take its rate, its steady rate or its increase.",
    "gauge": "Take its last, avg, p90 or max.",
    "histogram": "Use mean, or quantile with histogram.",
}


def _metric(path: Path, metric: str, shape: str) -> Mistakes:
    if metric not in METRICS:
        yield Mistake(path, f"unknown metric '{metric}'", did_you_mean(metric, METRICS) or _where_known("metric"))
    elif (found := METRICS[metric].shape) != shape:
        yield Mistake(path, f"'{metric}' is a {found}, and a {shape} is needed", _TAKE_HINTS[found])


def _whose(path: Path, of: str, playbook: Playbook) -> Mistakes:
    picks = {f"picked.{pick}" for s in playbook.states.values() if isinstance(s, ReadState) for pick in s.pick}
    if of not in {"target", "canary"} | picks:
        yield Mistake(path, f"'{of}' is nobody's replicas", did_you_mean(of, {"target", "canary"} | picks))


# --- states ----------------------------------------------------------------------------------------------------------


def _state(path: Path, state: State, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    for edge in edges_of(state):
        yield from _known((*path, *edge.path), edge.to, playbook.states, "state")
    yield from _nowhere(path, state)
    yield from _limit(path, state)
    yield from _flags_in_expressions(path, state)
    match state:
        case ReadState():
            yield from _reads((*path, "read"), state.read, playbook)
            yield from _ways_out(path, state)
        case RecommendState():
            yield from _reads((*path, "read"), state.read, playbook)
        case AskState():
            yield from _reads((*path, "read"), state.read, playbook)
            yield from _answers(path, state, playbook)
            yield from _duration((*path, "expires"), state.expires, playbook, settings)
        case ChangeState():
            yield from _duration((*path, "expires"), state.expires, playbook, settings)
            yield from _verb(path, state)
            changes = {
                other for other, each in playbook.states.items() if isinstance(each, ChangeState | RecommendState)
            }
            for index, other in enumerate(state.approved_with):
                yield from _known((*path, "approved_with", index), other, changes - {str(path[-1])}, "change")
            for index, group in enumerate(state.approvers):
                yield from _team((*path, "approvers", index), group)
        case WatchState():
            for key, text in (("for", state.for_), ("within", state.within), ("every", state.every)):
                yield from _duration((*path, key), text, playbook, settings)
            yield from _long_enough(path, state, settings)
        case DivertState():
            yield from _duration((*path, "expires"), state.expires, playbook, settings)
            yield from _divert(path, state, playbook.playbook)
        case EndState():
            yield from _nothing_read(path, state, playbook)


def _nowhere(path: Path, state: State) -> Mistakes:
    """Reports outcomes that must lead somewhere, and are an empty text."""
    ways: list[tuple[Path, str]] = []
    match state:
        case AskState():
            ways = [(("choices", key, "to"), choice.to) for key, choice in state.choices.items()]
        case ChangeState():
            ways = [(("done",), state.done)]
        case RecommendState():
            ways = [(("none_possible",), state.none_possible)]
        case WatchState():
            ways = [(("held",), state.held), *((("broke", i, "to"), broke.to) for i, broke in enumerate(state.broke))]
        case _:
            pass
    for way, to in ways:
        if not to:
            yield Mistake((*path, *way), f"'{way[-1]}' is empty", "Name the state that it leads to.")


def _nothing_read(path: Path, state: State, playbook: Playbook) -> Mistakes:
    """An end reads nothing, so its text can only use readings of earlier states."""
    for written in written_expressions(state):
        for name, column in names_in(written.source).items():
            if name.split(".")[0] in playbook.signals:
                hint = f"Name what an earlier state read: results.<state>.{name}."
                yield Mistake((*path, *written.path), f"an end does not read '{name}'", hint, written.offset + column)


def _limit(path: Path, state: State) -> Mistakes:
    if isinstance(state, EndState) or (state.at_most is None) == (not state.beyond):
        return
    if state.beyond:
        yield Mistake((*path, "beyond"), "'beyond' needs 'at_most'", "Write how often it may be entered.", at_key=True)
    else:
        yield Mistake((*path, "at_most"), "'at_most' needs 'beyond'", "Write where one more leads.", at_key=True)


_HAS_FLAG = re.compile(r"""has_flag\([^(),]*,\s*(['"])(?P<flag>[^'"]*)\1""")


def _flags_in_expressions(path: Path, state: State) -> Mistakes:
    for written in written_expressions(state):
        for found in _HAS_FLAG.finditer(written.source):
            flag, column = found["flag"], written.offset + found.start("flag") + 1
            if life_of_flag(flag) is None and newest_table().name_of(flag) is None:
                hint = did_you_mean(flag, newest_table().spellings)
                yield Mistake((*path, *written.path), f"unknown flag '{flag}'", hint, column)


def _reads(path: Path, read: tuple[str, ...], playbook: Playbook) -> Mistakes:
    for index, name in enumerate(read):
        yield from _known((*path, index), name, playbook.signals, "signal")


def _ways_out(path: Path, state: ReadState) -> Mistakes:
    last = len(state.go) - 1
    for index, go in enumerate(state.go):
        at: Path = (*path, "go", index)
        if go.otherwise and (go.when or go.to):
            yield Mistake(at, "'otherwise' stands alone", "Write {when: …, to: …} or {otherwise: …}.")
        elif not go.otherwise and not (go.when and go.to):
            yield Mistake(at, "a way out needs 'when' and 'to'", "Or {otherwise: …} as the last one.")
        elif go.otherwise and index < last:
            yield Mistake(at, "nothing after 'otherwise' is ever reached", "Put it last.")
    if not any(go.otherwise for go in state.go):
        yield Mistake((*path, "go"), "no way out when nothing holds", "End with {otherwise: …}.", at_key=True)


def _long_enough(path: Path, state: WatchState, settings: Mapping[str, object]) -> Mistakes:
    try:
        held, limit = (_seconds(text, settings) for text in (state.for_, state.within))
    except (ValueError, KeyError):  # reported where the duration is written
        return
    if held <= 0:
        yield Mistake((*path, "for"), "what holds for no time proves nothing", "Write at least 1s.")
    if held > limit:
        yield Mistake(
            (*path, "within"), f"'{state.within}' is shorter than 'for', so it can never hold", "Take a longer one."
        )


def _seconds(text: str, settings: Mapping[str, object]) -> float:
    return float(str(settings[text.removeprefix("settings.")])) if text.startswith("settings.") else seconds(text)


def _calm(playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    """`calm` is judged in any state, so it may name only what can be read anywhere, and the baseline."""
    if playbook.calm is None:
        return
    yield from _duration(("calm", "for"), playbook.calm.for_, playbook, settings)
    for key in ("when", "under_load"):
        for mention, column in names_in(getattr(playbook.calm, key)).items():
            head = mention.split(".")[0]
            signal = playbook.signals.get(head)
            if head in ("results", "answers", "forms", "picked") or (signal and signal.of != "target"):
                what = f"'{mention}' is known in some states only"
                yield Mistake(("calm", key), what, "Name signals of the target, settings or the baseline.", column)


def _findings(playbook: Playbook) -> Mistakes:
    """They are judged in any state, by the newest reading of each signal."""
    for written in findings_of(playbook):
        for mention, column in names_in(written.source).items():
            if mention.split(".")[0] in ("results", "answers", "forms", "picked"):
                what = f"'{mention}' is known in some states only"
                yield Mistake(written.path, what, "Name signals, settings or the baseline.", written.offset + column)


def _answers(path: Path, state: AskState, playbook: Playbook) -> Mistakes:
    kinds: dict[str, str] = {}
    for key, choice in state.choices.items():
        at: Path = (*path, "choices", key, "form")
        yield from _form(at, choice.form)
        for name, field in choice.form.items():
            if kinds.setdefault(name, field.kind) != field.kind:
                what = f"'{name}' is a {kinds[name]} in another choice"
                yield Mistake((*at, name), what, "Take another name.", at_key=True)
    if kinds and path[-1] == OPENING:
        yield Mistake(path, f"the form of '{OPENING}' is that of the playbook", "Take another name.", at_key=True)
    yield from _team((*path, "by"), state.by)
    if state.not_by:
        asks = {name for name, other in playbook.states.items() if isinstance(other, AskState)} - {str(path[-1])}
        asks.add(OPENING)
        yield from _known((*path, "not_by"), state.not_by, asks, "question")


def _form(path: Path, form: Form) -> Mistakes:
    if len(form) > MAX_FIELDS:
        yield Mistake(path, f"more than {MAX_FIELDS} fields", "Nobody fills that in.", at_key=True)
    for name, field in form.items():
        at: Path = (*path, name)
        if not _NAME.fullmatch(name):
            yield Mistake(at, f"'{name}' is no name", "Use small letters, digits and underscores.", at_key=True)
        if (field.kind == "choice") != bool(field.options):
            hint = "Write 'kind: choice' and 'options', or neither."
            yield Mistake(at, "'options' belong to a choice, and a choice needs them", hint, at_key=True)
        for key in ("min", "max", "unit") if not field.is_number else ():
            if key in field.model_fields_set:
                yield Mistake(
                    (*at, key), f"'{key}' is for a number", "Delete it, or write 'kind: number'.", at_key=True
                )
        if field.kind != "text" and "max_length" in field.model_fields_set:
            what = "'max_length' is for a text"
            yield Mistake((*at, "max_length"), what, "Delete it, or write 'kind: text'.", at_key=True)
        if field.min is not None and field.max is not None and field.min > field.max:
            yield Mistake((*at, "max"), "the most is less than the least", "Exchange them.")


def _team(path: Path, team: str) -> Mistakes:
    """A team that the settings cannot name would never be asked: the approvers would decide instead."""
    if team:
        yield from _known(path, team, TEAMS, "team")


def _divert(path: Path, state: DivertState, playbook: str) -> Mistakes:
    if state.divert == playbook:
        yield Mistake(
            (*path, "divert"), "a playbook does not divert to itself", "Name the next state where this one is."
        )
    if state.divert == PEOPLE:
        if state.to_group:
            yield from _known((*path, "to_group"), state.to_group, TEAMS, "team")
        if not state.taken:
            hint = "Write 'taken': the next state when somebody takes over."
            yield Mistake(path, "'taken' is missing", hint, at_key=True)
        if state.returns is not None:
            yield Mistake((*path, "returns"), "people do not return", "Write 'taken'.", at_key=True)
        return
    for key in sorted({"taken", "to_group", "expires", "expired", "parked"} & state.model_fields_set):
        hint = f"Write 'divert: people', or delete it where '{state.divert}' is meant."
        yield Mistake((*path, key), f"'{key}' is for a divert to people", hint, at_key=True)
    if state.returns == {}:
        yield Mistake((*path, "returns"), "'returns' is empty", "Leave it away where it never comes back.", at_key=True)
    for end in state.returns or ():
        if end not in (*ENDS, "otherwise"):
            what = f"no playbook ends with '{end}'"
            yield Mistake((*path, "returns", end), what, did_you_mean(end, (*ENDS, "otherwise")), at_key=True)


def _verb(path: Path, state: ChangeState) -> Mistakes:
    verb = VERBS.get(state.change)
    if verb is None:
        yield Mistake(
            (*path, "change"),
            f"unknown verb '{state.change}'",
            did_you_mean(state.change, VERBS) or _where_known("verb"),
        )
        return
    given = state.with_.keys()
    for argument in given - verb.takes:
        at = (*path, "with", argument)
        yield Mistake(at, f"{state.change} takes no '{argument}'", did_you_mean(argument, verb.takes), at_key=True)
    for argument in sorted(verb.required - given):
        hint = f"Write 'with: {{{argument}: …}}'."
        yield Mistake((*path, "change"), f"{state.change} needs '{argument}' in 'with'", hint)
    if verb.one_of and len(verb.one_of & given) != 1:
        hint = f"Write 'with: {{{min(verb.one_of)}: …}}'."
        what = f"{state.change} needs one of {', '.join(sorted(verb.one_of))} in 'with'"
        yield Mistake((*path, "change"), what, hint)
    for argument, value in state.with_.items():
        if isinstance(value, str) and _NAMES_SOMETHING.fullmatch(value):
            at = (*path, "with", argument)
            yield Mistake(at, f"'{value}' would be taken as it stands", f"Write '${{{value}}}' for what it names.")
        elif takes := verb.argument(argument):
            yield from _argument((*path, "with", argument), takes, value)
    if "edits" in given & verb.takes:
        yield from _edits((*path, "with", "edits"), state.with_["edits"])
    yield from _mitigations(path, state)


def _argument(path: Path, takes: Argument, value: Any) -> Mistakes:
    """A value that would be refused only in the incident; what `${…}` gives is not known before."""
    if isinstance(value, str) and "${" in value:
        return
    if takes.known and value not in takes.known:
        yield Mistake(path, f"{as_written(value)} is not possible here", did_you_mean(str(value), takes.known))
    if takes.kind == "anything":
        return
    if not _is(takes.kind, value):
        hint = f"Write {takes.kind}, or '${{…}}' around an expression that gives one."
        yield Mistake(path, f"{as_written(value)} is not {takes.kind}", hint)
    elif takes.least is not None and value < takes.least:
        yield Mistake(path, f"{as_written(value)} is not possible here", f"Write at least {takes.least:g}.")


def _is(kind: ArgumentKind, value: Any) -> bool:
    if kind == "true or false":
        return isinstance(value, bool)
    return is_number(value) and (kind == "a number" or float(value).is_integer())


def _edits(path: Path, edits: Any) -> Mistakes:
    if not isinstance(edits, list) or not edits:
        yield Mistake(path, "'edits' is a list", "Write [{flag: --name, value: …}].")
        return
    for index, edit in enumerate(edits):
        at: Path = (*path, index)
        keys = frozenset(edit) - {"when"} if isinstance(edit, dict) else frozenset()
        of_flag = keys - {"direction"} in ({"flag", "value"}, {"first_of", "value"})
        if not of_flag and keys not in ({"env", "value"}, {"image"}):
            hint = "Write {flag: --name, value: …}, {env: NAME, value: …} or {image: …}."
            yield Mistake(at, "this is no edit", hint)
            continue
        if not isinstance(edit.get("when", ""), str):
            yield Mistake((*at, "when"), "'when' is no expression", "Put it in quotes.")
        if "first_of" in edit and not (isinstance(edit["first_of"], list) and edit["first_of"]):
            yield Mistake((*at, "first_of"), "'first_of' is a list of flags", "Write [--new, --old].")
        for key, flag in _flags_of(edit):
            # A flag may belong to some engine versions only.
            if life_of_flag(flag) is None and newest_table().name_of(flag) is None:
                yield Mistake((*at, *key), f"unknown flag '{flag}'", did_you_mean(flag, newest_table().spellings))
            elif _is_literal(value := edit.get("value")) and (wrong := fault_of_value(flag, value)):
                yield Mistake((*at, "value"), wrong, "Write a value that the engine takes, or '${…}' that gives one.")


def _is_literal(value: object) -> bool:
    """Whether the value is known before the playbook runs. None takes the flag away."""
    return (isinstance(value, str) and "${" not in value) or isinstance(value, bool | int | float)


def _flags_of(edit: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    """Yields the flags of an edit, each with its path; none for a variable or an image."""
    if "flag" in edit:
        yield ("flag",), str(edit["flag"])
    listed = edit.get("first_of", ())
    yield from (((("first_of", i), str(flag))) for i, flag in enumerate(listed if isinstance(listed, list) else ()))


def _mitigations(path: Path, state: ChangeState) -> Mistakes:
    """Each flag of the mitigation table needs a diagnosis, and no written direction may make that worse."""
    edits = state.with_.get("edits")
    listed = enumerate(edits) if isinstance(edits, list) else ()
    found = [
        (index, {**edit, "flag": flag})
        for index, edit in listed
        if isinstance(edit, dict)
        for _, flag in _flags_of(edit)
    ]
    if state.against and "edits" not in VERBS[state.change].takes:
        yield Mistake((*path, "against"), "'against' is for edits of flags", "Delete it.", at_key=True)
    elif state.against and found:
        yield from _known((*path, "against"), state.against, mitigations().diagnoses, "diagnosis")
    for index, edit in found:
        yield from _mitigation((*path, "with", "edits", index), edit, state.against)


def _mitigation(path: Path, edit: Mapping[str, Any], against: str) -> Mistakes:
    flag, way = newest_table().name_of(str(edit["flag"])) or str(edit["flag"]), edit.get("direction")
    if way is not None and way not in DIRECTIONS:
        yield Mistake((*path, "direction"), f"'{way}' is no direction", did_you_mean(str(way), DIRECTIONS))
    if not against and flag in mitigations().mitigations:
        hint = f"Write 'against' beside 'change', one of: {', '.join(sorted(mitigations().mitigations[flag]))}."
        yield Mistake((*path, "flag"), f"{flag} helps against one thing and harms another", hint)
    effect = effect_of(flag, against, str(way)) if way is not None else None
    if effect is not None and effect.effect == "harms":
        yield Mistake(
            (*path, "direction"),
            f"to {way} {flag} makes '{against}' worse: {effect.why}",
            "Turn it the other way, or take another mitigation.",
        )
