"""`playbook test`: tables run through the real machine, and deviations are explained in words."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.cli.app import app
from tests.kit.commands import written

pytestmark = pytest.mark.fast

PLAYBOOK = """\
language: 1
playbook: grow
title: Grow
opens_on: ['alertname="A"']
settings:
  limit: {default: 10, why: a test}
  calm_for: {default: 1m, why: a test}
signals:
  waiting: {metric: num_requests_waiting, over: 1m}
  node: {probe: gpu_health}
start: look
states:
  look:
    read: [waiting, node]
    go:
      - {when: node.fault, to: left}
      - {when: waiting > settings.limit, to: choose}
      - {otherwise: calm}
    unknown: choose
  choose:
    ask: Grow?
    choices:
      grow: {label: Grow, to: grow}
      wait: {label: Wait, to: settle}
    expires: 10m
    expired: left
  grow:
    change: scale
    with: {by: '${waiting > 100 ? 2 : 1}'}
    still: waiting > settings.limit
    why: More room.
    done: settle
    not_needed: calm
    refused: choose
    failed: left
  settle:
    watch: {short: waiting <= settings.limit}
    for: settings.calm_for
    within: 24h
    broke: [{when: node.fault, to: left}]
    held: calm
    not_held: left
  calm: {end: fixed}
  left: {end: handed_over}
"""
TABLE = """\
shared:
  given: {waiting: 30, node: {fault: false}}
  answers: {choose: grow}
cases:
  - name: it grows and the queue is gone
    at: {settle: {waiting: 1}}
    expect:
      path: [look, choose, grow, settle, calm]
      ends: fixed
      proposes: [{state: grow, verb: scale, with: {by: 1}}]
  - name: nothing waits
    given: {waiting: 2}
    expect: {path: [look, calm], proposes: []}
  - name: nothing can be read
    given: {waiting: {unknown: no answer}, node: {unknown: no exporter}}
    answers: {choose: expired}
    expect: {path: [look, choose, left], ends: handed_over}
  - name: the node is at fault
    given: {node: {fault: true}}
    expect: {path: [look, left]}
  - name: the queue goes while they decide
    at: {grow: {waiting: 1}}
    expect: {path: [look, ..., grow, calm], proposes: []}
  - name: refused once, then it fails
    changes: {grow: [refused, failed]}
    expect: {path: [..., grow, choose, grow, left]}
  - name: it does not help within a day
    expect: {path: [look, choose, grow, settle, left]}
  - name: the node breaks while it waits
    answers: {choose: wait}
    at: {settle: {node: {fault: true}}}
    expect: {path: [look, choose, settle, left]}
