"""Settings that an operator overrides for a playbook, or a playbook on some targets: checked against its own ranges."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.loading.check_names import check_names
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.settings import effective_settings
from bot.domain.signals.signal import Value


def with_override(playbook: CompiledPlaybook, own: Mapping[str, str], place: str) -> CompiledPlaybook:
    """Returns the playbook with these settings. Raises `PlaybookError` with all their faults, as the next one."""
    if found := faults_of_override(playbook, own, place):
        raise PlaybookError(tuple(found))
    return playbook.with_settings(_values(playbook, own))


def faults_of_override(playbook: CompiledPlaybook, own: Mapping[str, str], place: str) -> list[Fault]:
    """Returns all faults of these settings, located where they were set."""
    found: list[Mistake] = []
    values = effective_settings(playbook.playbook.settings, own, found.append)
    if not found:
        settings = {**playbook.settings, **{name: values[name] for name in own}}
        found.extend(check_names(playbook.playbook, settings, playbook.probes))
    return [Fault(place, _said(mistake), mistake.hint) for mistake in found]


def settings_of_override(playbook: CompiledPlaybook, own: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values that differ; none if any is wrong, so that a partial override never applies."""
    return {} if faults_of_override(playbook, own, "") else _values(playbook, own)


def _values(playbook: CompiledPlaybook, own: Mapping[str, str]) -> dict[str, Value]:
    values = effective_settings(playbook.playbook.settings, own, lambda _: None)
    return {name: values[name] for name in own}


def _said(mistake: Mistake) -> str:
    name = mistake.path[1] if len(mistake.path) > 1 else ""
    return f"{name}: {mistake.what}" if name else mistake.what
