"""The SLO targets of one workload: from its annotations, the bot's settings or the alert's labels.

A playbook that declares the setting `slo_from` takes part. The bot writes there who set the targets, so that the card
can say which ones are in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bot.domain.kernel.target import SLO_ANNOTATIONS, Target
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.loading.overrides import settings_of_override
from bot.domain.playbooks.settings import effective_settings
from bot.domain.signals.signal import Value

SOURCE = "slo_from"
ANNOTATION, SETTINGS, LABEL = "the workload's annotations", "the bot's settings", "the alert's labels"
WORDS = {"ttft_target": "first token", "tpot_target": "tokens", "objective": "objective"}


def with_slo(playbook: CompiledPlaybook, target: Target, labels: Mapping[str, str]) -> CompiledPlaybook:
    """Returns the playbook with the targets of this workload. An invalid target is ignored, and named."""
    if SOURCE not in playbook.settings:
        return playbook
    found: dict[str, Value] = {}
    sources: dict[str, str] = {}
    ignored: list[str] = []
    for name in (name for name in SLO_ANNOTATIONS if name in playbook.settings):
        for source, text in _candidates(playbook, name, target, labels):
            value = settings_of_override(playbook, {name: text}) if text else {}
            if text and not value:
                ignored.append(f"{WORDS[name]} '{text[:40]}' in {source} is not valid and was ignored")
                continue
            found |= value
            sources[name] = source
            break
    by_default = str(_defaults(playbook)[SOURCE])
    texts = [_sources_in_words(playbook, sources, by_default), *ignored]
    return playbook.with_settings({**found, SOURCE: "; ".join(texts)})


def _candidates(
    playbook: CompiledPlaybook, name: str, target: Target, labels: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Each source that has the target, the most specific first; the bot's settings are in the playbook already."""
    if text := dict(target.slo).get(name):
        yield ANNOTATION, text
    if name in playbook.overridden:
        yield SETTINGS, ""
    if text := labels.get(name, ""):
        yield LABEL, text


def _defaults(playbook: CompiledPlaybook) -> Mapping[str, Value]:
    return effective_settings(playbook.playbook.settings, {}, lambda _: None)


def _sources_in_words(playbook: CompiledPlaybook, sources: Mapping[str, str], by_default: str) -> str:
    each = {name: sources.get(name, by_default) for name in SLO_ANNOTATIONS if name in playbook.settings}
    kinds = list(dict.fromkeys(each.values()))
    if len(kinds) == 1:
        return kinds[0]
    return ", ".join(f"{' and '.join(WORDS[n] for n in each if each[n] == kind)} by {kind}" for kind in kinds)
