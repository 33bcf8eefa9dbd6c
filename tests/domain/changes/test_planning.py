"""Planning as a whole: the language and the verbs agree, and what is not a change is declined, never raised."""

from __future__ import annotations

import pytest

from bot.domain.changes.planning import VERBS
from bot.domain.playbooks import vocabulary
from tests.domain.changes.worlds import declined, world

pytestmark = pytest.mark.fast


def test_the_language_and_the_verbs_take_the_same_arguments() -> None:
    written = {verb: spec.arguments for verb, spec in vocabulary.VERBS.items()}
    assert written == {verb: arguments for verb, (_, arguments) in VERBS.items()}


def test_an_unknown_verb_is_declined_with_the_known_ones() -> None:
    result = declined("reboot", {}, world())
    assert (result.outcome, "set_flags" in result.hint) == ("impossible", True)


@pytest.mark.parametrize("verb", ["scale", "set_flags", "replace_replica"])
def test_another_kind_of_workload_is_declined(verb: str) -> None:
    other = world()
    assert other.workload is not None
    other.workload["kind"] = "DaemonSet"
    assert declined(verb, {}, other).reason == "the bot does not change a DaemonSet"
