"""`playbook rehearse --scrapes`: a run over the recorded pages of a real server that thrashed and was capped."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bot.adapters.yaml_playbooks import load_playbook
from bot.cli.app import app
from bot.cli.failures import CommandError
from bot.cli.playbook_rehearse import read_answers
from bot.cli.rehearse_in_sandbox import (
    Wanted,
    fields_to_fill,
    labels_to_press,
    nothing_opened,
    shortened,
    wanted_alert,
    window_lines,
)
from bot.sandbox.scenarios import THRASH, Scenario
from tests.kit.archives import unpack
from tests.kit.captures import ARCHIVE
from tests.kit.commands import written

CAPTURE = "A_thrash_then_lower_max_num_seqs"
PLAYBOOK = """\
language: 1
playbook: cap
title: Cap a thrash
opens_on: ['alertname="A"']
settings:
  window: {default: 5m, why: the level and not a burst}
  calm_for: {default: 3m, why: a test}
signals:
  thrash: {ratio: [num_preemptions, request_success], over: settings.window}
  kv_usage: {metric: kv_cache_usage_perc, over: settings.window, take: p90}
  prompt: {mean: request_prompt_tokens, over: settings.window}
  output: {mean: request_generation_tokens, over: settings.window}
  pool: {probe: kv_budget}
  node: {probe: gpu_health}
start: look
states:
  look:
    read: [thrash, kv_usage, node]
    go:
      - {when: node.fault, to: left}
      - {when: thrash > 0.1 && kv_usage > 0.9, to: choose}
      - {otherwise: clear}
    unknown: left
  choose:
    ask: Cap it?
    choices: {cap: {label: Cap, to: cap}, leave: {label: Leave, to: left}}
    expires: 10m
    expired: left
  cap:
    change: set_flags
    with: {edits: [{flag: --max-num-seqs, value: '${cap_from_pool(0.9, pool.tokens, prompt + output)}'}]}
    still: thrash > 0.1
    against: kv_thrash
    why: Fewer sequences fit.
    done: calm
  calm:
    watch: {calm: thrash < 0.01 && kv_usage < 0.9}
    for: settings.calm_for
    within: 4m
    held: fixed
    not_held: left
  clear: {end: self_cleared}
  fixed: {end: fixed}
  left: {end: handed_over}
