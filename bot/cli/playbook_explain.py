"""`incident-bot playbook check --explain`: where every outcome of every state leads, written or not.

An outcome without a written exit is not an error: the machine asks people what next (`entering.go`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from bot.domain.changes.catalogue import VERBS
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.covering import covered_by
from bot.domain.playbooks.edges import CHANGE_OUTCOMES
from bot.domain.playbooks.language import (
    ENDS,
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
    kind_of,
)

WIDTH = 120
PARKED = "parked, it can still be answered"
ASKED = "people are asked what next"
OTHERWISE = "otherwise"
UNCOVERED = "its risk is higher, it has a warning or its edits differ"

OUTCOMES = {
    "done": "",
    "not_needed": "it is so already, or its reason no longer holds",
    "refused": "an approver refuses it",
    "expired": "nobody approves it in time",
    "impossible": "the bot cannot do it here",
    "failed": "it was begun and failed",
    "unclear": "nobody knows whether the call arrived",
}


def explained(compiled: CompiledPlaybook) -> Iterator[str]:
    """Yields a paragraph for each state, one line per exit, each at most `WIDTH` characters."""
    playbook = compiled.playbook
    yield _shortened(f"# {playbook.playbook}: {playbook.title}")
    for name, state in playbook.states.items():
        verb = f" {state.change}" if isinstance(state, ChangeState) else ""
        yield ""
        title = f" — {state.title}" if state.title else ""
        yield _shortened(f"{name}: {kind_of(state)}{verb}{title}")
        yield from (f"  {line}" for line in _exits(playbook, name, state))


def _exits(playbook: Playbook, name: str, state: State) -> Iterator[str]:
    yield from _limit(state)
    match state:
        case ReadState():
            yield from _of_read(state)
        case RecommendState():
            yield from _of_recommend(state)
        case AskState():
            for key, choice in state.choices.items():
                yield _exit(f"button {key}", choice.label, choice.to)
            yield from _expiry("nobody answers", state.expires, state.expired)
            yield from _parked(state.parked)
        case ChangeState():
            yield from _of_change(playbook, name, state)
        case WatchState():
            yield from _of_watch(state)
            yield from _parked(state.parked)
        case DivertState(divert="people"):
            yield _exit("taken", f"somebody takes it over{_group(state)}", state.taken)
            yield from _expiry("nobody takes it over", state.expires, state.expired)
            yield from _parked(state.parked)
        case DivertState():
            yield from _of_divert(state)
        case ReturnState():
            yield from _of_return(state)
        case EndState():
            yield f"ends the incident as '{state.end}', or goes back to the playbook that diverted here"
            if any(isinstance(other, ChangeState) for other in playbook.states.values()):
                yield "a canary, a cordon, an isolated replica or half a rollout is left → people decide first"
        case _:
            assert_never(state)


def _limit(state: State) -> Iterator[str]:
    if not isinstance(state, EndState) and state.at_most is not None:
        yield _exit(f"entered more than {_times(state.at_most)}", "", state.beyond)


def _of_read(state: ReadState) -> Iterator[str]:
    for number, go in enumerate(state.go, start=1):
        yield _exit(f"{number}. {'when' if go.when else OTHERWISE}", go.when, go.destination)
    yield _exit("unknown", "a value that decides cannot be read", state.unknown)


def _of_recommend(state: RecommendState) -> Iterator[str]:
    for number, (key, option) in enumerate(state.options.items(), start=1):
        if not option.is_change:
            yield _exit(f"button {key}", f"never recommended: {option.label}", option.to)
            continue
        once = "" if option.repeat else ", not tried before"
        yield _exit(f"{number}. {key}", f"{option.possible or 'always possible'}{once}", option.to)
    yield _exit("none_possible", "each option is impossible, not known to be possible, or tried", state.none_possible)


def _of_change(playbook: Playbook, name: str, state: ChangeState) -> Iterator[str]:
    yield from _approval(playbook, name, state)
    for outcome in CHANGE_OUTCOMES:
        within = f", {state.expires}" if outcome == "expired" and state.expires else ""
        yield _exit(outcome, f"{OUTCOMES[outcome]}{within}", getattr(state, outcome))
    yield _exit("not begun", "a value or the cluster cannot be read, a guard of the bot stops it", "")
    recommended = playbook.states.get(state.option_of)
    for key, to in state.alternatives.items():
        label = recommended.options[key].label if isinstance(recommended, RecommendState) else ""
        yield _exit(f"button {key}", f"another option of '{state.option_of}': {label}", to)


def _approval(playbook: Playbook, name: str, state: ChangeState) -> Iterator[str]:
    if VERBS[state.change].cleans_up:
        yield "announced, not approved: it only cleans up; approved if it has a warning or the settings ask for it"
    elif state.change == "undo":
        yield "announced, not approved, if it only takes back the bot's own canary, isolation or autoscaler floor"
    for other in state.approved_with:
        which = "an option of " if isinstance(playbook.states.get(other), RecommendState) else ""
        yield _shortened(f"approved with {which}'{other}', unless {UNCOVERED}")
    if later := [f"'{each}'" for each in covered_by(playbook, name)]:
        yield _shortened(f"its approval also covers, for the same edits or replica: {', '.join(later)}")


def _of_watch(state: WatchState) -> Iterator[str]:
    yield _exit("held", f"for {state.for_}: {', '.join(state.watch)}", state.held)
    yield _exit("not_held", f"not within {state.within}", state.not_held)
    yield _exit("unknown", f"a value still cannot be read after {state.within}", state.unknown)
    if state.enough:
        yield f"as soon as two samples in a row agree and {state.enough}: 'held' or 'not_held'"
    for number, broke in enumerate(state.broke, start=1):
        when = f"once true for {broke.for_}" if broke.for_ else "at once when"
        yield _exit(f"broke {number}, {when}", broke.when, broke.to)
    if not (state.broke or state.enough):
        yield f"no 'broke': nothing ends it early, so it lasts up to {state.within}"


def _of_divert(state: DivertState) -> Iterator[str]:
    if state.returns is None:
        yield f"goes on in '{state.divert}' and does not come back"
    else:
        for end, to in state.returns.items():
            how = "otherwise" if end == OTHERWISE else f"as '{end}'"
            yield _exit(f"'{state.divert}' ends {how}", "", to)
        if OTHERWISE not in state.returns and set(ENDS) - state.returns.keys():
            yield _exit(f"'{state.divert}' ends otherwise", "", "")
    yield _exit(f"no divert to '{state.divert}'", "its file has faults, or this run was diverted too often", "")


def _of_return(state: ReturnState) -> Iterator[str]:
    yield f"goes back to the playbook that diverted here, as '{state.end}'"
    yield _exit("later", "before the incident ends; at once where nothing diverted here", state.later)


def _parked(is_parked: bool) -> Iterator[str]:
    if is_parked:
        yield "parked: a new alert opens a fresh incident; beside one, this ends as 'superseded' when it goes on"


def _expiry(what: str, expires: str, expired: str) -> Iterator[str]:
    if expires and not expired:
        yield f"expired ({what} within {expires}) → {PARKED}"
    elif expires:
        yield _exit("expired", f"{what} within {expires}", expired)
    else:
        unused = f"; 'expired' ({expired}) is never taken" if expired else ""
        yield f"no expiry: it waits until somebody answers, after a while parked{unused}"


def _group(state: DivertState) -> str:
    return f" ({state.to_group})" if state.to_group else ""


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _exit(outcome: str, meaning: str, to: str) -> str:
    """Returns the line of an exit; only what the outcome means is shortened. Without `to` nothing is written."""
    where = f" → {to or ASKED}"
    meaning = " ".join(meaning.split())
    return _shortened(f"{outcome} ({meaning}", WIDTH - 3 - len(where)) + f"){where}" if meaning else f"{outcome}{where}"


def _shortened(text: str, width: int = WIDTH - 2) -> str:
    """Lines below a state are indented by two."""
    return text if len(text) <= width else text[: width - 1] + "…"
