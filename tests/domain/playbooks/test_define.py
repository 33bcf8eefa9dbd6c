"""`define`: a name stands for its expression everywhere, and a fault in it is reported where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import check_text, fragments_of, load_text
from bot.domain.playbooks.language import ChangeState, WatchState
from tests.domain.playbooks.including import HOST, VERIFY, marked

pytestmark = pytest.mark.fast

SMALL = (Path(__file__).parent / "small.yaml").read_text(encoding="utf-8")
DEFINE = "signals:\n  usage"
DEFINED = SMALL.replace(
    DEFINE, "define: {crowded: usage > 0.9, thrashes: thrash > settings.ratio && crowded}\n" + DEFINE
)
DEFINED = DEFINED.replace("'thrash > settings.ratio && usage > 0.9'", "thrashes")
MEANS = "(thrash > settings.ratio && (usage > 0.9))"


def faults(text: str, **fragments: str) -> list[str]:
    return [str(fault) for fault in check_text(text, {}, file="p.yaml", fragments=fragments_of(fragments)).faults]


def with_define(define: str) -> tuple[str, str]:
    """The playbook with these definitions, and the place of « in them."""
    return marked(DEFINED, "{crowded: usage > 0.9, thrashes: thrash > settings.ratio && crowded}", define)


def test_a_definition_may_mention_another_one() -> None:
    playbook = load_text(DEFINED)
    assert playbook.choose("look", {"restarts.oom": False, "thrash": 2.0, "usage": 0.95, "by_replica": {"a": 1.0}})
    assert playbook.playbook.define["thrashes"] == MEANS[1:-1]
    assert [go.when for go in playbook.playbook.states["look"].go][1] == MEANS  # type: ignore[union-attr]


def test_it_stands_in_a_text_in_a_watch_and_in_the_condition_of_an_edit() -> None:
    text = DEFINED.replace("calm: thrash < 0.01,", "calm: '!thrashes',").replace(
        "value: '${cap_", "when: crowded, value: '${cap_"
    )
    text = text.replace("why: Fewer sequences fit.", "why: \"${crowded ? 'Full.' : 'Not full.'}\"")
    states = load_text(text).playbook.states
    calm, cap = states["calm"], states["cap"]
    assert isinstance(calm, WatchState)
    assert isinstance(cap, ChangeState)
    assert calm.watch["calm"] == f"!{MEANS}"
    assert cap.with_["edits"][0]["when"] == "(usage > 0.9)"
    assert cap.why == "${(usage > 0.9) ? 'Full.' : 'Not full.'}"


def test_it_may_be_given_to_a_fragment_and_keeps_its_meaning_there() -> None:
    host = HOST.replace(DEFINE, f"define: {{gone: results.calm.load < 2}}\n{DEFINE}").replace(
        "calm: thrash < 0.01 &&", "calm: gone &&"
    )
    wait = load_text(host, fragments={"verify": VERIFY}).playbook.states["calm_wait"]
    assert isinstance(wait, WatchState)
    assert wait.watch["calm"].startswith("((results.calm_load.load < 2) && usage < baseline.usage) &&")


def test_a_fragment_does_not_see_it() -> None:
    host = HOST.replace(DEFINE, f"define: {{gone: thrash < 0.01}}\n{DEFINE}").replace(
        "calm: thrash < 0.01 &&", "calm: gone &&"
    )
    verify, place = marked(VERIFY, "'parameters.calm &&", "'«gone && parameters.calm &&")
    hint = "A fragment sees no definition of the playbook: give it as a parameter."
    assert faults(host, verify=verify) == [f"fragments/verify.yaml:{place}: unknown name 'gone'. {hint}"]


@pytest.mark.parametrize(
    ("define", "fault"),
    [
        pytest.param(
            "{crowded: «usge > 0.9, thrashes: thrash > settings.ratio && crowded}",
            "unknown name 'usge'. Did you mean 'usage'?",
            id="a-name-in-it",
        ),
        pytest.param(
            "{crowded: usage > 0.9, thrashes: thrash > settings.ratio && «crowdd}",
            "unknown name 'crowdd'. Did you mean 'crowded'?",
            id="another-definition-in-it",
        ),
        pytest.param(
            "{crowded: usage > 0.9, thrashes: crowded, unused: «rom > 1}",
            "unknown name 'rom'. Define it under 'signals' or 'settings'.",
            id="in-one-that-nothing-uses",
        ),
        pytest.param(
            "{crowded: usage «>, thrashes: crowded}",
            "the expression ends too early. Close each bracket, and write what follows the last sign.",
            id="syntax",
        ),
        pytest.param("{crowded: usage > 0.9«), thrashes: crowded}", "')' does not fit here", id="a-bracket-of-the-use"),
        pytest.param("{crowded: «'', thrashes: crowded}", "the expression is empty", id="empty"),
        pytest.param("{crowded: «true, thrashes: crowded}", "'true' is not a text.", id="no-text"),
        pytest.param(
            "{«crowded: , thrashes: crowded}", "'crowded' has no value. Write one, or delete the key.", id="no-value"
        ),
        pytest.param(
            "{crowded: thrashes, «thrashes: crowded}",
            "'thrashes' is defined by itself: thrashes → crowded → thrashes. Write one of them out.",
            id="circular",
        ),
        pytest.param(
            "{«crowded: crowded, thrashes: crowded}",
            "'crowded' is defined by itself: crowded → crowded. Write one of them out.",
            id="itself",
        ),
        pytest.param(
            "{crowded: usage > 0.9, thrashes: crowded, «usage: '1'}",
            "'usage' is a signal already. Take another name.",
            id="named-like-a-signal",
        ),
        pytest.param(
            "{crowded: usage > 0.9, thrashes: crowded, «worst: '1'}",
            "'worst' means something else in expressions. Take another name.",
            id="named-like-a-function",
        ),
        pytest.param(
            "{crowded: usage > 0.9, thrashes: crowded, «Calm: '1'}",
            "'Calm' is not a valid name. Use small letters, digits and underscores.",
            id="no-name",
        ),
    ],
)
def test_a_fault_of_a_definition_is_reported_once_and_there(define: str, fault: str) -> None:
    text, place = with_define(define)
    found = faults(text)
    assert len(found) == 1, found
    assert found[0].startswith(f"p.yaml:{place}: {fault}")


def test_a_use_of_an_unknown_definition_is_reported_there_with_the_nearest_one() -> None:
    text, place = marked(DEFINED, "{when: thrashes,", "{when: «thrashs,")
    assert faults(text) == [f"p.yaml:{place}: unknown name 'thrashs'. Did you mean 'thrashes'?"]
    text, place = marked(DEFINED, "{when: thrashes,", "{when: «thrah,")
    assert faults(text) == [f"p.yaml:{place}: unknown name 'thrah'. Did you mean 'thrash'?"]
    text, place = marked(DEFINED, "{when: thrashes,", "{when: «crowdy,")
    assert faults(text) == [f"p.yaml:{place}: unknown name 'crowdy'. Did you mean 'crowded'?"]


def test_a_definition_of_the_wrong_kind_is_reported_where_it_is_used() -> None:
    text, _ = with_define("{crowded: usage, thrashes: crowded«}")
    assert faults(text)[0].startswith("p.yaml:24:16: the expression gives a number, but true or false is needed here.")


def test_definitions_that_double_at_every_step_are_refused_in_a_moment() -> None:
    chain = ", ".join(f"d{number}: d{number - 1} && d{number - 1}" for number in range(1, 60))
    text, _ = with_define(f"{{crowded: usage > 0.9, d0: crowded, {chain}, thrashes: d59«}}")
    assert "with the definitions that it mentions it has over 1000 characters" in faults(text)[0]


def test_a_definition_that_nothing_uses_is_a_warning_also_if_another_such_one_mentions_it() -> None:
    text, place = with_define(
        "{crowded: usage > 0.9, thrashes: thrash > settings.ratio && crowded, «a: b && crowded, b: usage > 1}"
    )
    warnings = [str(warning) for warning in check_text(text, {}, file="p.yaml").warnings]
    assert warnings[0] == f"p.yaml:{place}: nothing uses the definition 'a'. Delete it, or name it."
    assert ["'b'" in warning for warning in warnings] == [False, True]