"""


def play(folder: Path, table: str, *options: str, playbook: str = PLAYBOOK) -> Result:
    written(folder, playbook, "grow.yaml")
    path = written(folder, table, "grow.test.yaml")
    return CliRunner().invoke(app, ["playbook", "test", str(path), *options])


def one_case(text: str) -> str:
    return f"- name: it\n  given: {{waiting: 30, node: {{fault: false}}}}\n  answers: {{choose: grow}}\n  {text}\n"


def test_a_whole_table_is_played_and_every_written_edge_counted(tmp_path: Path) -> None:
    result = play(tmp_path, TABLE, "--all-edges")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[-1] == "grow: 8 of 8 cases hold; 14 of 14 written edges, 6 of 6 states"


def test_edges_and_states_that_no_case_reaches_are_named_and_fail_only_where_all_are_asked_for(tmp_path: Path) -> None:
    table = one_case("expect: {path: [look, choose, grow, settle, left]}")
    result = play(tmp_path, table)
    assert result.exit_code == 0
    assert "no case goes from 'look' by 'go 1: node.fault' to 'left'" in result.stdout
    assert "no case goes from 'choose' by 'expired' to 'left'" in result.stdout
    assert "no case enters 'calm'" in result.stdout
    assert play(tmp_path, table, "--all-edges").exit_code == 1


@pytest.mark.parametrize(
    ("case", "words"),
    [
        pytest.param(
            "expect: {path: [look, calm]}",
            "after 'look' 'calm' was expected, and it went to 'choose': waiting > settings.limit (settings.limit = 10, "
            "waiting = 30)",
            id="another-way",
        ),
        pytest.param(
            "expect: {path: [look, ..., calm]}",
            "'calm' was expected somewhere and did not come (it ended: handed_over): look → choose → grow →",
            id="never-there",
        ),
        pytest.param(
            "expect: {path: [look, choose, grow]}",
            "after 'grow' nothing more was expected, and it went to 'settle'",
            id="further",
        ),
        pytest.param(
            "expect: {ends: fixed}", "the end 'fixed' was expected, and it ended as 'handed_over'", id="another-end"
        ),
        pytest.param(
            "expect: {path: [...], proposes: [{state: grow, verb: scale, with: {by: 2}}]}",
            "proposal 1 (grow): by should be 2, and is 1",
            id="another-argument",
        ),
        pytest.param(
            "expect: {path: [...], proposes: [{state: grow, beside: [wait]}]}",
            "proposal 1 (grow): the options beside it should be [wait], and are []",
            id="other-options",
        ),
        pytest.param(
            "expect: {severity: ticket}",
            "the severity 'ticket' was expected, and it is 'page'",
            id="another-severity",
        ),
        pytest.param(
            "expect: {notes: {look: requests wait}}",
            "the note 'requests wait' of 'look' was expected, and it is ''",
            id="no-note",
        ),
        pytest.param(
            "at: {settle: {waiting: 1}}\n  expect: {watches: {settle: 'broke:0'}}",
            "the verdict 'broke:0' of 'settle' was expected, and it is 'held'",
            id="another-verdict",
        ),
        pytest.param(
            "at: {look: {waiting: 2}}\n  expect: {watches: {settle: held}}",
            "the verdict 'held' of 'settle' was expected, and it is ''",
            id="no-watch",
        ),
        pytest.param(
            "expect: {path: [...], proposes: []}",
            "nothing more was to be proposed, and grow proposes scale {'by': 1}",
            id="one-change-too-many",
        ),
        pytest.param(
            "changes: {grow: impossible}\n  expect: {ends: fixed}",
            "the end 'fixed' was expected, and it stopped in 'grow': nobody answers: the table says: impossible",
            id="an-outcome-that-is-not-written",
        ),
    ],
)
def test_the_first_deviation_is_described_in_words(tmp_path: Path, case: str, words: str) -> None:
    result = play(tmp_path, one_case(case))
    assert result.exit_code == 1
    assert words in result.stdout


def test_a_case_may_stop_at_a_question_and_say_what_it_asks(tmp_path: Path) -> None:
    table = one_case(
        'changes: {grow: impossible}\n  expect: {path: [look, choose, grow], asks: "the table says: impossible"}'
    )
    assert play(tmp_path, table).exit_code == 0


def test_a_built_in_question_is_answered_like_a_written_one(tmp_path: Path) -> None:
    path = "[look, choose, grow, grow, settle, calm]"
    table = f"""
- name: it
  given: {{waiting: 30, node: {{fault: false}}}}
  changes: {{grow: [impossible, done]}}
  answers: {{choose: grow, grow: again}}
  at: {{settle: {{waiting: 1}}}}
  expect: {{path: {path}}}
