"""The picture of a playbook."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.kernel.runbook import Runbook
from bot.domain.playbooks.picture.graph import mermaid

pytestmark = pytest.mark.fast

PLAYBOOK = load_playbook(Path(__file__).parent / "small.yaml").playbook


def test_every_state_and_every_way_is_drawn_once() -> None:
    lines = mermaid(PLAYBOOK).splitlines()
    assert lines[0] == "flowchart TD"
    assert sum(line.startswith("  s_") and "-->" not in line for line in lines) == len(PLAYBOOK.states)
    assert [line for line in lines if line.startswith("  s_calm -->")] == [
        '  s_calm -->|"held"| s_over',
        '  s_calm -->|"restarts.oom"| s_question',
    ]


def test_kinds_have_their_own_shapes() -> None:
    text = mermaid(PLAYBOOK)
    for drawn in (
        's_look["look"]',
        's_question{{"question"}}',
        's_cap[["cap"]]',
        's_calm(["calm"])',
        's_over(("over"))',
    ):
        assert drawn in text


def test_the_way_taken_and_the_present_state_are_marked() -> None:
    lines = mermaid(PLAYBOOK, path=("look", "cap", "calm"), current="calm").splitlines()
    arrows = [line for line in lines if "-->" in line]
    marked = next(line for line in lines if "linkStyle" in line).split()[1].split(",")
    assert [arrows[int(number)].split()[0] + arrows[int(number)].split()[-1] for number in marked] == [
        "s_looks_cap",
        "s_caps_calm",
    ]
    assert lines[-1] == "  class s_calm current"


def with_runbook(runbook: Runbook) -> str:
    state = PLAYBOOK.states["over"].model_copy(update={"runbook": runbook})
    return mermaid(PLAYBOOK.model_copy(update={"states": {**PLAYBOOK.states, "over": state}}))


def test_a_step_of_the_runbook_is_in_the_label_and_links_to_it() -> None:
    drawn = with_runbook(Runbook(step='3 "Close"', url="https://wiki/kv#3"))
    assert '  s_over(("over<br>Runbook: 3 &quot;Close&quot;"))' in drawn
    assert '  click s_over href "https://wiki/kv#3" "3 &quot;Close&quot;"' in drawn


def test_an_address_that_is_no_safe_link_is_not_in_the_graph() -> None:
    assert "click" not in with_runbook(Runbook(step="3", url='https://wiki/"\nx'))


def test_text_from_a_playbook_cannot_break_out_of_its_label() -> None:
    state = PLAYBOOK.states["over"].model_copy(update={"title": 'a"] --> <b>'})
    drawn = mermaid(PLAYBOOK.model_copy(update={"states": {**PLAYBOOK.states, "over": state}}))
    assert 's_over(("a&quot;] --&gt; &lt;b&gt;"))' in drawn
