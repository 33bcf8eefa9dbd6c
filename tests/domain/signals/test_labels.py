"""Signals have words for people: their own, else those of their metric."""

from __future__ import annotations

import pytest

from bot.domain.incidents.series import line_of
from bot.domain.signals.labels import words_for
from bot.domain.signals.specs import (
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
)
from bot.probes import catalogue
from tests.kit.packaged import library as packaged_library

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (MetricSignal(metric="kv_cache_usage_perc"), ("KV cache in use", "lower")),
        (MetricSignal(metric="kv_cache_usage_perc", label="Cache"), ("Cache", "lower")),
        (MetricSignal(metric="num_requests_running", of="canary"), ("Requests running (canary)", "")),
        (MetricSignal(metric="request_success", across="avg"), ("Requests finished (average replica)", "higher")),
        (MetricSignal(metric="arrivals", ending="incident.starts_at"), ("Requests arriving (before)", "")),
        (RatioSignal(ratio=("num_preemptions", "request_success")), ("Preemptions", "lower")),
        (RatioSignal(ratio=("prefix_cache_hits", "prefix_cache_queries")), ("Prefix cache hits", "higher")),
        (MeanSignal(mean="request_prompt_tokens"), ("Prompt length", "")),
        (QuantileSignal(histogram="time_to_first_token_seconds", quantile=0.99), ("First token p99", "lower")),
        (
            ShareSignal(histogram="inter_token_latency_seconds", share_above=0.05),
            ("Time per token slower than its target", "lower"),
        ),
        (MetricSignal(metric="my_own_metric"), ("", "")),
        (ProbeSignal(probe="capacity"), ("Room for replicas", "")),
        (ProbeSignal(probe="my_own_probe"), ("", "")),
    ],
)
def test_a_signal_has_the_words_of_its_metric(spec: SignalSpec, words: tuple[str, str]) -> None:
    assert words_for(spec, catalogue.PROBES) == words


def test_everything_that_a_packaged_playbook_may_draw_has_words() -> None:
    without = [
        f"{playbook.name}: {name}"
        for playbook in packaged_library().playbooks.values()
        for name in playbook.playbook.signals
        if (spec := line_of(playbook, name)) is not None and not words_for(spec, catalogue.PROBES).label
    ]
    assert without == []


def test_every_probe_has_a_label_of_its_own() -> None:
    labels = [probe.label for probe in catalogue.PROBES.values()]
    assert all(labels)
    assert len(set(labels)) == len(labels)


def test_a_unit_is_that_of_a_number_in_the_answer() -> None:
    of_other_parts = {
        name: sorted(probe.units.keys() - {part for part, kind in probe.kinds.items() if kind == "number"})
        for name, probe in catalogue.PROBES.items()
    }
    assert {name: parts for name, parts in of_other_parts.items() if parts} == {}
