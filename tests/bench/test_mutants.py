"""Mutants: which small faults are made in a playbook, and which of them a test table notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.playbooks.language import RecommendState
from tests.bench.mutants import CHECK, Report, main, report, without_killed_elsewhere
from tests.bench.mutations import mutated, mutations_of
from tests.cli.test_playbook_test import PLAYBOOK, TABLE
from tests.domain.incidents.machine.recommendations import TEXT as RECOMMENDING
from tests.kit.commands import written

pytestmark = pytest.mark.fast

GROW = load_text(PLAYBOOK)
RELIEVE = load_text(RECOMMENDING)


@pytest.mark.parametrize(
    ("state", "mutations"),
    [
        pytest.param(
            GROW.state("look"),
            [
                "drop go 1: node.fault",
                "drop go 2: waiting > settings.limit",
                "negate go 1: node.fault",
                "negate go 2: waiting > settings.limit",
                "swap go 1 and go 2: left, choose",
                "swap go 2 and go 3 otherwise: choose, calm",
                "swap go 3 otherwise and unknown: calm, choose",
            ],
            id="read",
        ),
        pytest.param(
            GROW.state("choose"),
            [
                "swap choices grow and choices wait: grow, settle",
                "swap choices wait and expired: settle, left",
            ],
            id="ask",
        ),
        pytest.param(
            GROW.state("grow"),
            [
                "drop still: waiting > settings.limit",
                "swap done and not_needed: settle, calm",
                "swap not_needed and refused: calm, choose",
                "swap refused and failed: choose, left",
            ],
            id="change",
        ),
        pytest.param(
            GROW.state("settle"),
            [
                "drop broke 1: node.fault",
                "negate broke 1: node.fault",
                "swap held and not_held: calm, left",
            ],
            id="watch",
        ),
        pytest.param(
            RELIEVE.state("relieve"),
            [
                "negate options grow possible: room > 0",
                "negate options restart possible: (usage > settings.ceiling)",
                "negate options people possible",
                "reorder options grow and options restart",
                "reorder options restart and options people",
            ],
            id="recommend",
        ),
        pytest.param(GROW.state("calm"), [], id="end"),
    ],
)
def test_the_faults_that_are_made_in_a_state(state: object, mutations: list[str]) -> None:
    assert [str(mutation) for mutation in mutations_of(state)] == mutations  # type: ignore[arg-type]


def test_each_mutation_changes_its_state() -> None:
    states = [*GROW.playbook.states.values(), *RELIEVE.playbook.states.values()]
    unchanged = [
        str(mutation) for state in states for mutation in mutations_of(state) if mutated(state, mutation) is None
    ]
    assert unchanged == []


def test_options_are_tried_in_another_order() -> None:
    state = RELIEVE.state("relieve")
    (first, *_) = [mutation for mutation in mutations_of(state) if mutation.how == "reorder"]
    changed = mutated(state, first)
    assert list(getattr(changed, "options", ())) == ["restart", "grow", "people"]


def test_the_only_change_among_the_options_is_not_moved() -> None:
    state = RELIEVE.state("relieve")
    assert isinstance(state, RecommendState)
    people = state.options["people"]
    options = {"grow": state.options["grow"], "people": people, "later": people}
    found = mutations_of(state.model_copy(update={"options": options}))
    assert [str(one) for one in found if one.how == "reorder"] == ["reorder options people and options later"]


# --- what a table notices ---------------------------------------------------------------------------------------------

ONE_CASE = """\
- name: it grows
  given: {waiting: 30, node: {fault: false}}
  answers: {choose: grow}
  watches: {settle: held}
  expect: {path: [look, choose, grow, settle, calm]}