"""
SHORT = ("--set", "window=30s", "--set", "calm_for=20s")
GIVEN = "given: {node: {fault: false}}\n"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    with tarfile.open(ARCHIVE) as archive:
        members = [member for member in archive.getmembers() if CAPTURE in member.name]
        unpack(archive, folder, members)
    return next(folder.rglob(CAPTURE))


def rehearse(recording: Path, folder: Path, answers: str, *options: str, typed: str = "") -> Result:
    playbook, file = written(folder, PLAYBOOK, "cap.yaml"), written(folder, answers, "answers.yaml")
    arguments = ["playbook", "rehearse", str(playbook), "--scrapes", str(recording), "--answers", str(file), *options]
    return CliRunner().invoke(app, arguments, input=typed)


def line_with(result: Result, words: str) -> str:
    return next(line for line in result.stdout.splitlines() if words in line)


def test_in_the_thrash_it_proposes_the_cap_and_sees_it_work(recording: Path, tmp_path: Path) -> None:
    result = rehearse(recording, tmp_path, GIVEN + "answers: {choose: cap}", "--opens-at", "100", *SHORT)
    assert result.exit_code == 0, result.output
    assert "path: look → choose → cap → calm → fixed" in result.stdout
    proposed = "proposed at 100.0 s in 'cap': set_flags {'edits': [{'flag': '--max-num-seqs', 'value': 6}]}"
    assert proposed in result.stdout
    held = line_with(result, "verdict: calm: held")
    # The server was restarted with the cap after 169 s and had no full window of its own before 199 s.
    assert 199 < float(held.split()[0]) < 280
    assert result.stdout.index("[recorded: SIGTERM server]") < result.stdout.index("verdict: calm: held")


def test_a_healthy_server_is_left_alone(recording: Path, tmp_path: Path) -> None:
    result = rehearse(recording, tmp_path, GIVEN, "--opens-at", "40", *SHORT)
    assert "path: look → clear" in result.stdout
    assert "proposed: nothing" in result.stdout


def test_what_a_recording_does_not_contain_is_unknown(recording: Path, tmp_path: Path) -> None:
    result = rehearse(recording, tmp_path, "given: {}", "--opens-at", "100", *SHORT)
    assert "path: look → left" in result.stdout
    assert "no source for 'gpu_health' is configured" in result.stdout


def test_what_no_file_answers_is_asked_in_the_terminal(recording: Path, tmp_path: Path) -> None:
    result = rehearse(recording, tmp_path, GIVEN, "--opens-at", "100", *SHORT, typed="7\n2\n")
    assert "1  Cap  (cap)" in result.stdout
    assert "write a number from 1 to 2" in result.stdout
    assert "path: look → choose → left" in result.stdout


def test_where_nobody_answers_and_where_the_recording_ends_it_stops_and_says_so(
    recording: Path, tmp_path: Path
) -> None:
    silent = rehearse(recording, tmp_path, GIVEN, "--opens-at", "100", *SHORT)
    assert "stopped in 'choose': nobody answers: Cap it?" in silent.stdout
    answers = GIVEN + "answers: {choose: cap}"
    late = rehearse(recording, tmp_path, answers, "--opens-at", "160", "--set", "window=30s", "--set", "calm_for=3m")
    assert "stopped in 'calm': the recording ends here" in late.stdout


def test_the_file_of_answers_and_the_folder_are_checked(recording: Path, tmp_path: Path) -> None:
    assert "unknown state 'chose'" in rehearse(recording, tmp_path, "answers: {chose: cap}").stderr
    assert "holds no recording" in rehearse(tmp_path, tmp_path, GIVEN).stderr
    assert "it cannot open at 900 s" in rehearse(recording, tmp_path, GIVEN, "--opens-at", "900").stderr


def test_in_the_sandbox_an_alert_must_open_the_playbook_that_is_meant(tmp_path: Path) -> None:
    playbook = written(tmp_path, PLAYBOOK, "cap.yaml")
    result = CliRunner().invoke(app, ["playbook", "rehearse", str(playbook), "--alert", "alertname=B"])
    assert result.exit_code == 1
    assert "no playbook would open on an alert B; 'cap' opens on: alertname=\"A\"" in result.stderr


def test_in_the_sandbox_no_window_is_shorter_than_the_playbook_allows(tmp_path: Path) -> None:
    text = PLAYBOOK.replace("window: {default:", "window: {min: 15s, default:", 1)
    found = load_playbook(written(tmp_path, text, "watcher.yaml"))
    assert shortened(found, {})["window"] == "15s"
    assert shortened(found, {"window": "20s"})["window"] == "20s"


def test_windows_that_stay_long_in_the_sandbox_are_named(tmp_path: Path) -> None:
    found = load_playbook(written(tmp_path, PLAYBOOK, "cap.yaml"))
    windows = {name: "15s" for name in found.settings if name != "window"}
    first, second = window_lines(found, windows)
    assert first.startswith("Windows are shortened: ")
    assert (
        second
        == f"As long as written: window {found.playbook.settings['window'].default}. `--set NAME=10s` shortens one."
    )
    assert window_lines(found, {})[0] == "No window of this playbook is shortened."


def test_a_test_table_in_place_of_answers_is_recognized(tmp_path: Path) -> None:
    found = rehearse(tmp_path, tmp_path, "cases:\n  - {name: one}\n")
    assert found.exit_code == 1
    assert "answers.yaml:1:1: this is a test table, not a file of answers. Name a file with" in found.stderr


def test_an_alert_that_opened_nothing_is_reported_with_the_reason_that_the_bot_kept() -> None:
    text = nothing_opened(["serving/ghost: no such workload", "serving/ghost: no such workload"], "a log")
    assert text == (
        "The alert opened no incident: serving/ghost: no such workload.\n"
        "Give it other labels; example: --alert deployment=llm"
    )


def test_without_a_reason_the_last_words_of_the_bot_are_shown_since_its_log_goes_with_the_sandbox() -> None:
    assert nothing_opened([], "one\ntwo").endswith("Its last output:\none\ntwo")


def test_a_playbook_that_the_alert_does_not_open_is_reported_with_an_alert_that_does(tmp_path: Path) -> None:
    compiled = load_playbook(written(tmp_path, PLAYBOOK, "cap.yaml"))
    with pytest.raises(CommandError, match=r"example: --alert alertname=A$"):
        wanted_alert(compiled, tmp_path, {})


@pytest.mark.parametrize("key", ["given: {node: {fault: false}}", "at: {look: {thrash: 1}}", "changes: {cap: failed}"])
def test_the_sandbox_refuses_a_file_that_says_what_only_the_sandbox_can_say(key: str, tmp_path: Path) -> None:
    """Its fleet gives the readings and its cluster the outcomes: what is written beside them would be ignored."""
    playbook, file = written(tmp_path, PLAYBOOK, "cap.yaml"), written(tmp_path, key, "answers.yaml")
    command = ["playbook", "rehearse", str(playbook), "--alert", "alertname=A", "--answers", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"answers.yaml: '{key.partition(':')[0]}' works only over a recording" in result.stderr


def in_the_sandbox(folder: Path, answers: str, playbook: str = PLAYBOOK, scenario: Scenario = THRASH) -> Wanted:
    compiled = load_playbook(written(folder, playbook, "cap.yaml"))
    found = read_answers(written(folder, answers, "answers.yaml"), compiled)
    return Wanted(compiled, scenario, found, {}, {}, attended=False)


def test_in_the_sandbox_the_answers_of_the_file_come_before_those_of_the_scenario(tmp_path: Path) -> None:
    scenario = replace(THRASH, answers={"Cap": "Leave", "Request R": "Accept it"})
    wanted = in_the_sandbox(tmp_path, "answers: {choose: cap}", scenario=scenario)
    assert list(labels_to_press(wanted).items()) == [
        ("Cap it?", ("Cap",)),
        ("Cap", "Leave"),
        ("Request R", "Accept it"),
    ]


def test_in_the_sandbox_each_time_has_its_own_answer(tmp_path: Path) -> None:
    wanted = in_the_sandbox(tmp_path, "answers: {choose: [leave, cap]}")
    assert labels_to_press(wanted)["Cap it?"] == ("Leave", "Cap")


def test_in_the_sandbox_the_fields_of_an_answer_are_filled_in(tmp_path: Path) -> None:
    form = "{label: Cap, to: cap, form: {size: {label: Its size, kind: number}}}"
    playbook = PLAYBOOK.replace("{label: Cap, to: cap}", form)
    wanted = in_the_sandbox(tmp_path, "answers: {choose: {choice: cap, fields: {size: 8}}}", playbook)
    assert labels_to_press(wanted)["Cap it?"] == ("Cap",)
    assert fields_to_fill(wanted) == {"size": "8"}


def test_in_the_sandbox_a_question_of_readings_alone_is_answered_by_its_first_choice(tmp_path: Path) -> None:
    """Its text is not known before, and an empty part would fit every question."""
    playbook = PLAYBOOK.replace("ask: Cap it?", "ask: '${thrash}'")
    assert labels_to_press(in_the_sandbox(tmp_path, "answers: {choose: leave}", playbook)) == dict(THRASH.answers)


@pytest.mark.parametrize(
    ("answer", "named"), [("choose: expired", "'expired' in 'choose'"), ("calm: hand_over", "'hand_over' in 'calm'")]
)
def test_the_sandbox_refuses_an_answer_that_its_script_cannot_press(answer: str, named: str, tmp_path: Path) -> None:
    playbook, file = written(tmp_path, PLAYBOOK, "cap.yaml"), written(tmp_path, f"answers: {{{answer}}}", "a.yaml")
    command = ["playbook", "rehearse", str(playbook), "--alert", "alertname=A", "--answers", str(file)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert f"a.yaml: {named} works only over a recording" in result.stderr


def test_settings_of_the_file_of_answers_count(recording: Path, tmp_path: Path) -> None:
    wider = GIVEN + "settings: {window: 30s, calm_for: 20s}\nanswers: {choose: cap}"
    result = rehearse(recording, tmp_path, wider, "--opens-at", "100")
    assert "changed for this rehearsal: window=30s, calm_for=20s" in result.stdout
    assert "path: look → choose → cap → calm → fixed" in result.stdout
