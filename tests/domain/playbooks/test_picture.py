"""The layout of the picture: everything once, nothing across another, the path of a run marked."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_playbook
from bot.domain.playbooks.edges import edges_of
from bot.domain.playbooks.picture.picture import EVERY_STATE, Picture, picture, target_title
from tests.kit.packaged import packaged

pytestmark = pytest.mark.fast

SMALL = load_playbook(Path(__file__).parent / "small.yaml").playbook
SHIPPED = packaged("kv-cache-oom").playbook
PICTURES = [picture(SMALL), picture(SHIPPED)]


@pytest.mark.parametrize("made", PICTURES, ids=["small", "shipped"])
def test_every_state_is_a_row_below_the_one_before(made: Picture) -> None:
    playbook = SMALL if made is PICTURES[0] else SHIPPED
    assert [row.name for row in made.rows] == list(playbook.states)
    assert all(upper.y + upper.height < lower.y for upper, lower in zip(made.rows, made.rows[1:], strict=False))
    for row in made.rows:
        assert {each.to for each in row.exits} == {edge.to for edge in edges_of(playbook.states[row.name])}


@pytest.mark.parametrize("made", PICTURES, ids=["small", "shipped"])
def test_lanes_stay_beside_the_rows_and_no_two_share_a_place(made: Picture) -> None:
    assert all(EVERY_STATE.lanes_at < made.lane_x(lane) < EVERY_STATE.width for lane in made.lanes)
    for one, other in combinations(made.lanes, 2):
        assert one.number != other.number or one.ends < other.begins or other.ends < one.begins


@pytest.mark.parametrize("made", PICTURES, ids=["small", "shipped"])
def test_every_way_has_its_lane_or_leads_to_the_next_row(made: Picture) -> None:
    ends = {(lane.to, y) for lane in made.lanes for y in lane.sources}
    for row in made.rows:
        for each in row.exits:
            assert each.is_next or (each.to, each.y) in ends


def test_the_way_of_a_run_and_where_it_stands_are_marked() -> None:
    made = picture(SMALL, path=("look", "cap", "calm"), current="calm")
    rows = {row.name: row for row in made.rows}
    assert [row.name for row in made.rows if row.is_visited] == ["look", "cap", "calm"]
    assert [row.name for row in made.rows if row.is_current] == ["calm"]
    taken = {(row.name, each.to) for row in made.rows for each in row.exits if each.is_taken}
    assert taken == {("look", "cap"), ("cap", "calm")}
    lane = next(lane for lane in made.lanes if lane.to == "cap")
    assert lane.taken == tuple(each.y for each in rows["look"].exits if each.to == "cap")


def test_the_states_of_a_fragment_are_one_row() -> None:
    made = picture(SMALL, folded={"cap": "fix", "calm": "fix"}, path=("look", "cap", "calm"), current="calm")
    fix = next(row for row in made.rows if row.name == "fix")
    assert (fix.title, fix.kind, fix.is_current) == ("Fix (2 states of a fragment)", "fragment", True)
    assert {each.to: each.label for each in fix.exits} == {"question": "failed / restarts.oom", "over": "held"}


def test_a_long_title_is_cut_where_it_would_leave_its_place() -> None:
    state = SMALL.states["over"].model_copy(update={"title": "x" * 200})
    made = picture(SMALL.model_copy(update={"states": {**SMALL.states, "over": state}}))
    assert len(target_title(made, "over")) == 40