"""
SHORT_BUT_BROKEN = "{settle: {waiting: 1, node: {fault: true}}}"


def judged(folder: Path, table: str, playbook: str = PLAYBOOK) -> Report:
    written(folder, playbook, "grow.yaml")
    return report(written(folder, table, "grow.test.yaml"), jobs=1)


def survivors(found: Report) -> list[str]:
    return [str(verdict.mutant) for verdict in found.survivors]


def test_a_table_that_takes_every_edge_may_still_miss_a_fault(tmp_path: Path) -> None:
    # The watch would not have held anyway, and both exits lead to 'left'.
    assert survivors(judged(tmp_path, TABLE)) == ["settle: drop broke 1: node.fault"]


def test_a_better_case_leaves_no_survivor(tmp_path: Path) -> None:
    found = judged(tmp_path, TABLE.replace("{settle: {node: {fault: true}}}", SHORT_BUT_BROKEN))
    assert (len(found.verdicts), survivors(found)) == (16, [])


def test_a_mutant_that_no_case_notices_survives_and_one_that_a_case_notices_is_killed(tmp_path: Path) -> None:
    found = judged(tmp_path, ONE_CASE)
    killed_by = {str(verdict.mutant): verdict.killed_by for verdict in found.verdicts}
    assert killed_by["settle: swap held and not_held: calm, left"] == "it grows"
    assert killed_by["grow: drop still: waiting > settings.limit"] == ""
    # The table gives the verdict of the watch, so its condition decides nothing.
    assert killed_by["settle: negate broke 1: node.fault"] == ""


def test_a_clause_that_a_case_answers_with_is_not_left_out_unnoticed(tmp_path: Path) -> None:
    found = judged(tmp_path, ONE_CASE.replace("settle: held", "settle: 'broke:0'").replace("calm]", "left]"))
    killed_by = {str(verdict.mutant): verdict.killed_by for verdict in found.verdicts}
    assert killed_by["settle: drop broke 1: node.fault"] == "it grows"


def test_a_mutant_in_a_state_that_no_case_enters_survives(tmp_path: Path) -> None:
    table = "- {name: calm, given: {waiting: 1, node: {fault: false}}, expect: {path: [look, calm]}}\n"
    found = judged(tmp_path, table)
    (one,) = [each for each in found.survivors if str(each.mutant) == "settle: drop broke 1: node.fault"]
    assert one.cases == 0


def test_a_mutant_that_the_check_refuses_is_killed(tmp_path: Path) -> None:
    # Without this clause nothing leads to 'left', and no case comes here.
    playbook = PLAYBOOK.replace("to: left}]", "to: gone}]") + "  gone: {end: handed_over}\n"
    found = judged(tmp_path, ONE_CASE, playbook)
    (one,) = [each for each in found.verdicts if str(each.mutant) == "settle: drop broke 1: node.fault"]
    assert one.killed_by == CHECK


def test_mutants_of_the_states_of_several_cases_are_made(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK, "grow.yaml")
    table = written(tmp_path, TABLE, "grow.test.yaml")
    found = report(table, through=["nothing waits", "nothing can be read"], jobs=1)
    assert {one.mutant.states for one in found.verdicts} == {("look",), ("choose",)}
    with pytest.raises(SystemExit, match="no case 'nothing'"):
        report(table, through=["nothing"], jobs=1)


def test_a_case_that_deviates_anyway_is_left_out_and_named(tmp_path: Path) -> None:
    found = judged(tmp_path, ONE_CASE.replace("settle, calm]", "settle, left]"))
    assert found.deviating == ("it grows",)
    assert {verdict.killed_by for verdict in found.verdicts} <= {"", CHECK}


FRAGMENT = """\
language: 1
fragment: quiet
summary: Wait until nothing waits.
parameters: {}
exits: {quiet: it is quiet, busy: it is not}
signals:
  waiting: {metric: num_requests_waiting, over: 1m}
start: see
states:
  see:
    watch: {short: waiting <= 1}
    for: 1m
    within: 5m
    held: exits.quiet
    not_held: exits.busy
    unknown: exits.busy
"""
INCLUDING = """\
language: 1
playbook: grow
title: Grow
opens_on: ['alertname="A"']
start: first
states:
  first: {include: quiet, exits: {quiet: calm, busy: second}}
  second: {include: quiet, exits: {quiet: calm, busy: left}}
  calm: {end: fixed}
  left: {end: handed_over}
"""


def test_a_state_of_a_fragment_is_mutated_in_all_its_includes_at_once(tmp_path: Path) -> None:
    (tmp_path / "fragments").mkdir()
    written(tmp_path / "fragments", FRAGMENT, "quiet.yaml")
    table = "- {name: calm, watches: {first_see: held}, expect: {ends: fixed}}\n"
    found = judged(tmp_path, table, INCLUDING)
    assert [verdict.mutant.states for verdict in found.verdicts] == [("first_see", "second_see")]
    assert found.survivors == ()


def test_a_survivor_in_a_fragment_that_another_table_kills_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "fragments").mkdir()
    written(tmp_path / "fragments", FRAGMENT, "quiet.yaml")
    nothing_expected = '- {name: calm, watches: {first_see: held}, expect: {path: [first_see, "..."]}}\n'
    found = judged(tmp_path, nothing_expected, INCLUDING)
    assert [str(one.mutant.mutation) for one in found.survivors] == ["swap held and not_held: calm, second_see"]
    written(tmp_path, INCLUDING.replace("playbook: grow", "playbook: shrink"), "shrink.yaml")
    other = written(tmp_path, "- {name: calm, watches: {first_see: held}, expect: {ends: fixed}}\n", "shrink.test.yaml")
    left = without_killed_elsewhere(found, [other])
    assert (left.survivors, left.killed_elsewhere) == ((), 1)
    unnoticed = written(tmp_path, nothing_expected, "shrink.test.yaml")
    assert without_killed_elsewhere(found, [unnoticed]).survivors == found.survivors


def test_the_command_prints_scores_and_survivors_of_a_sample(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    playbook = written(tmp_path, PLAYBOOK, "grow.yaml")
    written(tmp_path, ONE_CASE, "grow.test.yaml")
    main([str(playbook), "--states=grow"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "grow: 4 mutants, 1 killed (0 only by the check), 3 survive, score 25.0 %"
    assert printed[1:3] == [
        "  grow: drop still: waiting > settings.limit (1 case comes through)",
        "    the check warns: a change without a reason that must still hold",
    ]
    main([str(playbook), "--sample=3"])
    assert capsys.readouterr().out.startswith("grow: 3 mutants, ")
