"""Checks names and values one by one: whether each is known and allowed in its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from bot.domain.approvals.contacts import TEAMS
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.form import OPENING, Form
from bot.domain.kernel.references import setting_in
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
    ReturnState,
    State,
    WatchState,
)
from bot.domain.playbooks.loading.check_changes import check_change, unknown_flag
from bot.domain.playbooks.loading.check_signals import check_signal
from bot.domain.playbooks.loading.known_words import Mistakes, duration, known
from bot.domain.playbooks.matchers import MatcherError, parse_matchers
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.scope import LEARNED, RESERVED, Written, findings_of, written_expressions
from bot.domain.signals.probe_spec import Probes

_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_PLAYBOOK_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
# Words reserved by CEL: a signal of such a name could not be written in an expression.
_CEL_WORDS = frozenset(
    """as break const continue else false for function if import in let loop namespace null package return true var void
    while""".split()  # noqa: SIM905 - a line of words reads better than 21 quoted ones
)

MAX_FIELDS = 20


def check_names(playbook: Playbook, settings: Mapping[str, object], probes: Probes) -> Mistakes:
    yield from _spelling(playbook)
    yield from _alerts(playbook)
    yield from _form(("form",), playbook.form)
    yield from known(("start",), playbook.start, playbook.states, "state")
    yield from _calm(playbook, settings)
    yield from _findings(playbook)
    for name, signal in playbook.signals.items():
        yield from check_signal(("signals", name), signal, playbook, settings, probes)
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


# --- words -----------------------------------------------------------------------------------------------------------


def _spelling(playbook: Playbook) -> Mistakes:
    if not _PLAYBOOK_NAME.fullmatch(playbook.playbook) and playbook.playbook != "?":
        yield Mistake(
            ("playbook",), f"'{playbook.playbook}' is not a valid name", "Use small letters, digits and hyphens."
        )
    for path in _named_things(playbook):
        name = str(path[-1])
        if not _NAME.fullmatch(name):
            yield Mistake(
                path, f"'{name}' is not a valid name", "Use small letters, digits and underscores.", at_key=True
            )
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


# --- states ----------------------------------------------------------------------------------------------------------


def _state(path: Path, state: State, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    for edge in edges_of(state):
        yield from known((*path, *edge.path), edge.to, playbook.states, "state")
    yield from _nowhere(path, state)
    yield from _limit(path, state)
    yield from _flags_in_expressions(path, state)
    match state:
        case ReadState():
            yield from _reads((*path, "read"), state.read, playbook)
            yield from _exits(path, state)
        case RecommendState():
            yield from _reads((*path, "read"), state.read, playbook)
        case AskState():
            yield from _reads((*path, "read"), state.read, playbook)
            yield from _answers(path, state, playbook)
            yield from duration((*path, "expires"), state.expires, playbook, settings)
        case ChangeState():
            yield from duration((*path, "expires"), state.expires, playbook, settings)
            yield from check_change(path, state)
            changes = {
                other for other, each in playbook.states.items() if isinstance(each, ChangeState | RecommendState)
            }
            for index, other in enumerate(state.approved_with):
                yield from known((*path, "approved_with", index), other, changes - {str(path[-1])}, "change")
            for index, group in enumerate(state.approvers):
                yield from _team((*path, "approvers", index), group)
        case WatchState():
            yield from _watch(path, state, playbook, settings)
        case DivertState():
            yield from duration((*path, "expires"), state.expires, playbook, settings)
            yield from _divert(path, state, playbook.playbook)
        case ReturnState() | EndState():
            yield from _nothing_read(path, state, playbook)


def _nowhere(path: Path, state: State) -> Mistakes:
    """Reports outcomes that must lead somewhere, and are an empty text."""
    exits: list[tuple[Path, str]] = []
    match state:
        case AskState():
            exits = [(("choices", key, "to"), choice.to) for key, choice in state.choices.items()]
        case ChangeState():
            exits = [(("done",), state.done)]
        case RecommendState():
            exits = [(("none_possible",), state.none_possible)]
        case WatchState():
            exits = [(("held",), state.held), *((("broke", i, "to"), broke.to) for i, broke in enumerate(state.broke))]
        case ReturnState():
            exits = [(("later",), state.later)]
        case _:
            pass
    for key, to in exits:
        if not to:
            yield Mistake((*path, *key), f"'{key[-1]}' is empty", "Name the state that it leads to.")


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
            column = written.offset + found.start("flag") + 1
            if mistake := unknown_flag((*path, *written.path), found["flag"], column):
                yield mistake


def _reads(path: Path, read: tuple[str, ...], playbook: Playbook) -> Mistakes:
    for index, name in enumerate(read):
        yield from known((*path, index), name, playbook.signals, "signal")


def _exits(path: Path, state: ReadState) -> Mistakes:
    last = len(state.go) - 1
    for index, go in enumerate(state.go):
        at: Path = (*path, "go", index)
        if go.otherwise and (go.when or go.to):
            yield Mistake(at, "'otherwise' stands alone", "Write {when: …, to: …} or {otherwise: …}.")
        elif not go.otherwise and not (go.when and go.to):
            yield Mistake(at, "an exit needs 'when' and 'to'", "Or {otherwise: …} as the last one.")
        elif go.otherwise and index < last:
            yield Mistake(at, "nothing after 'otherwise' is ever reached", "Put it last.")
    if not any(go.otherwise for go in state.go):
        yield Mistake((*path, "go"), "no exit when nothing holds", "End with {otherwise: …}.", at_key=True)


def _watch(path: Path, state: WatchState, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    for key, text in (("for", state.for_), ("within", state.within), ("every", state.every)):
        yield from duration((*path, key), text, playbook, settings)
    for index, broke in enumerate(state.broke):
        yield from duration((*path, "broke", index, "for"), broke.for_, playbook, settings)
    limit = _seconds(state.within, settings)
    held = _seconds(state.for_, settings)
    if held is not None and held <= 0:
        yield Mistake((*path, "for"), "what holds for no time proves nothing", "Write at least 1s.")
    if held is not None and limit is not None and held > limit:
        yield Mistake(
            (*path, "within"), f"'{state.within}' is shorter than 'for', so it can never hold", "Take a longer one."
        )
    for index, broke in enumerate(state.broke):
        if broke.for_ and _seconds(broke.for_, settings) == 0:
            at: Path = (*path, "broke", index, "for")
            yield Mistake(at, "what is true for no time ends it at once", "Leave out 'for', or write at least 1s.")


def check_breaks(playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    """Reports what could never end a watch early as written. With an operator's shorter `within` it may be so."""
    for name, state in playbook.states.items():
        if not isinstance(state, WatchState) or (limit := _seconds(state.within, settings)) is None:
            continue
        for index, broke in enumerate(state.broke):
            true_for = _seconds(broke.for_, settings) if broke.for_ else None
            if true_for is not None and true_for >= limit:
                what = f"'{broke.for_}' is not shorter than 'within', so it never ends the watch early"
                yield Mistake(("states", name, "broke", index, "for"), what, "Take a shorter one.")


