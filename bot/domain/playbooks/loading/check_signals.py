"""Checks signals: whether their metrics, probes, windows and replicas exist and fit together."""

from __future__ import annotations

from collections.abc import Mapping

from bot.domain.kernel.numbers import is_number
from bot.domain.kernel.references import setting_in
from bot.domain.playbooks.expressions.expression import did_you_mean
from bot.domain.playbooks.language import ChangeState, Playbook, ReadState
from bot.domain.playbooks.loading.known_words import Mistakes, duration, is_of_kind, known, where_known
from bot.domain.playbooks.mistakes import Mistake, Path, Reference, as_written
from bot.domain.playbooks.scope import signals_of
from bot.domain.playbooks.settings import finite_number
from bot.domain.signals.comparison import comparison_fault
from bot.domain.signals.metric import METRICS, TAKES
from bot.domain.signals.probe_spec import Probes
from bot.domain.signals.sampling import spec_fault
from bot.domain.signals.specs import (
    STARTS_AT,
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    ProbeSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    SignalSpec,
)


def check_signal(
    path: Path, signal: SignalSpec, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    if isinstance(signal, ComparedSignal):
        yield from _compared(path, signal, playbook, settings, probes)
        return
    if not isinstance(signal, ProbeSignal):
        yield from duration((*path, "over"), signal.over, playbook, settings)
        yield from _ending((*path, "ending"), signal.ending, playbook)
    yield from _whose((*path, "of"), signal.of, playbook)
    match signal:
        case MetricSignal():
            yield from _taken(path, signal)
        case RatioSignal():
            for index, metric in enumerate(signal.ratio):
                yield from _metric((*path, "ratio", index), metric, "counter")
        case MeanSignal():
            yield from _mean(path, signal)
        case QuantileSignal():
            yield from _metric((*path, "histogram"), signal.histogram, "histogram")
            if not 0 < signal.quantile < 1:
                yield Mistake((*path, "quantile"), "a quantile lies between 0 and 1", "Write 0.99 for p99.")
        case ShareSignal():
            yield from _metric((*path, "histogram"), signal.histogram, "histogram")
            if isinstance(signal.share_above, str):
                yield from _target((*path, "share_above"), signal.share_above, playbook, settings)
        case ProbeSignal():
            yield from _probe(path, signal, playbook, settings, probes)
        case _:
            pass


def _probe(
    path: Path, signal: ProbeSignal, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    yield from known((*path, "probe"), signal.probe, probes, "probe")
    if probe := probes.get(signal.probe):
        for name in sorted(signal.parameters.keys() - probe.parameters.keys()):
            hint = did_you_mean(name, probe.parameters) or "It takes none."
            yield Mistake((*path, "parameters", name), f"'{signal.probe}' has no parameter '{name}'", hint, at_key=True)
        for name, value in signal.parameters.items():
            at = (*path, "parameters", name)
            kind = probe.parameters[name].kind if name in probe.parameters else "text"
            if kind == "duration":
                yield from duration(at, str(value), playbook, settings)
            elif isinstance(value, str) and (setting := setting_in(value)) is not None:
                yield from known(at, setting, playbook.settings, "setting")
                if kind == "number" and setting in settings and not is_number(settings[setting]):
                    yield Mistake(at, f"'{value}' is not a number", "Write a number, or a setting that is one.")
            elif kind == "number" and not is_of_kind("a number", value):
                yield Mistake(at, f"{as_written(value)} is not a number", "Write a number or settings.<name>.")


def _compared(
    path: Path, signal: ComparedSignal, playbook: Playbook, settings: Mapping[str, object], probes: Probes
) -> Mistakes:
    yield from duration((*path, "past"), signal.past, playbook, settings)
    yield from _ending((*path, "ending"), signal.ending, playbook)
    inner = list(check_signal((*path, "compared"), signal.compared, playbook, settings, probes))
    yield from inner
    if not inner and (fault := comparison_fault(signal)):
        yield Mistake((*path, "compared"), fault, "Compare it otherwise, or something else.", at_key=True)


def _target(path: Path, text: str, playbook: Playbook, settings: Mapping[str, object]) -> Mistakes:
    """A number and a duration are written alike; a setting may be either."""
    setting = playbook.settings.get(setting_in(text) or "")
    if setting is not None and isinstance(setting.default, int | float) and not isinstance(setting.default, bool):
        return
    try:
        finite_number(text)
    except ValueError:
        yield from duration(path, text, playbook, settings)


def _ending(path: Path, ending: str, playbook: Playbook) -> Mistakes:
    """A window may end at the start of the incident, or at an earlier reading."""
    if not ending:
        return
    read = {
        f"results.{name}.{signal}"
        for name, state in playbook.states.items()
        if not isinstance(state, ChangeState)
        for signal in signals_of(state, playbook.signals)
    }
    if ending not in read | {STARTS_AT}:
        hint = did_you_mean(ending, read | {STARTS_AT}) or f"Write {STARTS_AT} or results.<state>.<signal>."
        yield Mistake(path, f"no window can end at '{ending}'", hint, missing=Reference("reading", ending))


def _mean(path: Path, signal: MeanSignal) -> Mistakes:
    faults = list(_metric((*path, "mean"), signal.mean, "histogram"))
    yield from faults
    if not faults and (fault := spec_fault(signal)):
        yield Mistake((*path, "at_equal_lengths"), fault, "Remove it, or correct the mean or across.")


def _taken(path: Path, signal: MetricSignal) -> Mistakes:
    if signal.metric not in METRICS:
        yield from _metric((*path, "metric"), signal.metric, "gauge")
    elif signal.take not in TAKES[shape := METRICS[signal.metric].shape]:
        at = (*path, "take") if "take" in signal.model_fields_set else (*path, "metric")
        yield Mistake(at, f"'{signal.metric}' is a {shape}: it has no {signal.take}", _TAKE_HINTS[shape])


_TAKE_HINTS = {
    "counter": "Take its rate, its steady rate or its increase.",
    "gauge": "Take its last, avg, p90 or max.",
    "histogram": "Use mean, or quantile with histogram.",
}


def _metric(path: Path, metric: str, shape: str) -> Mistakes:
    if metric not in METRICS:
        yield Mistake(path, f"unknown metric '{metric}'", did_you_mean(metric, METRICS) or where_known("metric"))
    elif (found := METRICS[metric].shape) != shape:
        yield Mistake(path, f"'{metric}' is a {found}, and a {shape} is needed", _TAKE_HINTS[found])


def _whose(path: Path, of: str, playbook: Playbook) -> Mistakes:
    picks = {f"picked.{pick}" for s in playbook.states.values() if isinstance(s, ReadState) for pick in s.pick}
    if of not in {"target", "canary"} | picks:
        hint = did_you_mean(of, {"target", "canary"} | picks)
        yield Mistake(path, f"'{of}' does not name replicas", hint, missing=Reference("replicas", of))
