"""Checks the paths of a playbook: what comes before what, what reaches an end, what could go on forever."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from bot.domain.changes.catalogue import RESULTS, VERBS
from bot.domain.kernel.form import OPENING
from bot.domain.kernel.references import setting_in
from bot.domain.playbooks.edges import Edge, edges_of
from bot.domain.playbooks.expressions.expression import names_in
from bot.domain.playbooks.language import (
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
from bot.domain.playbooks.mistakes import Mistake, Path
from bot.domain.playbooks.scope import LEARNED, findings_of, signals_of, signals_of_calm, written_expressions
from bot.domain.signals.specs import STARTS_AT, ComparedSignal, ProbeSignal, ShareSignal

Graph = Mapping[str, frozenset[str]]
Mistakes = Iterator[Mistake]
NOTHING_OPENS = "no alert opens this playbook"


def check_paths(playbook: Playbook) -> Mistakes:
    graph = {name: frozenset(edge.to for edge in edges_of(state)) for name, state in playbook.states.items()}
    reached = reachable(graph, [playbook.start])
    for name in graph.keys() - reached:
        yield Mistake(("states", name), f"nothing leads to '{name}'", "Name it as an exit, or delete it.", at_key=True)
    backwards = _reversed(graph)
    ends = [name for name, state in playbook.states.items() if isinstance(state, EndState) or _never_returns(state)]
    for name in reached - reachable(backwards, ends):
        yield Mistake(
            ("states", name),
            f"no way from '{name}' reaches an end",
            "Lead one of them to a state with 'end'.",
            at_key=True,
        )
    yield from _loops(playbook)
    makes = {name: _made_by(playbook, name) for name in playbook.states}
    before = reachable_from_each(backwards)
    for name in reached:
        earlier = before[name] | {name}
        yield from _before(playbook, name, {f"forms.{OPENING}"}.union(*(makes[each] for each in earlier)))
    yield from _windows(playbook, {name: before[name] for name in reached})


def reachable(graph: Graph, starts: Iterable[str]) -> frozenset[str]:
    seen: set[str] = set()
    todo = list(starts)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(graph[name])
    return frozenset(seen)


def reachable_from_each(graph: Graph) -> dict[str, frozenset[str]]:
    """Returns for each state what one or more steps from it reach.

    A playbook has hundreds of states, so a set is the bits of a number: ten times faster than a walk from each.
    """
    bits = {name: 1 << number for number, name in enumerate(graph)}
    reached = {name: sum(bits[to] for to in successors) for name, successors in graph.items()}
    grows = True
    while grows:
        grows = False
        for name, successors in graph.items():
            more = reached[name]
            for to in successors:
                more |= reached[to]
            grows |= more != reached[name]
            reached[name] = more
    return {name: frozenset(each for each in bits if bits[each] & mask) for name, mask in reached.items()}


def _reversed(graph: Graph) -> dict[str, frozenset[str]]:
    return {name: frozenset(source for source, to in graph.items() if name in to) for name in graph}


# --- loops -----------------------------------------------------------------------------------------------------------


def _loops(playbook: Playbook) -> Mistakes:
    """Every loop needs a person's answer or a limit: nothing goes round forever by itself."""
    states = playbook.states
    beyond = {name: _beyond(state) if _is_limited(state) else frozenset() for name, state in states.items()}
    circles = _on_a_circle(beyond)
    for name in states:
        if name in circles:
            loop = _shortest_loop(beyond, name)
            yield Mistake(("states", name, "beyond"), f"'beyond' goes round in a circle: {loop}", "Lead out of it.")
    # A state with a limit of entries ends every loop through it; only its `beyond` exit may be taken forever.
    by_itself = {
        name: beyond[name] if _is_limited(state) else _successors(edges_of(state)) for name, state in states.items()
    }
    reading = {
        name: to if _only_reads(states[name]) or _is_limited(states[name]) else frozenset()
        for name, to in by_itself.items()
    }
    by_itself_reaches = reachable_from_each(by_itself)
    round_again = {name for name in states if name in by_itself_reaches[name]}
    changing = {name for name in round_again if isinstance(states[name], ChangeState)}
    waiting = {name for name in round_again - circles if not _only_reads(states[name])}
    reading_again = _on_a_circle(reading)
    for name in states:
        if name in changing:
            what, hint, graph = "a loop changes the cluster without asking", _PUT_ASK, by_itself
        elif name in reading_again and _only_reads(states[name]):
            what, hint, graph = "a loop only reads and never waits", _PUT_LIMIT, reading
        elif name in waiting and not changing & by_itself_reaches[name]:
            what, hint, graph = "a loop goes on forever if nobody answers", _PUT_LIMIT, by_itself
        else:
            continue
        yield Mistake(("states", name), f"{what}: {_shortest_loop(graph, name)}", hint, at_key=True)


def _on_a_circle(graph: Graph) -> set[str]:
    return {name for name, reached in reachable_from_each(graph).items() if name in reached}


