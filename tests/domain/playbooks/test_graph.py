"""The picture of a playbook."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_playbook
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


def test_text_from_a_playbook_cannot_break_out_of_its_label() -> None:
    state = PLAYBOOK.states["over"].model_copy(update={"title": 'a"] --> <b>'})
    drawn = mermaid(PLAYBOOK.model_copy(update={"states": {**PLAYBOOK.states, "over": state}}))
    assert 's_over(("a&quot;] --&gt; &lt;b&gt;"))' in drawn
