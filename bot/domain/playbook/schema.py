"""The playbook language as a JSON Schema, for editors: made from the models, so that it cannot say something else.

A model's own words about a field win; words that many of its models share are explained once, here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.domain.metric import SHAPES
from bot.domain.playbook.language import KINDS, Playbook
from bot.domain.playbook.piece import Include, Piece
from bot.domain.playbook.vocabulary import VERBS
from bot.domain.signal import PROBES

DIALECT = "https://json-schema.org/draft/2020-12/schema"

WORDS = {
    "across": "How the replicas' values become one: the worst (`max`), `sum` …; `each` keeps one value a replica.",
    "ask": "The question, as it stands on the card.",
    "baseline": "Keep these readings as the run's baseline.",
    "broke": "What ends the watch at once, and where that leads.",
    "change": "The verb: what is to be changed.",
    "choices": "The buttons, by the word that expressions see as `answers.<state>`.",
    "compared": "The signal that is read now and in the past at similar load.",
    "default": "The value where nobody says another; 90s, 5m or 2h make it a duration.",
    "divert": "Hand the incident over: to `people`, or to another playbook by its name.",
    "done": "Where it leads that the change is done.",
    "end": "How the incident ends.",
    "ending": "When the window ends: now where it is absent, else `incident.starts_at` or `results.<state>.<signal>`.",
    "every": "How often to look; a sixth of `for` where it is absent.",
    "expected": "What people should see afterwards.",
    "expired": "Where it leads that nobody answered in time; absent, people are asked what next.",
    "expires": "How long people have: a duration or `settings.<name>`.",
    "failed": "Where it leads that the change failed; absent, people are asked what next.",
    "for": "How long all parts must hold: a duration or `settings.<name>`.",
    "go": "Ways out, top to bottom: the first that is not false decides, and one that cannot be decided is `unknown`.",
    "held": "Where it leads that every part held.",
    "histogram": "The engine's histogram.",
    "impossible": "Where it leads that the change cannot be made; absent, people are asked what next.",
    "label": "The text on the button.",
    "language": "The version of the playbook language.",
    "max": "The most that an operator may set.",
    "mean": "The engine's histogram whose mean is meant.",
    "metric": "The engine's metric, without `vllm:`.",
    "min": "The least that an operator may set.",
    "not_held": "Where it leads that `within` was over first; absent, people are asked what next.",
    "not_needed": "Where it leads that the reason is gone; absent, people are asked what next.",
    "note": "What the choice means, in small print.",
    "of": "Whose: `target`, `spare` (our canary) or `picked.<name>` (that one replica).",
    "opens_on": "Alertmanager matchers, one string a line; an alert that fits any line opens this playbook.",
    "otherwise": "Where it leads when nothing above holds.",
    "over": "The window: a duration or `settings.<name>`.",
    "parameters": "What the probe is asked with.",
    "pick": "Name of a pick to an expression that gives a replica, e.g. `worst(usage_by_replica)`.",
    "playbook": "Its name: that of its file.",
    "priority": "Of two that open on the same alert, the higher one does.",
    "probe": "The question to the cluster, the logs or the GPUs; its parts are `<signal>.<part>`.",
    "quantile": "Which quantile: 0.99 for p99.",
    "ratio": "Two counters: the increase of the first per increase of the second; 0/0 is unknown.",
    "read": "Signals to read; those in expressions are read too.",
    "refused": "Where it leads that people refused; absent, people are asked what next.",
    "risk": "At least this risk; the verb's own floor may be higher.",
    "say": "What the closing message says.",
    "settings": "Numbers and durations that an operator may override.",
    "signals": "What can be read, by the name that expressions use.",
    "stall": "The sign of a full stall while preemptions are silent.",
    "start": "The first state.",
    "states": "The states, by name. Each has one kind: read, ask, change, watch, divert, end or include.",
    "still": "The reason for the change: read again right before the call; gone means not needed.",
    "style": "How the button looks.",
    "summary": "What it does, in two sentences.",
    "take": "What is taken of the samples in the window, per replica and engine rank.",
    "taken": "Where it leads that somebody took it.",
    "title": "A few words for people.",
    "to": "The state that it leads to.",
    "to_group": "Which people.",
    "unclear": "Where it leads that nobody knows whether the change was made; absent, people are asked what next.",
    "unit": "What it is measured in.",
    "unknown": "Where it leads that it cannot be decided; absent, people are asked what next.",
    "watch": "Parts by name, each an expression that must hold.",
    "when": "An expression that is true or false.",
    "why": "The reason, for people.",
    "with": "The verb's arguments; `${…}` is an expression.",
    "within": "How long to watch at most: a duration or `settings.<name>`.",
}


def playbook_schema() -> dict[str, Any]:
    schema = Playbook.model_json_schema(by_alias=True)
    include = Include.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    definitions |= include.pop("$defs", {})
    definitions["Include"] = include
    schema["properties"]["states"]["additionalProperties"]["oneOf"].append({"$ref": "#/$defs/Include"})
    for model, field, known in _vocabulary():
        definitions[model]["properties"][field]["enum"] = sorted(known)
    return _finished("A playbook of the incident bot", schema)


def piece_schema() -> dict[str, Any]:
    """States of a piece may hold parameters anywhere, so only their names are checked here."""
    schema = Piece.model_json_schema(by_alias=True)
    return _finished("A piece of playbooks of the incident bot", schema)


def _vocabulary() -> Iterator[tuple[str, str, Iterable[str]]]:
    yield KINDS["change"].__name__, "change", VERBS
    yield "ProbeSignal", "probe", PROBES
    yield "MetricSignal", "metric", SHAPES
    histograms = [name for name, shape in SHAPES.items() if shape == "histogram"]
    yield "MeanSignal", "mean", histograms
    yield "QuantileSignal", "histogram", histograms


def _finished(title: str, schema: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = _described(schema)
    return {"$schema": DIALECT, **described, "title": title}


def _described(part: Any) -> Any:
    """With a description at every property, and without the titles that only repeat its name."""
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


def undescribed(schema: Mapping[str, Any]) -> list[str]:
    """Properties that an editor could say nothing about."""
    models = {"": schema, **schema.get("$defs", {})}
    return [
        f"{model}.{name}".lstrip(".")
        for model, part in models.items()
        for name, field in part.get("properties", {}).items()
        if not field.get("description")
    ]
