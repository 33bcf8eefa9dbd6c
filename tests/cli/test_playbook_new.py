"""`playbook new`: its output passes the check as it is, and it overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.cli.playbook_test import play_file
from bot.domain.incidents.rehearsed import missing_edges
from tests.kit.commands import incident_bot

pytestmark = pytest.mark.fast


def test_the_check_of_an_untouched_starter_says_what_to_fill_in(tmp_path: Path) -> None:
    assert incident_bot("playbook", "new", "slow-first-token", "--in", tmp_path).exit_code == 0
    result = incident_bot("playbook", "check", tmp_path)
    assert result.exit_code == 0
    *warnings, last = result.stdout.splitlines()
    assert last == "1 sound playbook, 0 faults, 3 warnings"
    assert all(" is still the starter's text. " in line and line.endswith("(warning)") for line in warnings)
    assert [line.partition(": ")[2].partition(" is")[0] for line in warnings] == [
        "'summary'",
        "'opens_on'",
        "'settings.queue_limit.why'",
    ]


def test_a_starter_that_is_filled_in_passes_check_without_a_warning(tmp_path: Path) -> None:
    incident_bot("playbook", "new", "slow-first-token", "--in", tmp_path)
    path = tmp_path / "slow-first-token.yaml"
    path.write_text(path.read_text().replace("CHANGE_ME", "Filled in"))
    assert incident_bot("playbook", "check", tmp_path).stdout == "1 sound playbook, 0 faults, 0 warnings\n"


def test_every_case_of_the_starter_holds_and_every_edge_is_taken(tmp_path: Path) -> None:
    incident_bot("playbook", "new", "slow-first-token", "--in", tmp_path)
    result = play_file(tmp_path / "slow-first-token.test.yaml")
    assert [one.deviation for one in result.failed] == []
    assert missing_edges(result.playbook.playbook, result.edges) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine.test.yaml").write_text("- mine")
    result = incident_bot("playbook", "new", "mine", "--in", tmp_path)
    assert result.exit_code == 1
    assert "mine.test.yaml already exists" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.test.yaml"]


def test_a_folder_in_which_nothing_can_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to(tmp_path / "gone" / "mine.yaml")
    result = incident_bot("playbook", "new", "mine", "--in", tmp_path)
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path / 'mine.yaml'} cannot be written: No such file or directory\n"


@pytest.mark.parametrize("name", ["Slow", "../x", "a b", ""])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    result = incident_bot("playbook", "new", name, "--in", tmp_path)
    assert result.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_no_starter_takes_the_place_of_a_playbook_that_came_with_the_bot(tmp_path: Path) -> None:
    result = incident_bot("playbook", "new", "kv-cache-oom", "--in", tmp_path)
    assert (result.exit_code, list(tmp_path.iterdir())) == (1, [])
    assert "'kv-cache-oom' came with the bot" in result.stderr


def test_the_editor_finds_the_schema_that_the_starter_names(tmp_path: Path) -> None:
    incident_bot("playbook", "new", "slow-first-token", "--in", tmp_path)
    (line,) = [line for line in (tmp_path / "slow-first-token.yaml").read_text().splitlines() if "$schema=" in line]
    schema = json.loads((tmp_path / line.partition("$schema=")[2]).read_text())
    assert schema["title"] == "A playbook of the incident bot"


def test_the_folder_is_made_unless_something_else_has_its_name(tmp_path: Path) -> None:
    assert incident_bot("playbook", "new", "mine", "--in", tmp_path / "new").exit_code == 0
    (tmp_path / "file").write_text("")
    result = incident_bot("playbook", "new", "mine", "--in", tmp_path / "file")
    assert result.exit_code == 1
    assert "cannot be created: File exists" in result.stderr
