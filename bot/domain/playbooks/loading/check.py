"""Checks a playbook: reports every fault of a file at once, each with line, column and what to do next.

A playbook that passes can run: no unknown name, no state without a path to an end, no loop that makes changes without a
person.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook, compile_playbook
from bot.domain.playbooks.expressions.expression import did_you_mean, nearest
from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.loading.check_names import check_breaks, check_names
from bot.domain.playbooks.loading.check_paths import check_paths, lint
from bot.domain.playbooks.loading.check_texts import check_texts, cut_off, unfilled, unlinked
from bot.domain.playbooks.loading.former_keys import former_keys
from bot.domain.playbooks.loading.fragment import Fragments
from bot.domain.playbooks.loading.include import expand
from bot.domain.playbooks.loading.options import spread
from bot.domain.playbooks.loading.shared_signals import with_shared_signals
from bot.domain.playbooks.loading.structure import structure
from bot.domain.playbooks.mistakes import Mistake, Noun, Path
from bot.domain.playbooks.settings import effective_settings
from bot.domain.playbooks.source import Source
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.signal import Value
from bot.domain.signals.specs import ProbeSignal


@dataclass(frozen=True)
class Checked:
    """The playbook, if it has no fault; warnings do not stop it."""

    compiled: CompiledPlaybook | None
    faults: tuple[Fault, ...] = ()
    warnings: tuple[Fault, ...] = ()


def check(source: Source, fragments: Fragments, probes: Probes) -> Checked:
    """Checks `source` with its included fragments and its default settings."""
    written = source
    spread_out = spread(source)
    expanded = with_shared_signals(expand(spread_out.source, fragments), fragments, probes)
    earlier = [*spread_out.faults, *expanded.faults, *expanded.doubled]
    if expanded.source is None or (earlier and not expanded.source.data["states"]):
        return Checked(None, _sorted(source, earlier))
    source = expanded.source
    mistakes: list[Mistake] = []
    structured = structure(source.data, mistakes.append, broken=expanded.broken | spread_out.broken)
    playbook = structured.playbook
    if playbook is None:
        return Checked(None, _sorted(source, [*earlier, *_faults(source, mistakes)]))
    found: list[Mistake] = []
    settings = effective_settings(playbook.settings, {}, found.append)
    found.extend(check_names(playbook, settings, probes))
    found.extend(check_breaks(playbook, settings))
    found.extend(check_texts(playbook))
    compiled = compile_playbook(
        playbook, settings, source=source, fragments=expanded.fragments, probes=probes, report=found.append
    )
    if not mistakes and not found and not earlier:
        found.extend(check_paths(playbook))
    unbuilt = _unbuilt(playbook, structured.broken, probes) | expanded.unbuilt
    found = [mistake for mistake in found if mistake.path[:3] not in structured.filled]
    mistakes += [_hinted(mistake, playbook.define, probes) for mistake in found if not _follows(mistake, unbuilt)]
    if mistakes or earlier:
        return Checked(None, _sorted(source, [*earlier, *_faults(source, mistakes)]))
    advice = [*lint(playbook, expanded.unused), *unfilled(source.data), *unlinked(playbook), *former_keys(written.data)]
    warned = [*_faults(source, advice), *_faults(written, cut_off(written))]
    return Checked(compiled, (), _sorted(source, warned))


def recompile(source: Source, fragments: Fragments, settings: dict[str, Value], probes: Probes) -> CompiledPlaybook:
    """Rebuilds a playbook that was checked before: only what keeps it from running is a fault now."""
    expanded = with_shared_signals(expand(spread(source).source, fragments), fragments, probes)
    if expanded.source is None or expanded.faults:
        raise PlaybookError(expanded.faults)
    source = expanded.source
    mistakes: list[Mistake] = []
    playbook = structure(source.data, mistakes.append).playbook
    if playbook is None or mistakes:
        raise PlaybookError(_sorted(source, _faults(source, mistakes)))
    compiled = compile_playbook(
        playbook, settings, source=source, fragments=expanded.fragments, probes=probes, report=mistakes.append
    )
    if mistakes:
        raise PlaybookError(_sorted(source, _faults(source, mistakes)))
    return compiled


def _unbuilt(playbook: Playbook, broken: frozenset[Path], probes: Probes) -> frozenset[str]:
    """Returns first words of names that are unknown only because another, reported mistake removed them."""
    words = {str(path[-1]) for path in broken if path}
    words |= {name for name, s in playbook.signals.items() if isinstance(s, ProbeSignal) and s.probe not in probes}
    if any(path[0] == "states" for path in broken if path):
        words |= {"picked", "baseline", "answers"}
    return frozenset(words)


def _follows(mistake: Mistake, removed: frozenset[str]) -> bool:
    """Whether it only misses what another, reported mistake removed."""
    missing = mistake.missing
    return missing is not None and missing.noun in _IN_THE_FILE and not removed.isdisjoint(missing.name.split("."))


def _hinted(mistake: Mistake, define: Mapping[str, str], probes: Probes) -> Mistake:
    """Returns an unknown name with the definition or the probe that it may mean: a fault names neither itself."""
    if mistake.missing is None or mistake.missing.noun != "name":
        return mistake
    head, _, tail = mistake.missing.name.partition(".")
    if not tail and head in define:  # in a fragment: everywhere else it was replaced
        return replace(mistake, hint="A fragment sees no definition of the playbook: give it as a parameter.")
    known = probes if tail else define
    near = nearest(head, known)
    if not near or (mistake.near and (tail or nearest(head, (near, mistake.near)) != near)):
        return mistake
    return replace(mistake, hint=did_you_mean(head, known))


_WHERE = re.compile(r"(.*):(\d+):(\d+)", re.DOTALL)
_IN_THE_FILE: frozenset[Noun] = frozenset(
    {"change", "name", "question", "reading", "replicas", "setting", "signal", "state"}
)
"""What another part of the file makes, so that it may be missing because of a mistake there."""


def _faults(source: Source, mistakes: Iterable[Mistake]) -> list[Fault]:
    return [source.fault(mistake) for mistake in mistakes]


def _sorted(source: Source, faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Returns each fault once: those of the file itself first, then those of its fragments, in file order."""

    def place(fault: Fault) -> tuple[bool, str, int, int]:
        # A file that cannot be read has no position.
        found = _WHERE.fullmatch(fault.where)
        file, line, column = found.groups() if found else (fault.where, 0, 0)
        return file != source.file, file, int(line), int(column)

    return tuple(sorted(dict.fromkeys(faults), key=place))
