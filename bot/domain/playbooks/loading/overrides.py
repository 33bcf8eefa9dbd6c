"""Settings that an operator overrides for a playbook, or a playbook on some targets: checked against its own ranges."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.loading.check_names import check_names
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.settings import effective_settings
from bot.domain.signals.signal import Value


def values_of_override(playbook: CompiledPlaybook, own: Mapping[str, str], place: str) -> dict[str, Value]:
    """Returns these settings as values. Raises `PlaybookError` with all their faults, located where they were set."""
    found: list[Mistake] = []
    effective = effective_settings(playbook.playbook.settings, own, found.append)
    values: dict[str, Value] = {name: effective[name] for name in own if name in effective}
    if not found:
        found.extend(check_names(playbook.playbook, {**playbook.settings, **values}, playbook.probes))
    if found:
        raise PlaybookError(tuple(Fault(place, _said(mistake), mistake.hint) for mistake in found))
    return values


def settings_of_override(playbook: CompiledPlaybook, own: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values that differ; none if any is wrong, so that a partial override never applies."""
    try:
        return values_of_override(playbook, own, "")
    except PlaybookError:
        return {}


def _said(mistake: Mistake) -> str:
    name = mistake.path[1] if len(mistake.path) > 1 else ""
    return f"{name}: {mistake.what}" if name else mistake.what