def _seconds(text: str, settings: Mapping[str, object]) -> float | None:
    """None for what is no duration, which is reported where it is written."""
    name = setting_in(text)
    try:
        return seconds(text) if name is None else float(str(settings[name]))
    except (ValueError, KeyError):
        return None


def _calm(playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    """`calm` is judged in any state, so it may name only what can be read anywhere, and the baseline."""
    if playbook.calm is None:
        return
    yield from duration(("calm", "for"), playbook.calm.for_, playbook, settings)
    for key in ("when", "under_load"):
        for mention, column in names_in(getattr(playbook.calm, key)).items():
            head = mention.split(".")[0]
            signal = playbook.signals.get(head)
            if head in LEARNED or (signal and signal.of != "target"):
                what = f"'{mention}' is known in some states only"
                yield Mistake(("calm", key), what, "Name signals of the target, settings or the baseline.", column)


def _findings(playbook: Playbook) -> Mistakes:
    """They are judged in any state, by the newest reading of each signal."""
    for written in findings_of(playbook):
        for mention, column in names_in(written.source).items():
            if mention.split(".")[0] in LEARNED:
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
        yield from known((*path, "not_by"), state.not_by, asks, "question")


def _form(path: Path, form: Form) -> Mistakes:
    if len(form) > MAX_FIELDS:
        yield Mistake(path, f"more than {MAX_FIELDS} fields", "Nobody fills that in.", at_key=True)
    for name, field in form.items():
        at: Path = (*path, name)
        if not _NAME.fullmatch(name):
            yield Mistake(
                at, f"'{name}' is not a valid name", "Use small letters, digits and underscores.", at_key=True
            )
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
        yield from known(path, team, TEAMS, "team")


def _divert(path: Path, state: DivertState, playbook: str) -> Mistakes:
    if state.divert == playbook:
        yield Mistake(
            (*path, "divert"), "a playbook does not divert to itself", "Name the next state where this one is."
        )
    if state.divert == PEOPLE:
        if state.to_group:
            yield from known((*path, "to_group"), state.to_group, TEAMS, "team")
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