def _only_reads(state: State) -> bool:
    return isinstance(state, ReadState | RecommendState)


_PUT_ASK = "Put a question into it, or an at_most."
_PUT_LIMIT = "Put an at_most into it, or a question that does not expire."


def _never_returns(state: State) -> bool:
    return isinstance(state, DivertState) and state.divert != PEOPLE and not state.returns


def _is_limited(state: State) -> bool:
    return not isinstance(state, EndState) and state.at_most is not None


def _beyond(state: State) -> frozenset[str]:
    return frozenset(edge.to for edge in edges_of(state) if edge.outcome == "beyond")


def _successors(edges: Iterable[Edge]) -> frozenset[str]:
    """Returns where a state leads unattended without limit: a run returns from a divert only so many times."""
    return frozenset(e.to for e in edges if not e.by_person and not e.outcome.startswith("returned:"))


def _shortest_loop(graph: Graph, start: str) -> str:
    paths = [[start]]
    seen: set[str] = set()
    for path in paths:  # grows while it is walked: breadth first
        for to in sorted(graph[path[-1]]):
            if to == start:
                return " → ".join([*path, start])
            if to not in seen:
                seen.add(to)
                paths.append([*path, to])
    return start


# --- what comes before -----------------------------------------------------------------------------------------------


def _before(playbook: Playbook, name: str, made: Collection[str]) -> Mistakes:
    """Reports names whose value no path to this state has produced."""
    state = playbook.states[name]
    for written in written_expressions(state):
        for mention, column in names_in(written.source).items():
            word = _maker(mention)
            if word and word not in made:
                path: Path = ("states", name, *written.path)
                yield Mistake(path, f"nothing before '{name}' makes '{word}'", column=written.offset + column)
    if isinstance(state, AskState) and state.not_by and state.not_by != OPENING:
        asked = {f"answers.{earlier}" for earlier in playbook.states}
        if f"answers.{state.not_by}" in asked and f"answers.{state.not_by}" not in made:
            yield Mistake(("states", name, "not_by"), f"nothing before '{name}' asks '{state.not_by}'")
    for index, signal in enumerate(signals_of(state, playbook.signals)):
        of = playbook.signals[signal].of
        if of.startswith("picked.") and of not in made:
            yield _unread(playbook, name, index, f"'{signal}' is of '{of}', which nothing before '{name}' picks")


def _windows(playbook: Playbook, before: Graph) -> Mistakes:
    """Reports signals whose window ends at a reading that cannot come before theirs."""
    endings = {name: s.ending for name, s in playbook.signals.items() if not isinstance(s, ProbeSignal)}
    ends_at = {name: ending.split(".")[1:3] for name, ending in endings.items() if ending.startswith("results.")}
    circles = _on_a_circle({name: frozenset({signal} & ends_at.keys()) for name, (_, signal) in ends_at.items()})
    for name in circles:
        hint = f"Write {STARTS_AT}, or a reading that comes first."
        yield Mistake(("signals", name, "ending"), f"this window ends at a reading that needs '{name}' first", hint)
    for name, earlier in before.items():
        for index, signal in enumerate(signals_of(playbook.states[name], playbook.signals)):
            if signal in ends_at.keys() - circles and ends_at[signal][0] not in earlier:
                what = f"the window of '{signal}' ends at '{endings[signal]}', which nothing before '{name}' reads"
                yield _unread(playbook, name, index, what)


def _unread(playbook: Playbook, name: str, index: int, what: str) -> Mistake:
    """`index`: which of the signals of this state can never be read there."""
    state = playbook.states[name]
    listed = isinstance(state, ReadState | AskState | RecommendState) and index < len(state.read)
    where: Path = ("states", name, "read", index) if listed else ("states", name)
    return Mistake(where, what, at_key=not listed)


def _maker(mention: str) -> str:
    """Returns `picked.x`, `answers.s`, `forms.s`, `results.s`, `baseline.x` from a mention; empty for all else."""
    parts = mention.split(".")
    is_made = parts[0] in LEARNED | {"baseline"} and len(parts) > 1
    return ".".join(parts[:2]) if is_made else ""


def _made_by(playbook: Playbook, name: str) -> set[str]:
    """Returns what a state produces for later ones to name."""
    state = playbook.states[name]
    made: set[str] = set()
    if not isinstance(state, ChangeState) or state.change in RESULTS:
        made.add(f"results.{name}")
    if isinstance(state, AskState):
        made.update({f"answers.{name}", f"forms.{name}"})
    if isinstance(state, ReadState):
        made.update(f"picked.{pick}" for pick in state.pick)
        if state.baseline:
            made.update(f"baseline.{signal}" for signal in signals_of(state, playbook.signals))
    return made


# --- advice ----------------------------------------------------------------------------------------------------------


