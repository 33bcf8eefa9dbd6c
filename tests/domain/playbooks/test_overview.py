"""The picture by sections: every state in one section, all events named, and the path of a run unfolded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.language import ChangeState, EndState
from bot.domain.playbooks.picture.folding import FIRST, rows_of_fragments, sections_of
from bot.domain.playbooks.picture.overview import LINE_CHARACTERS, SECTIONS, overview, section_picture
from bot.domain.playbooks.picture.picture import Picture, words
from tests.kit.packaged import library

pytestmark = pytest.mark.fast

SHIPPED = library().playbooks
SMALL = (Path(__file__).parent / "small.yaml").read_text(encoding="utf-8")
HEADED = SMALL.replace("\n  cap:", "\n  # --- Cap it. As the text says ---\n  cap:").replace(
    "\n  over:", "\n  # --- Over ------------\n  over:"
)


def texts(picture: Picture, section: str) -> list[str]:
    return next([line.text for line in row.lines] for row in picture.rows if row.name == section)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_section_of_a_shipped_playbook_is_a_row_that_leads_where_its_states_lead(name: str) -> None:
    compiled = SHIPPED[name]
    sections = sections_of(compiled)
    assert sections.keys() == compiled.playbook.states.keys()
    made = overview(compiled)
    assert [row.name for row in made.rows] == list(dict.fromkeys(sections.values()))
    for row in made.rows:
        inside = [state for state, section in sections.items() if section == row.name]
        leads = {sections[edge.to] for state in inside for edge in edges_of(compiled.playbook.states[state])}
        assert {each.to for each in row.exits} == leads - {row.name}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_change_and_every_end_of_a_section_is_named(name: str) -> None:
    compiled, made = SHIPPED[name], overview(SHIPPED[name])
    for state, section in sections_of(compiled).items():
        text = " ".join(texts(made, section))
        match compiled.playbook.states[state]:
            case ChangeState(change=verb):
                assert words(verb).lower() in text
            case EndState(end=end):
                assert words(end).lower() in text
            case _:
                pass


@pytest.mark.parametrize("name", SHIPPED)
def test_a_line_fits_into_its_row_and_a_lane_beside_it(name: str) -> None:
    made = overview(SHIPPED[name])
    assert all(len(line.text) <= LINE_CHARACTERS for row in made.rows for line in row.lines)
    assert all(SECTIONS.lanes_at < made.lane_x(lane) < SECTIONS.width for lane in made.lanes)
    assert all(upper.y + upper.height < lower.y for upper, lower in zip(made.rows, made.rows[1:], strict=False))


def test_a_heading_is_a_comment_up_to_its_first_full_stop() -> None:
    sections = sections_of(load_text(HEADED))
    assert (sections["look"], sections["cap"], sections["over"]) == (FIRST, "Cap it", "Over")


def test_what_a_fragment_brings_stands_in_the_section_that_includes_it() -> None:
    compiled = SHIPPED["kv-cache-oom"]
    sections, fragments = sections_of(compiled), rows_of_fragments(compiled)
    assert sections["shed_judge"] == "Verification"
    assert fragments["shed_judge"] == "shed"


def test_a_playbook_without_headings_shows_every_state() -> None:
    made = overview(load_text(SMALL))
    assert {row.name for row in made.rows} == set(load_text(SMALL).playbook.states)


def test_of_a_run_the_steps_taken_are_listed_and_the_other_sections_only_named() -> None:
    made = overview(load_text(HEADED), path=("look", "cap", "look", "cap"), current="cap")
    assert texts(made, FIRST) == ["Look ×2"]
    assert texts(made, "Over") == []
    now, *after = texts(made, "Cap it")
    assert now.startswith("▶ ")
    assert any(line.strip().startswith("done → ") for line in after)
    assert [row.name for row in made.rows if row.is_current] == ["Cap it"]
    taken = {(row.name, each.to) for row in made.rows for each in row.exits if each.is_taken}
    assert taken == {(FIRST, "Cap it"), ("Cap it", FIRST)}


def test_a_run_inside_a_fragment_says_which_and_what_it_does_there() -> None:
    made = overview(SHIPPED["kv-cache-oom"], path=("gather", "look", "shed_judge"), current="shed_judge")
    assert "▶ Shed: Does the canary pass?" in texts(made, "Verification")


def test_a_closed_run_stands_nowhere() -> None:
    made = overview(load_text(HEADED), path=("look", "over"))
    assert not any(row.is_current for row in made.rows)
    assert texts(made, "Over") == ["Over"]


def test_the_picture_of_a_section_has_its_states_and_names_the_sections_that_it_leads_to() -> None:
    heading = "Procedure: relieve the pressure"
    made = section_picture(SHIPPED["kv-cache-oom"], heading)
    assert made.title == f"KV-cache OOM and preemption thrash: {heading}"
    names = {row.name for row in made.rows}
    inside = {state for state, title in sections_of(SHIPPED["kv-cache-oom"]).items() if title == heading}
    # A fragment is one row.
    fragments = ("roll_out", "grow", "edit")
    own = {state for state in inside if not state.startswith(tuple(f"{name}_" for name in fragments))}
    assert names == own | set(fragments)
    outside = {made.titles[each.to] for row in made.rows for each in row.exits if each.to not in names}
    assert {"Verification ›", "Rollback ›"} <= outside
