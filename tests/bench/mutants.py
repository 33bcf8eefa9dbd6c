"""`python -m tests.bench.mutants [PLAYBOOK …]`: makes small faults in playbooks, and lists those that no case notices.

    python -m tests.bench.mutants gpu-fault thermal-emergency
    python -m tests.bench.mutants kv-cache-oom --sample 60
    python -m tests.bench.mutants gpu-fault --states look,drain
    python -m tests.bench.mutants kv-cache-oom --through "a thrash is limited on a canary, rolled out and verified"
    python -m tests.bench.mutants --main-paths

A mutant is killed when a case that comes through its state deviates, or else when the check refuses the playbook. A
state of a fragment is mutated in all its includes at once, because it is written once; so is what the options of a
`recommend` take from it (its `still`, its exits). A fragment's state that only other playbooks' tables come through is
left to them, and a survivor in a fragment that the table of another playbook kills is not listed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from bot.adapters.yaml_playbooks import load_playbook, origins_in
from bot.cli.playbook_test import read_table, tables_in
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook, _Derived, compile_playbook
from bot.domain.playbooks.edges import Origin
from bot.domain.playbooks.files import TABLE_ENDING, playbook_of
from bot.domain.playbooks.language import ChangeState, State
from bot.domain.playbooks.loading.check_names import check_names
from bot.domain.playbooks.loading.check_paths import check_paths, lint
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Case
from bot.flow.rehearse_case import CaseResult, play_case, settings_of
from tests.bench.mutations import Mutation, mutated, mutations_of
from tests.kit.main_paths import MAIN_PATHS

JOBS = 2
WIDTH = 120
SettingsKey = tuple[tuple[str, str], ...]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Mutant:
    states: tuple[str, ...]
    """One state, or all states that come from the same state of a fragment."""
    mutation: Mutation
    includes: str = ""
    """For a state that is included several times: its name in the fragment, and how often."""
    origin: str = ""
    """The fragment and its state, `roll_out.judge`; empty for a state of the playbook's own."""

    @property
    def in_fragment(self) -> tuple[str, str, str, str]:
        """The same for the mutant of each playbook that includes the fragment; guards differ by their parameters."""
        return self.origin, self.mutation.how, str(self.mutation.at), str(self.mutation.other)

    def __str__(self) -> str:
        return f"{self.includes or self.states[0]}: {self.mutation}"


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killed_by: str = ""
    """The case, or `CHECK`; empty for a survivor."""
    cases: int = 0
    """How many cases come through the mutated state."""
    warning: str = ""
    """What the check warns about in a survivor, and not in the playbook itself."""


CHECK = "the check"


