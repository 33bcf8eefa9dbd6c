"""The playbook language as a JSON Schema, for editors: generated from the models, so that the two cannot differ.

A model's own text about a field wins; words that many models share are explained once, in `key_words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.domain.changes.catalogue import VERBS
from bot.domain.playbooks.language import KINDS, Playbook
from bot.domain.playbooks.loading.fragment import Fragment, Include
from bot.domain.playbooks.loading.key_words import WORDS
from bot.domain.playbooks.loading.options import Recommend
from bot.domain.signals.metric import METRICS
from bot.domain.signals.probe_spec import Probes

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def playbook_schema(probes: Probes) -> dict[str, Any]:
    schema = Playbook.model_json_schema(by_alias=True)
    include = Include.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    definitions |= include.pop("$defs", {})
    definitions["Include"] = include
    # What is written, not what the loader makes of it.
    written = Recommend.model_json_schema(by_alias=True)
    definitions |= written.pop("$defs", {})
    definitions[KINDS["recommend"].__name__] = written
    del definitions["Option"]
    for made in ("option_of", "alternatives"):
        del definitions[KINDS["change"].__name__]["properties"][made]
    schema["properties"]["states"]["additionalProperties"]["oneOf"].append({"$ref": "#/$defs/Include"})
    help_of = {name: verb.help for name, verb in VERBS.items()}
    help_of |= {name: probe.help for name, probe in probes.items()}
    for model, field, known in _vocabulary(probes):
        enum = definitions[model]["properties"][field]
        enum["enum"] = sorted(known)
        if descriptions := [help_of[word] for word in enum["enum"] if word in help_of]:
            enum["enumDescriptions"] = descriptions  # nonstandard: editors show one beside each word
    return _finished("A playbook of the incident bot", schema)


def fragment_schema() -> dict[str, Any]:
    """States of a fragment may have parameters anywhere, so only their names are checked here."""
    schema = Fragment.model_json_schema(by_alias=True)
    return _finished("A fragment of playbooks of the incident bot", schema)


def _vocabulary(probes: Probes) -> Iterator[tuple[str, str, Iterable[str]]]:
    yield KINDS["change"].__name__, "change", VERBS
    yield "ProbeSignal", "probe", probes
    yield "MetricSignal", "metric", METRICS
    histograms = [name for name, metric in METRICS.items() if metric.shape == "histogram"]
    yield "MeanSignal", "mean", histograms
    yield "QuantileSignal", "histogram", histograms


def _finished(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = _described(schema)
    return {"$schema": DIALECT, **described, "title": title}


def _described(part: Any) -> Any:
    """Adds a description to every property, and removes the titles that only repeat its name."""
    if isinstance(part, list):
        return [_described(item) for item in part]
    if not isinstance(part, Mapping):
        return part
    described = {key: _described(value) for key, value in part.items() if key != "title" or isinstance(value, Mapping)}
    for name, field in described.get("properties", {}).items():
        if "description" not in field and name in WORDS:
            field["description"] = WORDS[name]
        elif "description" in field:
            field["description"] = " ".join(field["description"].split())
    return described
