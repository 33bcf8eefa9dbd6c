"""The shipped playbooks: sound, every case of their tables holds, every written edge is taken, every row is covered."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_folder, load_playbook
from bot.cli.playbook_coverage import Covered, covered
from bot.cli.playbook_test import play_file, read_table, result_lines
from bot.domain.playbooks.expressions.expression import names_in
from bot.domain.playbooks.files import TABLE_ENDING
from bot.domain.playbooks.language import EndState, ReadState, WatchState
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.domain.playbooks.testing.rows import rows
from bot.flow.rehearse_case import TableResult, play_case, settings_of, together
from bot.sandbox.demo import WINDOWS
from bot.sandbox.scenarios import SCENARIOS

REPOSITORY = Path(__file__).parents[2]
PLAYBOOKS = packaged_playbooks()
TABLES = sorted(PLAYBOOKS.glob(f"*{TABLE_ENDING}"))


played_once = functools.cache(play_file)


@functools.cache
def all_played() -> dict[Path, TableResult]:
    return dict(zip(TABLES, together([played_once(table) for table in TABLES]), strict=True))


@pytest.fixture(scope="module")
def found() -> Covered:
    return covered(PLAYBOOKS, played_once)


@pytest.mark.timeout(900)  # the first one plays all tables, beside other tests
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name.removesuffix(TABLE_ENDING))
def test_every_case_holds_and_every_written_edge_is_taken(table: Path) -> None:
    result = all_played()[table]
    deviations = [f"{one.case.name}: {one.deviation}" for one in result.failed]
    assert deviations == []
    assert result.unreached == [], "\n".join(result_lines(result, quietly=True))


@pytest.mark.fast
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name.removesuffix(TABLE_ENDING))
async def test_opened_by_hand_it_takes_the_same_path(table: Path) -> None:
    """Nothing in a playbook needs the alert: a person who types `/incident open` gets the same help."""
    written = table.with_name(table.name.replace(TABLE_ENDING, ".yaml"))
    cases = read_table(table, load_playbook(written)).whole()
    case = next(case for case in cases if case.opened_by == "alert").model_copy(update={"opened_by": "hand"})
    result = await play_case(case, with_stand_ins(load_playbook(written, settings_of(case))))
    assert result.deviation == ""


@pytest.mark.fast
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name.removesuffix(TABLE_ENDING))
def test_what_users_feel_is_read_before_anything_is_shown(table: Path) -> None:
    """Without it the card shows numbers instead of a sentence about users."""
    playbook = load_playbook(table.with_name(table.name.replace(TABLE_ENDING, ".yaml"))).playbook
    assert playbook.users, "no sentence about users"
    written = [text for finding in playbook.users for text in (finding.when, finding.say) if text]
    mentioned = {name.partition(".")[0] for text in written for name in names_in(text)} & playbook.signals.keys()
    first = max(
        (state.read for state in playbook.states.values() if isinstance(state, ReadState) and state.baseline), key=len
    )
    assert mentioned - set(first) == set()


def test_every_playbook_has_a_table() -> None:
    playbooks = {path.stem for path in PLAYBOOKS.glob("*.yaml") if not path.name.endswith(TABLE_ENDING)}
    assert playbooks - {table.name.removesuffix(TABLE_ENDING) for table in TABLES} == set()


def test_every_row_of_the_requirements_has_states_and_tests(found: Covered) -> None:
    assert {row.row.id: row.lacks for row in found.rows if row.lacks} == {}


@pytest.mark.fast
def test_every_row_of_the_requirements_is_in_the_table() -> None:
    wanted = {"K": range(22), "C": range(14), "P": range(1, 6), "V": range(1, 15), "B": range(1, 8), "G": range(1, 8)}
    ids = [f"{letter}{number}" for letter, numbers in (wanted | {"T": range(1, 6)}).items() for number in numbers]
    assert [row.id for row in rows()] == ids


@pytest.mark.fast
def test_what_covers_a_row_outside_the_playbooks_is_a_test_that_exists() -> None:
    for row in rows():
        for other in row.elsewhere:
            file, _, name = other.test.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (REPOSITORY / file).read_text(), re.MULTILINE), other.test


def test_no_state_or_case_names_a_row_that_does_not_exist(found: Covered) -> None:
    assert found.strange == []


def test_the_settings_of_a_scenario_are_accepted_by_every_playbook_that_has_them() -> None:
    tuned = {name: scenario.windows for name, scenario in SCENARIOS.items() if scenario.windows}
    # As overrides of targets, so that one load checks them all.
    overrides = [Override(target=f"scenario/{name}", settings=windows) for name, windows in tuned.items()]
    assert overrides
    assert dict(load_folder(PLAYBOOKS, Override(settings=WINDOWS), *overrides).faults) == {}


FILLED_IN = re.compile(r"\$\{(?:results\.\w+\.)?(\w+)\}")


@pytest.mark.fast
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name.removesuffix(TABLE_ENDING))
def test_no_closing_message_has_two_numbers_for_what_users_feel(table: Path) -> None:
    """It ends with the line about users; a verdict or an end with one of its signals would have an earlier reading."""
    playbook = load_playbook(table.with_name(table.name.replace(TABLE_ENDING, ".yaml"))).playbook
    felt = set(FILLED_IN.findall(playbook.users[-1].say))
    ends = {name: state.say for name, state in playbook.states.items() if isinstance(state, EndState)}
    verdicts = {
        name: state.say
        for name, state in playbook.states.items()
        if isinstance(state, WatchState) and name.startswith("verify_")
    }
    repeated = {name: felt & set(FILLED_IN.findall(said)) for name, said in (ends | verdicts).items()}
    assert {name: signals for name, signals in repeated.items() if signals} == {}
