"""`playbook coverage`: a row needs a passing case that names it."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML
from typer.testing import CliRunner

from bot.adapters.yaml_playbooks import load_text
from bot.cli.app import app
from bot.cli.playbook_coverage import Covered, coverage_lines
from bot.domain.playbooks.testing.cases import Table, table_of
from bot.domain.playbooks.testing.rows import Played, coverage
from tests.cli.test_playbook_test import PLAYBOOK, TABLE
from tests.kit.commands import written


def lines(folder: Path, playbook: str, table: str) -> list[str]:
    written(folder, playbook, "grow.yaml")
    written(folder, table, "grow.test.yaml")
    result = CliRunner().invoke(app, ["playbook", "coverage", str(folder)])
    assert result.exit_code == any("✖" in line for line in result.stdout.splitlines())
    return [*result.stdout.splitlines(), result.stderr]


def claiming(*ids: str) -> str:
    """The table whose first case names these rows."""
    name = "- name: it grows and the queue is gone\n"
    table = TABLE.replace(name, f"{name}    covers: [{', '.join(ids)}]\n")
    assert table != TABLE
    return table


def test_a_row_is_covered_by_a_passing_case_that_names_it(tmp_path: Path) -> None:
    found = lines(tmp_path, PLAYBOOK, claiming("K12"))
    at = next(number for number, line in enumerate(found) if line.startswith("✔ K12"))
    assert found[at + 1].split(maxsplit=1) == ["cases", "grow: it grows and the queue is gone"]


def test_coverage_says_which_cases_it_plays_because_that_takes_a_while(tmp_path: Path) -> None:
    assert lines(tmp_path, PLAYBOOK, TABLE)[-1] == "plays grow.test.yaml\n"


def test_a_case_that_deviates_covers_nothing(tmp_path: Path) -> None:
    table = claiming("K12").replace("[look, choose, grow, settle, calm]", "[look]")
    assert lines(tmp_path, PLAYBOOK, table)[0].endswith(": its case deviates: grow: it grows and the queue is gone")


def test_a_packaged_row_that_no_case_names_is_missing() -> None:
    rows, strange = coverage([])
    found = list(coverage_lines(Covered(rows, strange, ())))
    assert any(line.startswith("✖ K1 ") and line.endswith(": no case names it") for line in found)


def test_of_an_own_playbook_only_what_it_claims_is_listed_rules_of_its_own_too(tmp_path: Path) -> None:
    found = lines(tmp_path, PLAYBOOK, claiming("K12", "OUR-1"))
    assert [line.split()[1] for line in found if line.startswith(("✔", "✖"))] == ["K12", "OUR-1"]
    assert "✔ OUR-1 a custom rule" in found
    assert "2 of 2 rows it claims are covered" in found
    alone = CliRunner().invoke(app, ["playbook", "coverage", str(tmp_path / "grow.yaml")])
    assert (alone.exit_code, [*alone.stdout.splitlines(), alone.stderr]) == (0, found)


def test_an_own_playbook_that_claims_nothing_gets_an_example_and_lacks_nothing(tmp_path: Path) -> None:
    assert lines(tmp_path, PLAYBOOK, TABLE)[0].startswith("nothing is claimed: add `covers: [ID]` to a case")


def test_the_steps_of_the_runbook_are_listed_with_their_states(tmp_path: Path) -> None:
    playbook = PLAYBOOK.replace("    change: scale\n", "    runbook: {step: 3 Scale}\n    change: scale\n")
    playbook = playbook.replace("  left: {end", "  left: {runbook: {step: 3 Scale}, end")
    found = lines(tmp_path, playbook, TABLE)
    assert found[found.index("📋 3 Scale") + 1].split() == ["states", "grow.grow,", "grow.left"]


def test_an_id_of_a_shipped_table_that_is_no_row_is_named_with_its_case() -> None:
    table = table_of(YAML(typ="safe").load(claiming("K99")))
    assert isinstance(table, Table)
    rows, strange = coverage([Played(load_text(PLAYBOOK).playbook, table.cases[0], holds=True)])
    lines = list(coverage_lines(Covered(rows, strange, ())))
    assert "✖ K99 is not a row; it is named in grow: it grows and the queue is gone" in lines


def test_a_broken_playbook_covers_nothing_and_hides_no_other(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK.replace("start: look", "start: lok"), "broken.yaml")
    written(tmp_path, TABLE, "broken.test.yaml")
    found = lines(tmp_path, PLAYBOOK, claiming("K12"))
    assert sum("unknown state 'lok'" in line for line in found) == 1
    assert any(line.startswith("✔ K12") for line in found)


def test_a_test_table_stands_for_its_playbook(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK, "grow.yaml")
    table = written(tmp_path, claiming("K12"), "grow.test.yaml")
    result = CliRunner().invoke(app, ["playbook", "coverage", str(table)])
    assert "1 of 1 rows it claims are covered" in result.stdout
