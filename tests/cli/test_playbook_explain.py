"""`playbook check --explain`: every exit of every state in one line, also where nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.cli.playbook_explain import ASKED, PARKED
from bot.domain.playbooks.edges import edges_of
from tests.cli import test_playbook_test
from tests.domain.incidents.machine.recommendations import STAGED
from tests.kit.commands import incident_bot, written

pytestmark = pytest.mark.fast

SMALL = """\
language: 1
playbook: small
title: Small
opens_on: ['alertname="A"']
signals:
  waiting: {metric: num_requests_waiting, over: 1m}
  node: {probe: gpu_health}
start: look
states:
  look:
    title: What is wrong?
    at_most: 2
    beyond: left
    read: [waiting]
    go: [{when: waiting > 1, to: choose}, {otherwise: calm}]
  choose:
    ask: What now?
    choices: {grow: {label: Grow, to: canary}, node: {label: The node, to: other}}
    expired: left
  canary: {change: scale, with: {by: 1}, still: waiting > 1, why: More room., expires: 5m, done: settle, failed: away}
  settle: {watch: {short: waiting <= 1}, for: 1m, within: 5m, held: calm,
    broke: [{when: node.fault, to: away}, {when: waiting > 9, for: 2m, to: away}]}
  away: {change: undo, with: {of: last}, why: It broke., done: hold}
  other: {divert: gpu-fault, why: A node., returns: {fixed: calm}}
  hold: {watch: {short: waiting <= 1}, for: 1m, within: 5m, held: tidy, not_held: people, unknown: people}
  tidy: {change: remove_canary, why: It is not needed., done: calm}
  people: {divert: people, why: It is stuck., to_group: platform, expires: 10m, taken: left}
  calm: {end: fixed}
  left: {end: handed_over}
