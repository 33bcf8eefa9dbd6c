"""Settings that an operator overrides for a playbook, or a playbook on some targets: checked against its own ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.loading.check_names import check_names
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.settings import effective_settings
from bot.domain.signals.signal import Value

OnTarget = tuple[str, Mapping[str, Mapping[str, Value]]]
"""A pattern of targets, with the settings that differ there, by playbook."""


def values_of_override(
    playbook: CompiledPlaybook, own: Mapping[str, str], place: str, below: Sequence[OnTarget] = ()
) -> dict[str, Value]:
    """Returns these settings as values. Raises `PlaybookError` with all their faults, located where they were set.

    `below`: overrides of targets on top of which these take effect.
    """
    found: list[Mistake] = []
    effective = effective_settings(playbook.playbook.settings, own, found.append)
    values: dict[str, Value] = {name: effective[name] for name in own if name in effective}
    if not found:
        settings = dict(playbook.settings)
        for _, earlier in below:
            settings |= earlier[playbook.name]
        found.extend(check_names(playbook.playbook, settings | values, playbook.probes))
        place += f" (with {', '.join(pattern for pattern, _ in below)})" if below else ""
    if found:
        raise PlaybookError(tuple(Fault(place, _text(mistake), mistake.hint) for mistake in found))
    return values


def settings_of_override(playbook: CompiledPlaybook, own: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values that differ; none if any is wrong, so that a partial override never applies."""
    try:
        return values_of_override(playbook, own, "")
    except PlaybookError:
        return {}


def together_on(pattern: str, earlier: Sequence[OnTarget]) -> Iterator[list[OnTarget]]:
    """Yields which of the earlier overrides may take effect on one target of this pattern, in their order.

    First those that do so on all of its targets, then with each other one that does so on some.
    """
    on_some = (other for other, _ in earlier if _meet(other, pattern) and not _covers(other, pattern))
    for also in (pattern, *on_some):
        yield [each for each in earlier if _covers(each[0], pattern) or _covers(each[0], also)]


def _covers(wide: str, narrow: str) -> bool:
    """Whether every target of the narrow pattern is one of the wide pattern: `*` also stands for another `*`."""
    return all(any(all(map(fnmatchcase, part, each)) for each in _parts(wide)) for part in _parts(narrow))


def _meet(one: str, other: str) -> bool:
    """Whether a target can match both patterns."""
    return any(all(map(_can_be_equal, left, right)) for left in _parts(one) for right in _parts(other))


def _parts(pattern: str) -> list[list[str]]:
    """Returns cluster, namespace and workload of a pattern. Without a slash, any of its `*` may stand for one."""
    whole = [f"{pattern[:at]}*/*{pattern[at + 1 :]}" for at, char in enumerate(pattern) if char == "*"]
    return [f"*/{each}".split("/")[-3:] for each in ([pattern] if "/" in pattern else whole)]


def _can_be_equal(one: str, other: str) -> bool:
    """Whether a text can match both, each with `*` for anything."""
    todo, seen = [(one, other)], set[tuple[str, str]]()
    while todo:
        pair = todo.pop()
        if pair in seen:
            continue
        seen.add(pair)
        left, right = pair if pair[0].startswith("*") else pair[::-1]
        if left == right == "":
            return True
        if left.startswith("*"):  # it ends here, or stands for the next character of the other
            todo += [(left[1:], right), (left, right[1:])]
        elif left[:1] == right[:1]:
            todo.append((left[1:], right[1:]))
    return False


def _text(mistake: Mistake) -> str:
    name = mistake.path[1] if len(mistake.path) > 1 else ""
    return f"{name}: {mistake.what}" if name else mistake.what