@dataclass(frozen=True)
class Subject:
    """A playbook with its table, parsed and compiled once."""

    bundles: Mapping[SettingsKey, Bundle]
    """With stubs for other playbooks, for each combination of settings in the table."""
    cases: tuple[Case, ...]
    origins: Mapping[str, Origin]
    passes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The cases that come through each state, the shortest first; those that deviate anyway are left out."""
    mutants: tuple[Mutant, ...] = ()

    @property
    def playbook(self) -> CompiledPlaybook:
        return self.bundles[()].entry_playbook


@dataclass(frozen=True)
class Report:
    name: str
    verdicts: tuple[Verdict, ...]
    deviating: tuple[str, ...]
    """Cases that deviate without any mutation."""

    left_to_others: int = 0
    """Mutants of states of fragments that no case of this table comes through."""
    killed_elsewhere: int = 0
    """Mutants of fragments that survive this table, and that the table of another playbook kills."""

    @property
    def survivors(self) -> tuple[Verdict, ...]:
        return tuple(one for one in self.verdicts if not one.killed_by)


# --- what is mutated --------------------------------------------------------------------------------------------------


def subject_of(table: Path) -> Subject:
    file = playbook_of(table)
    default = load_playbook(file)
    cases = read_table(table, default).whole()
    bundles: dict[SettingsKey, Bundle] = {(): with_stand_ins(default)}
    for settings in map(settings_of, cases):
        if _key(settings) not in bundles:
            bundles[_key(settings)] = with_stand_ins(load_playbook(file, settings))
    return Subject(bundles, cases, origins_in(file))


def _key(settings: Mapping[str, str]) -> SettingsKey:
    return tuple(sorted(settings.items()))


def mutants_of(subject: Subject, only: Collection[str] = ()) -> Iterator[Mutant]:
    """Yields the mutants of all states, or of those in `only`."""
    states = subject.playbook.playbook.states
    inherited: dict[tuple[str, Mutation], list[Mutant]] = defaultdict(list)
    for mutant in _of_each_state(subject, only):
        state = states[mutant.states[0]]
        recommends = state.option_of if isinstance(state, ChangeState) else ""
        inherited[recommends or mutant.states[0], mutant.mutation].append(mutant)
    for (name, mutation), same in inherited.items():
        if len(same) == 1:
            yield same[0]
        else:
            of_all = tuple(state for mutant in same for state in mutant.states)
            yield Mutant(of_all, mutation, f"{len(of_all)} options of {name}")


def _of_each_state(subject: Subject, only: Collection[str]) -> Iterator[Mutant]:
    states = subject.playbook.playbook.states
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in states:
        origin = subject.origins.get(name)
        places[(origin.fragment, origin.state) if origin else ("", name)].append(name)
    for (fragment, state), names in places.items():
        if only and not set(only) & {*names, state}:
            continue
        includes = f"{names[0]} ({fragment}.{state}, {len(names)} times)" if len(names) > 1 else ""
        found = dict.fromkeys(mutation for name in names for mutation in mutations_of(states[name]))
        # Guards of a fragment differ by what each include gives it; one mutant stands for all of them.
        unique = {(each.how, each.at, each.other): each for each in reversed(found)}
        yield from (
            Mutant(tuple(names), each, includes, f"{fragment}.{state}" * bool(fragment))
            for each in reversed(unique.values())
        )


def changed_states(playbook: CompiledPlaybook, mutant: Mutant) -> dict[str, State]:
    states = {name: mutated(playbook.state(name), mutant.mutation) for name in mutant.states}
    return {name: state for name, state in states.items() if state is not None}


def recompiled(playbook: CompiledPlaybook, changed: Mapping[str, State], faults: list[Mistake]) -> CompiledPlaybook:
    """Returns the playbook with these states instead; only their expressions are compiled."""
    written = playbook.playbook.model_copy(update={"states": {**playbook.playbook.states, **changed}})
    original = playbook._derived
    derived = _Derived(written, playbook.probes, faults.append)
    derived.scope = original.scope
    derived._states |= {name: state for name, state in original._states.items() if name not in changed}
    for name in changed:
        derived.state(name)
    return replace(playbook, playbook=written, _derived=derived)


def faults_of(playbook: CompiledPlaybook) -> list[Mistake]:
    """Returns what `playbook check` would report, as far as a mutation can cause it."""
    written = playbook.playbook
    found = list(check_names(written, playbook.settings, playbook.probes))
    compile_playbook(written, playbook.settings, source=playbook.source, probes=playbook.probes, report=found.append)
    return found or list(check_paths(written))


# --- how it is played -------------------------------------------------------------------------------------------------


def play(subject: Subject, number: int) -> tuple[str, tuple[str, ...]]:
    """Returns how the case deviates from its expectation, and the states that it comes through."""
    case = subject.cases[number]
    result = _played(case, subject.bundles[_key(settings_of(case))])
    visits = result.rehearsed.visits
    return result.deviation, tuple(name for visit in visits for name in (*visit.instead_of, visit.state))


def judge(subject: Subject, number: int) -> Verdict:
    mutant = subject.mutants[number]
    numbers = {each: None for name in mutant.states for each in subject.passes.get(name, ())}
    changed = changed_states(subject.playbook, mutant)
    bundles: dict[SettingsKey, Bundle] = {}
    for case in (subject.cases[each] for each in numbers):
        key = _key(settings_of(case))
        if key not in bundles:
            faults: list[Mistake] = []
            bundle = subject.bundles[key]
            playbook = recompiled(bundle.entry_playbook, changed, faults)
            if faults:
                return Verdict(mutant, CHECK, len(numbers))
            bundles[key] = Bundle(bundle.entry, {**bundle.playbooks, bundle.entry: playbook})
        if _deviates(case, bundles[key]):
            return Verdict(mutant, case.name, len(numbers))
    playbook = recompiled(subject.playbook, changed, [])
    if faults_of(playbook):
        return Verdict(mutant, CHECK, len(numbers))
    known = {(each.path, each.what) for each in lint(subject.playbook.playbook)}
    warnings = [each.what for each in lint(playbook.playbook) if (each.path, each.what) not in known]
    return Verdict(mutant, "", len(numbers), next(iter(warnings), ""))


def _deviates(case: Case, bundle: Bundle) -> bool:
    try:
        return bool(_played(case, bundle).deviation)
    except IndexError:  # the case answers with the clause that is left out
        return True


def _played(case: Case, bundle: Bundle) -> CaseResult:
    results: list[CaseResult] = []

    async def once() -> None:  # asyncio would write out the result of a task
        results.append(await play_case(case, bundle))

    asyncio.run(once())
    return results[0]


def report(
    table: Path, *, only: Collection[str] = (), through: Sequence[str] = (), sample: int | None = None, jobs: int = JOBS
) -> Report:
    """Judges the mutants of a playbook: of its states in `only`, or of those that the cases `through` come through."""
    subject = subject_of(table)
    numbers = range(len(subject.cases))
    played = _each(play, subject, numbers, jobs)
    passes: dict[str, list[int]] = defaultdict(list)
    for number in sorted(numbers, key=lambda each: len(played[each][1])):
        deviation, states = played[number]
        for state in dict.fromkeys(states) if not deviation else ():
            passes[state].append(number)
    if through:
        if missing := set(through) - {subject.cases[number].name for each in passes.values() for number in each}:
            raise SystemExit(f"{table}: no case {', '.join(map(repr, sorted(missing)))}")
        only = [name for name in passes if any(subject.cases[number].name in through for number in passes[name])]
    found = tuple(mutants_of(subject, only))
    mutants = tuple(one for one in found if not one.origin or any(name in passes for name in one.states))
    others = len(found) - len(mutants)
    if sample is not None and sample < len(mutants):
        mutants = tuple(random.Random(0).sample(mutants, sample))
    subject = replace(subject, passes=dict(passes), mutants=mutants)
    verdicts = _each(judge, subject, range(len(mutants)), jobs)
    deviating = tuple(subject.cases[number].name for number in numbers if played[number][0])
    return Report(subject.playbook.name, tuple(verdicts), deviating, others)


def without_killed_elsewhere(found: Report, others: Sequence[Path]) -> Report:
    """Leave out the survivors in fragments that the table of another playbook kills."""
    suspects = {one.mutant.in_fragment for one in found.survivors if one.mutant.origin}
    states = {origin.partition(".")[2] for origin, *_ in suspects}
    killed: set[tuple[str, str, str, str]] = set()
    for table in others if suspects else ():
        killed |= {one.mutant.in_fragment for one in report(table, only=states).verdicts if one.killed_by}
    kept = tuple(
        one for one in found.verdicts if one.killed_by or not one.mutant.origin or one.mutant.in_fragment not in killed
    )
    return replace(found, verdicts=kept, killed_elsewhere=len(found.verdicts) - len(kept))


_subject: list[Subject] = []
"""The subject of a worker: compiled expressions cannot be sent to it, so it inherits them."""


def _inherit(subject: Subject) -> None:
    _subject[:] = [subject]
    gc.freeze()


def _in_worker(work: Callable[[Subject, int], Result], number: int) -> Result:
    return work(_subject[0], number)


def _each(work: Callable[[Subject, int], Result], subject: Subject, numbers: Sequence[int], jobs: int) -> list[Result]:
    if jobs == 1:
        return [work(subject, number) for number in numbers]
    with ProcessPoolExecutor(jobs, get_context("fork"), _inherit, (subject,)) as pool:
        return list(pool.map(_in_worker, [work] * len(numbers), numbers, chunksize=4))


# --- what is printed --------------------------------------------------------------------------------------------------


def lines_of(found: Report) -> Iterator[str]:
    killed = len(found.verdicts) - len(found.survivors)
    by_check = sum(one.killed_by == CHECK for one in found.verdicts)
    score = f"{100 * killed / len(found.verdicts):.1f} %" if found.verdicts else "-"
    yield (
        f"{found.name}: {len(found.verdicts)} mutants, {killed} killed ({by_check} only by the check), "
        f"{len(found.survivors)} survive, score {score}"
    )
    if found.left_to_others:
        yield f"  {found.left_to_others} mutants of fragments are left to the tables that come through them"
    if found.killed_elsewhere:
        yield f"  {found.killed_elsewhere} more mutants of fragments are killed by the table of another playbook"
    for name in found.deviating:
        yield f"  left out, it deviates without a mutation: {name}"
    for one in found.survivors:
        seen = f"{one.cases} {'case comes' if one.cases == 1 else 'cases come'} through"
        text = " ".join(str(one.mutant).split())
        room = WIDTH - len(seen) - 5
        yield f"  {text if len(text) <= room else text[: room - 1] + '…'} ({seen})"
        if one.warning:
            yield f"    the check warns: {one.warning}"


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("playbooks", nargs="*", metavar="PLAYBOOK", help="names or files; default: the packaged ones")
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants of each playbook, always the same ones")
    parser.add_argument("--states", default="", metavar="A,B", help="only mutants of these states")
    parser.add_argument(
        "--through",
        action="append",
        default=[],
        metavar="CASE",
        help="only mutants of the states of this case; repeatable",
    )
    parser.add_argument("--main-paths", action="store_true", help="only mutants of the states of the main paths")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(arguments)
    only = [name for name in chosen.states.split(",") if name]
    packaged = tuple(tables_in([packaged_playbooks()]))
    for table in tables_in(map(Path, chosen.playbooks)) if chosen.playbooks else packaged:
        begun = time.monotonic()
        through = MAIN_PATHS[table.name.removesuffix(TABLE_ENDING)] if chosen.main_paths else chosen.through
        found = report(table, only=only, through=through, sample=chosen.sample)
        for line in lines_of(without_killed_elsewhere(found, [one for one in packaged if one.name != table.name])):
            print(line)
        print(f"  {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
