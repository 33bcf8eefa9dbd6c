"""`uses`: signals and settings of fragments without states, and probes that need no definition."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import check_text, fragments_of, load_text
from bot.domain.signals.specs import MetricSignal, ProbeSignal

pytestmark = pytest.mark.fast

LIBRARY = """\
language: 1
fragment: common
settings:
  window: {default: 5m, why: the shared window}
  limit: {default: 50, why: the shared limit}
  unrelated: {default: 1, why: nobody mentions it}
signals:
  waiting: {metric: num_requests_waiting, over: settings.window, take: max}
  running: {metric: num_requests_running, over: settings.window}
  pods: {probe: rotation}
"""
PLAYBOOK = """\
language: 1
playbook: p
title: P
opens: by_hand
uses: [common]
start: look
states:
  look:
    read: [waiting]
    go:
      - {when: 'waiting > settings.limit && capacity.free_gpus >= 1 && pods.ready > 0', to: ask}
      - {otherwise: gone}
    unknown: gone
  ask:
    ask: "${waiting} wait, ${traffic.arrivals_ratio} times yesterday's requests arrive. Continue?"
    choices: {a: {label: A, to: gone}}
    expired: gone
  gone: {end: handed_over}
"""
FRAGMENT = """\
language: 1
fragment: part
uses: [common]
exits: {out: out}
start: more
states:
  more:
    read: [running]
    go: [{when: running > 1, to: exits.out}, {otherwise: exits.out}]
    unknown: exits.out
"""


def faults(text: str, **fragments: str) -> list[str]:
    found = check_text(text, {}, file="p.yaml", fragments=fragments_of({"common": LIBRARY} | fragments)).faults
    return [str(fault) for fault in found]


def test_only_what_is_mentioned_is_added() -> None:
    playbook = load_text(PLAYBOOK, fragments={"common": LIBRARY})
    assert set(playbook.playbook.signals) == {"waiting", "pods", "capacity", "traffic"}
    assert dict(playbook.settings) == {"window": 300.0, "limit": 50.0}


def test_the_name_of_a_probe_is_a_signal() -> None:
    signals = load_text(PLAYBOOK, fragments={"common": LIBRARY}).playbook.signals
    assert signals["capacity"] == ProbeSignal(probe="capacity")
    assert signals["pods"] == ProbeSignal(probe="rotation")


def test_a_definition_of_the_playbook_counts_instead() -> None:
    own = PLAYBOOK.replace(
        "start: look\n",
        "settings: {limit: {default: 7}}\nsignals: {waiting: {metric: num_requests_waiting, take: last}}\n"
        "start: look\n",
    )
    playbook = load_text(own, fragments={"common": LIBRARY})
    waiting = playbook.playbook.signals["waiting"]
    assert isinstance(waiting, MetricSignal)
    assert waiting.take == "last"
    assert dict(playbook.settings) == {"limit": 7.0}


def test_an_included_fragment_brings_what_it_uses() -> None:
    host = PLAYBOOK.replace("uses: [common]\n", "").replace(
        "  ask:\n    ask:", "  part: {include: part, exits: {out: gone}}\n  ask:\n    ask:"
    )
    host = host.replace("waiting > settings.limit && ", "").replace("read: [waiting]", "read: [capacity]")
    host = host.replace("to: ask}", "to: part}").replace("${waiting} wait, ", "").replace(" && pods.ready > 0", "")
    host = host.replace("{otherwise: gone}", "{otherwise: ask}")
    playbook = load_text(host, fragments={"common": LIBRARY, "part": FRAGMENT})
    assert set(playbook.playbook.signals) == {"running", "capacity", "traffic"}


def test_a_stored_playbook_keeps_the_library_that_it_was_started_with() -> None:
    playbook = load_text(PLAYBOOK, fragments={"common": LIBRARY})
    changed = load_text(PLAYBOOK, fragments={"common": LIBRARY.replace("take: max", "take: last")})
    assert [source.file for source in playbook.fragments] == [source.file for source in changed.fragments] != []
    assert playbook.digest != changed.digest


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param("[common]", "[comon]", "p.yaml:5:8: unknown fragment 'comon'. Did you mean 'common'?", id="typo"),
        pytest.param(
            "[common]",
            "[gpus]",
            "p.yaml:5:8: unknown fragment 'gpus'. Known: common, part.",
            id="none-of-them",
        ),
        pytest.param(
            "[common]",
            "[common, part]",
            "p.yaml:5:16: the fragment 'part' has states. Include it in a state: {include: part}.",
            id="has-states",
        ),
        pytest.param(
            "  gone:",
            "  extra: {include: common}\n  gone:",
            "p.yaml:18:20: the fragment 'common' has no states. Name it under 'uses' instead.",
            id="has-no-states",
        ),
        pytest.param(
            "capacity.free", "capacty.free", "p.yaml:11:45: unknown name 'capacty.free_gpus'. Did you mean 'capacity'?",
            id="probe",
        ),
    ],
)  # fmt: skip
def test_a_wrong_name_is_reported_where_it_is_written(old: str, new: str, fault: str) -> None:
    assert any(fault in found for found in faults(PLAYBOOK.replace(old, new), part=FRAGMENT)), faults(
        PLAYBOOK.replace(old, new), part=FRAGMENT
    )


def test_a_library_has_neither_start_nor_parameters() -> None:
    library = LIBRARY.replace("settings:", "start: look\nsettings:", 1)
    assert any("a fragment without states has no start" in found for found in faults(PLAYBOOK, common=library))


def test_a_fault_in_a_library_is_reported_in_its_file() -> None:
    library = LIBRARY.replace("num_requests_waiting", "num_requests_witing")
    assert any(
        "common" in found and "unknown metric 'num_requests_witing'" in found
        for found in faults(PLAYBOOK, common=library)
    )