def lint(playbook: Playbook, unused: Iterable[str] = ()) -> Mistakes:
    """Warns about what may run but is probably not intended; `unused` are definitions that nothing mentions."""
    for name in unused:
        yield Mistake(("define", name), f"nothing uses the definition '{name}'", "Delete it, or name it.", at_key=True)
    for name, state in playbook.states.items():
        if not isinstance(state, ChangeState):
            continue
        path: Path = ("states", name)
        if state.risk == "high" and not state.failed:
            yield Mistake(
                path, "a high-risk change does not say what follows when it fails", "Write 'failed'.", at_key=True
            )
        if not state.still and not VERBS[state.change].restores:
            hint = "Write 'still': the reason, read again before the call."
            yield Mistake(path, "a change without a reason that must still hold", hint, at_key=True)
    if not playbook.opens_on and playbook.opens is None:
        place = "opens_on" if "opens_on" in playbook.model_fields_set else "playbook"
        yield Mistake((place,), NOTHING_OPENS, "Write 'opens_on', or 'opens: by_hand'.")
    yield from _unverified(playbook)
    yield from _good_unread(playbook)
    yield from _unused(playbook)


CLAIMS = frozenset({"fixed", "self_cleared"})
"""Ends that claim recovery; the others claim only a handover, or that nothing is proven."""


def _unverified(playbook: Playbook) -> Mistakes:
    """Warns about changes after which the run reaches a good end unattended, without a watch to verify them."""
    states = playbook.states
    by_itself = {
        name: _successors(edges_of(state)) if isinstance(state, ReadState | ChangeState) else frozenset[str]()
        for name, state in states.items()
    }
    for name, state in states.items():
        if not isinstance(state, ChangeState) or VERBS[state.change].restores:
            continue
        reached = sorted(reachable(by_itself, [state.done]))
        ends = [end for end in reached if isinstance(it := states[end], EndState) and it.end in CLAIMS]
        if ends:
            what = f"after this change the run comes to '{ends[0]}' without a watch"
            yield Mistake(("states", name, "done"), what, "Watch whether it helped.")


def _good_unread(playbook: Playbook) -> Mistakes:
    """Warns about what cannot be read and yet leads to a good end, with only reads before it."""
    states = playbook.states
    reads = {name: state for name, state in states.items() if isinstance(state, ReadState)}
    before = {name: _successors(edges_of(reads[name])) if name in reads else frozenset[str]() for name in states}
    unread = {name: frozenset({reads[name].unknown} & states.keys() if name in reads else ()) for name in states}
    for name in sorted(reachable(before, [playbook.start]) & reads.keys()):
        # What an end does before it comes after the verdict.
        ends = [end for end in sorted(reachable(unread, unread[name])) if not _is_before(name, end)]
        good = [end for end in ends if isinstance(it := states[end], EndState) and it.end in CLAIMS]
        if good:
            what = f"what cannot be read ends as '{good[0]}', although nobody looked at it"
            yield Mistake(("states", name, "unknown"), what, "Lead it to a question, or to another end.", at_key=True)


def _is_before(name: str, end: str) -> bool:
    """Whether the state is of the fragment that an end names as its `before`."""
    return end.endswith("_end") and name.startswith(end.removesuffix("end"))


def _unused(playbook: Playbook) -> Mistakes:
    read = {signal for state in playbook.states.values() for signal in signals_of(state, playbook.signals)}
    read |= set(signals_of_calm(playbook))
    for name in playbook.signals.keys() - read:
        yield Mistake(("signals", name), f"no state reads '{name}'", at_key=True)
    mentions = {
        mention
        for state in playbook.states.values()
        for w in written_expressions(state)
        for mention in names_in(w.source)
    }
    if playbook.calm is not None:
        mentions |= {*names_in(playbook.calm.when), *names_in(playbook.calm.under_load)}
    mentions |= {mention for written in findings_of(playbook) for mention in names_in(written.source)}
    used = {setting_in(word) for word in mentions | set(_values(playbook))}
    for name in playbook.settings.keys() - used:
        yield Mistake(("settings", name), f"nothing uses the setting '{name}'", at_key=True)


def _values(playbook: Playbook) -> Iterator[str]:
    """Yields what may be the name of a setting where no expression is: durations, targets and parameters."""
    if playbook.calm is not None:
        yield playbook.calm.for_
    yield from (str(signal.share_above) for signal in playbook.signals.values() if isinstance(signal, ShareSignal))
    for signal in playbook.signals.values():
        if isinstance(signal, ProbeSignal):
            yield from (value for value in signal.parameters.values() if isinstance(value, str))
        else:
            yield signal.over
        if isinstance(signal, ComparedSignal):
            yield signal.past
    for state in playbook.states.values():
        if isinstance(state, WatchState):
            yield from (state.for_, state.within, state.every, *(broke.for_ for broke in state.broke))
        elif not isinstance(state, ReadState | RecommendState | ReturnState | EndState):
            yield state.expires