"""
    assert play(tmp_path, table).exit_code == 0


def test_a_case_that_deviates_proves_no_edge(tmp_path: Path) -> None:
    result = play(tmp_path, one_case("expect: {path: [look, calm]}"))
    assert "0 of 14 written edges" in result.stdout
    assert "no case" not in result.stdout, "the deviation is not buried below what it would have covered"


def test_settings_of_a_case_count_for_it_alone(tmp_path: Path) -> None:
    table = (
        one_case("settings: {limit: 50}\n  expect: {path: [look, calm]}")
        + "- name: other\n"
        + one_case("expect: {path: [look, choose, ...]}").partition("\n")[2]
    )
    assert play(tmp_path, table).exit_code == 0


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        ("at: {look: {waiting: much}}\n  expect: {ends: fixed}", "'much' is not a number. Or write {unknown: why}."),
        ("expect: [look, over]", "this is not a mapping of keys. Write {key: value}."),
        ("expect: {path: look}", "this is not a list. Write [one, two]."),
        ("at: {look: {node: {fault: 1}}}\n  expect: {ends: fixed}", "'1' is not true or false. Or write {unknown"),
        ("expect: {ends: fixd}", "4:18: no playbook ends with 'fixd'. Did you mean 'fixed'?"),
        ("expect: {path: [look, claim]}", "4:25: unknown state 'claim'. Did you mean 'calm'?"),
        ("expect: {pth: [look]}", "4:12: unknown key 'pth'"),
        ("at: {lok: {waiting: 1}}\n  expect: {ends: fixed}", "4:8: unknown state 'lok'"),
        ("at: {look: {waitin: 1}}\n  expect: {ends: fixed}", "4:15: unknown signal 'waitin'"),
        ("at: {look: {node: {falt: true}}}\n  expect: {ends: fixed}", "unknown part of 'gpu_health' 'falt'"),
        ("changes: {grow: dne}\n  expect: {ends: fixed}", "'dne' is nothing that can happen in 'grow'"),
        ("watches: {grow: held}\n  expect: {ends: fixed}", "'grow' is not a watch, it is a change"),
        ("expect: {notes: {lok: it waits}}", "unknown state 'lok'. Did you mean 'look'?"),
        ("expect: {watches: {settle: 'broke:1'}}", "'broke:1' is nothing that can happen in 'settle'"),
        ("expect: {watches: {look: held}}", "'look' is not a watch, it is a read"),
        ("expect: {}", "4:3: this expects nothing"),
        ("expect: {path: [...]}", "4:3: this expects nothing"),
    ],
)
def test_a_table_that_names_nothing_is_a_fault_with_its_place(tmp_path: Path, case: str, fault: str) -> None:
    result = play(tmp_path, one_case(case))
    assert result.exit_code == 1
    assert fault in result.stderr


def test_a_broken_playbook_does_not_hide_the_tables_of_others(tmp_path: Path) -> None:
    written(
        tmp_path,
        PLAYBOOK.replace("playbook: grow", "playbook: broken").replace("start: look", "start: lok"),
        "broken.yaml",
    )
    written(tmp_path, TABLE, "broken.test.yaml")
    written(tmp_path, PLAYBOOK, "grow.yaml")
    written(tmp_path, TABLE, "grow.test.yaml")
    result = CliRunner().invoke(app, ["playbook", "test", str(tmp_path)])
    assert result.exit_code == 1
    assert "unknown state 'lok'" in result.stderr
    assert "grow: 8 of 8 cases hold" in result.stdout


def test_a_folder_that_tests_nothing_does_not_pass(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK, "grow.yaml")
    result = CliRunner().invoke(app, ["playbook", "test", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{tmp_path}: there is no test table (*.test.yaml) in this folder" in result.stderr


def test_a_playbook_without_a_table_is_named_beside_those_that_have_one(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK, "grow.yaml")
    written(tmp_path, TABLE, "grow.test.yaml")
    written(tmp_path, PLAYBOOK.replace("playbook: grow", "playbook: bare"), "bare.yaml")
    result = CliRunner().invoke(app, ["playbook", "test", str(tmp_path)])
    assert "bare.yaml: has no test table" in result.stderr
    assert result.exit_code == 0
    assert CliRunner().invoke(app, ["playbook", "test", "--all-edges", str(tmp_path)]).exit_code == 1


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, PLAYBOOK, "grow.yaml")
    result = CliRunner().invoke(app, ["playbook", "test", str(path)])
    assert result.exit_code == 1
    assert "grow.test.yaml: there is no such test table" in result.stderr


DIVERTING = """\
language: 1
playbook: grow
title: Ask another playbook
opens: by_hand
form:
  gain: {label: Which gain?, kind: number, min: 1, max: 64}
start: look
states:
  look:
    ask: Go there?
    at_most: 2
    beyond: enough
    choices:
      there: {label: There, to: there, form: {why: {label: Why?, optional: true}}}
      away: {label: Away, to: away}
  there:
    divert: other
    why: It knows more.
    returns: {fixed: over, otherwise: look}
  away: {divert: other, why: It is theirs.}
  over: {end: fixed}
  enough: {end: handed_over}