"""


def explained(folder: Path, text: str = SMALL) -> dict[str, list[str]]:
    """The lines below each state."""
    result = incident_bot("playbook", "check", "--explain", written(folder, text))
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if "(warning)" not in line]
    assert max(map(len, lines)) <= 120
    paragraphs = [part.splitlines() for part in "\n".join(lines).split("\n\n")]
    return {head.split(":")[0]: [line.strip() for line in exits] for head, *exits in paragraphs}


@pytest.mark.parametrize(
    ("state", "line"),
    [
        pytest.param("look", "entered more than 2 times → left", id="limit"),
        pytest.param("look", "1. when (waiting > 1) → choose", id="clause"),
        pytest.param("look", "2. otherwise → calm", id="otherwise"),
        pytest.param("look", f"unknown (a value that decides cannot be read) → {ASKED}", id="read"),
        pytest.param("choose", "button grow (Grow) → canary", id="button"),
        pytest.param(
            "choose",
            "no expiry: it waits until somebody answers, after a while parked; 'expired' (left) is never taken",
            id="no expiry",
        ),
        pytest.param("canary", "done → settle", id="written"),
        pytest.param("canary", f"refused (an approver refuses it) → {ASKED}", id="refused"),
        pytest.param("canary", f"expired (nobody approves it in time, 5m) → {ASKED}", id="expired"),
        pytest.param("canary", f"impossible (the bot cannot do it here) → {ASKED}", id="impossible"),
        pytest.param("canary", "failed (it was begun and failed) → away", id="failed"),
        pytest.param("canary", f"unclear (nobody knows whether the call arrived) → {ASKED}", id="unclear"),
        pytest.param(
            "canary", f"not_needed (it is so already, or its reason no longer holds) → {ASKED}", id="not needed"
        ),
        pytest.param(
            "canary",
            f"not begun (a value or the cluster cannot be read, a guard of the bot stops it) → {ASKED}",
            id="not begun",
        ),
        pytest.param("settle", f"not_held (not within 5m) → {ASKED}", id="not held"),
        pytest.param("settle", f"unknown (a value still cannot be read after 5m) → {ASKED}", id="watch"),
        pytest.param("settle", "broke 1, at once when (node.fault) → away", id="broke"),
        pytest.param("settle", "broke 2, once true for 2m (waiting > 9) → away", id="broke later"),
        pytest.param("hold", "no 'broke': nothing ends it early, so it lasts up to 5m", id="no broke"),
        pytest.param(
            "away",
            "announced, not approved, if it only takes back the bot's own canary, isolation or autoscaler floor",
            id="undo",
        ),
        pytest.param(
            "tidy",
            "announced, not approved: it only cleans up; approved if it has a warning or the settings ask for it",
            id="clean-up",
        ),
        pytest.param("other", "'gpu-fault' ends as 'fixed' → calm", id="return"),
        pytest.param("other", f"'gpu-fault' ends otherwise → {ASKED}", id="other ends"),
        pytest.param("people", "taken (somebody takes it over (platform)) → left", id="taken"),
        pytest.param("people", f"expired (nobody takes it over within 10m) → {PARKED}", id="not taken"),
        pytest.param("calm", "ends the incident as 'fixed', or goes back to the playbook that diverted here", id="end"),
    ],
)
def test_each_exit_is_a_line(tmp_path: Path, state: str, line: str) -> None:
    assert line in explained(tmp_path)[state]


@pytest.mark.parametrize(
    ("state", "line"),
    [
        pytest.param("relieve", "1. grow (room > 0, not tried before) → relieve_grow", id="option"),
        pytest.param("relieve", "button people (never recommended: Hand over) → gone", id="only offered"),
        pytest.param("relieve_grow", "button cap (another option of 'relieve': Cap it) → relieve_cap", id="others"),
        pytest.param(
            "relieve_cap", "its approval also covers, for the same edits or replica: 'rolled'", id="what it covers"
        ),
        pytest.param(
            "rolled",
            "approved with an option of 'relieve', unless its risk is higher, it has a warning or its edits differ",
            id="covered",
        ),
    ],
)
def test_a_recommendation_shows_its_buttons_and_what_an_approval_covers(tmp_path: Path, state: str, line: str) -> None:
    assert line in explained(tmp_path, STAGED)[state]


def test_every_written_exit_is_shown(tmp_path: Path) -> None:
    from bot.adapters.yaml_playbooks import load_text

    text = test_playbook_test.PLAYBOOK
    found = explained(tmp_path, text)
    states = load_text(text).playbook.states.items()
    missing = [
        (name, edge) for name, state in states for edge in edges_of(state) if not _leads_to(found[name], edge.to)
    ]
    assert missing == []


def _leads_to(lines: list[str], state: str) -> bool:
    return any(line.endswith(f" → {state}") for line in lines)


def test_a_long_condition_is_shortened_and_its_exit_is_not(tmp_path: Path) -> None:
    text = SMALL.replace("when: waiting > 1,", f"when: '{' && '.join(['waiting > 1'] * 12)}',")
    (line,) = [each for each in explained(tmp_path, text)["look"] if each.startswith("1.")]
    assert line.endswith("…) → choose")


def test_a_fault_is_reported_and_not_explained(tmp_path: Path) -> None:
    result = incident_bot("playbook", "check", "--explain", written(tmp_path, SMALL.replace("to: canary", "to: canry")))
    assert result.exit_code == 1
    assert ASKED not in result.stdout


def test_a_parked_wait_and_an_unanswered_one_are_explained(tmp_path: Path) -> None:
    parked = SMALL.replace("    expired: left\n", "    expires: 5m\n    parked: true\n")
    out = incident_bot("playbook", "check", "--explain", str(written(tmp_path, parked, "small.yaml"))).stdout
    assert "expired (nobody answers within 5m) → parked, it can still be answered" in out
    assert "parked: a new alert opens a fresh incident" in out


def test_a_change_cannot_be_parked(tmp_path: Path) -> None:
    wrong = SMALL.replace("risk: high, ", "").replace("{change: scale,", "{change: scale, parked: true,")
    found = incident_bot("playbook", "check", str(written(tmp_path, wrong, "small.yaml")))
    assert found.exit_code != 0
    assert "parked" in found.output
