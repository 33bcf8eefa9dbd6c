"""Planning as a whole: the language and the verbs agree, and an invalid change is declined, never raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.changes import verbs
from bot.domain.changes.catalogue import CHANGE_KINDS, VERBS
from tests.domain.changes.snapshots import declined, snapshot

pytestmark = pytest.mark.fast


def test_each_file_declares_the_verb_of_its_name() -> None:
    files = {file.stem for file in Path(*verbs.__path__).glob("*.py")} - {"__init__"}
    assert len(files) >= 17
    assert files == VERBS.keys()


def test_the_first_kind_of_a_verb_has_its_name_and_no_two_share_one() -> None:
    assert {name: verb.kinds[0].name for name, verb in VERBS.items()} == {name: name for name in VERBS}
    assert len(CHANGE_KINDS) == sum(len(verb.kinds) for verb in VERBS.values())


def test_of_several_kinds_each_has_a_risk_of_its_own() -> None:
    for verb in VERBS.values():
        assert len({kind.risk for kind in verb.kinds}) == len(verb.kinds), verb.name


def test_an_unknown_verb_is_declined_with_the_known_ones() -> None:
    result = declined("reboot", {}, snapshot())
    assert (result.outcome, "set_flags" in result.hint) == ("impossible", True)


@pytest.mark.parametrize("verb", ["scale", "set_flags", "replace_replica"])
def test_another_kind_of_workload_is_declined(verb: str) -> None:
    other = snapshot()
    assert other.workload is not None
    other.workload["kind"] = "DaemonSet"
    assert declined(verb, {}, other).reason == "the bot does not change a DaemonSet"
