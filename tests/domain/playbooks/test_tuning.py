"""Settings of an operator: for a playbook, for targets, judged by the playbook's own ranges, all faults at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_folder
from bot.domain.kernel.target import Target
from bot.domain.playbooks.settings import Tuning

pytestmark = pytest.mark.fast

SMALL = Path(__file__).parent / "small.yaml"
CHAT = Target(cluster="c", namespace="llm", kind="Deployment", name="chat-large")
OTHER = Target(cluster="c", namespace="llm", kind="Deployment", name="embed")


def ratio(tuning: Tuning, target: Target) -> object:
    bundle = load_folder(SMALL.parent, {}, tuning).bundle("small", target)
    assert bundle is not None
    return bundle.entry_playbook.settings["ratio"]


def test_a_target_counts_more_than_a_playbook_and_that_more_than_the_file() -> None:
    tuning = Tuning({"small": {"ratio": "0.3"}}, {"llm/chat-*": {"small": {"ratio": "0.5"}}})
    assert (ratio(Tuning(), CHAT), ratio(tuning, OTHER), ratio(tuning, CHAT)) == (0.1, 0.3, 0.5)


def test_settings_of_a_target_are_in_the_digest() -> None:
    library = load_folder(SMALL.parent, {}, Tuning({}, {"llm/chat-*": {"small": {"ratio": "0.5"}}}))
    bundles = [library.bundle("small", target) for target in (CHAT, OTHER)]
    assert bundles[0] is not None
    assert bundles[1] is not None
    assert bundles[0].digest != bundles[1].digest


def test_all_faults_are_told_at_once_and_what_is_wrong_does_not_count() -> None:
    tuning = Tuning(
        {"smal": {"ratio": "0.3"}, "small": {"windw": "5m"}},
        {"llm/*": {"small": {"ratio": "7", "window": "soon"}}},
    )
    library = load_folder(SMALL.parent, {}, tuning)
    assert [str(fault) for fault in library.faults["settings"]] == [
        "playbook_settings: smal: unknown playbook 'smal'. Did you mean 'small'?",
        "playbook_settings: small: no setting 'windw' to override. Did you mean 'window'?",
        "target_settings: llm/*: small: window: 'soon' is not a duration. Write 90s, 5m or 1h30m.",
        "target_settings: llm/*: small: ratio: 7 is above the most allowed, 1 (captures)",
    ]
    assert ratio(tuning, CHAT) == 0.1