"""


def diverts(folder: Path, *cases: str) -> Result:
    written(folder, PLAYBOOK.replace("playbook: grow", "playbook: other"), "other.yaml")
    shared = "shared: {opened_by: hand, form: {gain: 4}, answers: {look: there}}\ncases:\n"
    return play(folder, shared + "".join(f"  - {{{case}}}\n" for case in cases), "--all-edges", playbook=DIVERTING)


def test_the_other_playbook_ends_as_the_table_says(tmp_path: Path) -> None:
    result = diverts(
        tmp_path,
        "name: back, diverts: {there: fixed}, expect: {path: [look, there, over], ends: fixed}",
        "name: twice, diverts: {there: [handed_over, fixed]}, expect: {path: [look, there, look, there, over]}",
        "name: too often, diverts: {there: handed_over}, expect: {path: [..., there, enough], ends: handed_over}",
        "name: for good, answers: {look: away}, diverts: {away: fixed}, expect: {path: [look, away], ends: fixed}",
        "name: with a form, answers: {look: {choice: there, fields: {why: so}}}, diverts: {there: fixed}, "
        "expect: {ends: fixed}",
    )
    assert result.exit_code == 0, result.stdout
    assert "grow: 5 of 5 cases hold; 5 of 5 written edges, 5 of 5 states" in result.stdout


def test_a_divert_of_which_nobody_says_the_end_is_where_a_case_stops(tmp_path: Path) -> None:
    result = diverts(tmp_path, "name: open, expect: {path: [look, there], ends: fixed}")
    assert "it stopped in" in result.stdout
    assert "How does other end?" in result.stdout


def test_a_form_that_does_not_count_is_a_fault_of_the_table(tmp_path: Path) -> None:
    result = diverts(tmp_path, "name: too much, form: {gain: 100}, expect: {ends: fixed}")
    assert "Which gain?: at most 64" in result.stderr


def test_what_a_case_that_deviates_does_not_say_is_named(tmp_path: Path) -> None:
    table = "- name: it\n  given: {waiting: 30}\n  expect: {path: [look, calm]}\n"
    assert "    the case does not say what is read in 'look': node\n" in play(tmp_path, table).stdout


RENEW = """\
language: 1
playbook: grow
title: Renew
opens_on: ['alertname="A"']
signals:
  running: {metric: num_requests_running, across: each}
start: look
states:
  look:
    read: [running]
    pick: {replica: worst(running)}
    go: [{otherwise: renew}]
  renew:
    include: drain_one
    with: {still: 'value_of(running, picked.replica) > 9', reason: It is too busy.}
    exits: {done: over, refused: over, failed: over, not_empty: renew_sticky, kept: renew_back, hand_over: over}
  over: {end: fixed}
"""


def test_edges_within_a_fragment_are_counted_and_named_only_where_all_are_asked_for(tmp_path: Path) -> None:
    table = "- name: it\n  expect: {path: [look]}\n"
    short = play(tmp_path, table, playbook=RENEW).stdout
    assert "in the fragment of 'renew' no case takes" in short
    assert "from 'renew_canary'" not in short
    assert "no case enters 'renew_canary'" in play(tmp_path, table, "--all-edges", playbook=RENEW).stdout


def test_an_edge_within_a_fragment_needs_a_case_in_one_playbook_only_and_an_exit_in_each(tmp_path: Path) -> None:
    case = (
        "- name: it\n  given: {running: {a: 10, b: 1}, drain_mode: {mode: {unknown: no answer}}}\n"
        "  answers: {renew_cannot: stop}\n  expect: {path: ['...', renew_mode, renew_cannot, over]}\n"
    )
    for name, cases in (("grow", case), ("other", "- name: it\n  expect: {path: [look]}\n")):
        written(tmp_path, RENEW.replace("grow", name), f"{name}.yaml")
        written(tmp_path, cases, f"{name}.test.yaml")
    output = CliRunner().invoke(app, ["playbook", "test", "--all-edges", str(tmp_path)]).stdout
    left = [line for line in output.splitlines() if line.startswith("  other: no case")]
    assert not any("'renew_mode' by 'unknown" in line for line in left), "the other playbook has a case for it"
    assert any("'renew_cannot' by 'choices stop" in line for line in left), "it leads elsewhere in each playbook"


RECOMMENDS = (
    PLAYBOOK[: PLAYBOOK.index("  choose:\n")]
    + """\
  choose:
    recommend: How?
    why: It waits.
    still: waiting > settings.limit
    done: calm
    otherwise: left
    options:
      more: {label: Add one, possible: waiting > 10, change: scale, with: {by: 1}}
      people: {label: Hand over, to: left}
  calm: {end: fixed}
  left: {end: handed_over}
"""
)


def test_the_only_change_of_a_recommendation_is_no_answer_to_it(tmp_path: Path) -> None:
    case = "- name: it\n  answers: {choose: more}\n  expect: {ends: fixed}\n"
    result = play(tmp_path, f"cases:\n{case}", playbook=RECOMMENDS)
    assert "'more' is nothing that can happen in 'choose'. Write 'changes: {choose_more: done}'." in result.stderr
