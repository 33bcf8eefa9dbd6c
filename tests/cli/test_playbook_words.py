"""`playbook words`: lists every word that the check knows, with its meaning."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import check_text, packaged_fragments
from bot.cli.playbook_words import KEYS
from bot.domain.changes.catalogue import VERBS
from bot.domain.playbooks.expressions.functions import FUNCTION_NAMES
from bot.domain.signals.metric import METRICS
from bot.probes.catalogue import PROBES
from tests.kit.commands import PLAYBOOK, incident_bot, written

pytestmark = pytest.mark.fast


def test_every_probe_and_parameter_says_what_it_means() -> None:
    help_lines = {
        name: [probe.help, *(parameter.help for parameter in probe.parameters.values())]
        for name, probe in PROBES.items()
    }
    assert {name: lines for name, lines in help_lines.items() if not all(lines) or "\n" in "".join(lines)} == {}


def test_every_verb_and_argument_says_what_it_means() -> None:
    help_lines = {name: [verb.help, *(argument.help for argument in verb.arguments)] for name, verb in VERBS.items()}
    assert {name: lines for name, lines in help_lines.items() if not all(lines) or "\n" in "".join(lines)} == {}


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("verbs", VERBS.keys()),
        ("probes", PROBES.keys()),
        ("metrics", METRICS.keys()),
        ("functions", FUNCTION_NAMES),
        ("fragments", packaged_fragments().keys()),
    ],
)
def test_every_word_of_a_kind_is_listed(kind: str, known: set[str]) -> None:
    lines = incident_bot("playbook", "words", kind).stdout.splitlines()
    listed = {line.split(":")[0].split("(")[0].split()[0] for line in lines if line and line[0] not in "# "}
    assert set(known) <= listed


PROMOTED = """\
language: 1
playbook: keys
title: Keys
opens_on: ['alertname="X"']
settings: {queue_limit: {default: 20, why: enough}}
DEFINE
signals: {waiting: {metric: num_requests_waiting, over: 5m}, room: {probe: capacity}}
start: relieve
states:
RECOMMEND
  judge:
    watch: {calm: '!waits'}
    for: 5m
    within: 20m
    held: promote
    not_held: cap
    RUNBOOK
  PROMOTE
  cap: {change: set_flags, WHEN, against: latency_decode, still: waits, why: It waits., done: active}
  active: {change: set_flags, FIRST_OF, against: kv_thrash, still: waits, why: It waits., done: verify}
  verify: {watch: {calm: '!waits'}, for: 5m, within: 20m, held: over, not_held: people}
  people: {divert: people, why: It stays., taken: over}
  over: {end: unproven}
"""


def test_the_examples_of_keys_make_a_sound_playbook() -> None:
    examples = {name: "\n".join(lines) for name, (_, lines) in KEYS.items()}
    filled = PROMOTED.replace("RECOMMEND", textwrap.indent(examples["recommend"], "  "))
    for word, name in [("DEFINE", "define"), ("RUNBOOK", "runbook"), ("PROMOTE", "approved_with")]:
        filled = filled.replace(word, examples[name])
    filled = filled.replace("WHEN", examples["when"]).replace("FIRST_OF", examples["first_of"])
    checked = check_text(filled, {})
    assert [*map(str, checked.faults), *map(str, checked.warnings)] == []
    assert checked.compiled is not None
    assert "relieve_cap_in_place" in checked.compiled.playbook.states


def recommended(line: str) -> list[str]:
    """The signals that a line about a metric says to write."""
    name, _, text = line.partition(" ")
    takes = re.findall(r"take ([a-z0-9, ]+)", text)
    written = [f"{{metric: {name}, take: {take}}}" for take in takes[0].split(", ")] if takes else []
    return written + re.findall(r"\{[^}]+\}", text)


def test_every_description_of_a_metric_passes_the_check(tmp_path: Path) -> None:
    lines = incident_bot("playbook", "words", "metrics").stdout.splitlines()[1:]
    found = [recommended(line) for line in lines if line]
    signals = [signal for each in found for signal in each]
    named = {f"s{number}": signal for number, signal in enumerate(signals)}
    playbook = PLAYBOOK.replace(
        "signals:\n", "signals:\n" + "".join(f"  {name}: {signal}\n" for name, signal in named.items())
    ).replace("read: [waiting]", f"read: [waiting, {', '.join(named)}]")
    result = incident_bot("playbook", "check", written(tmp_path, playbook))
    assert result.stdout == "1 sound playbook, 0 faults, 0 warnings\n"
    assert all(found)


def test_a_verb_is_listed_with_what_it_needs_and_what_it_gives() -> None:
    lines = incident_bot("playbook", "words", "verbs").stdout
    assert "  template (needed): the CronJob's name" in lines
    assert "  gives results.<state>.run_job.score: number" in lines


def test_without_a_kind_all_are_listed() -> None:
    lines = incident_bot("playbook", "words").stdout.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# verbs", "# probes", "# metrics", "# functions", "# fragments", "# mitigations", "# endings", "# keys",
    ]  # fmt: skip
