"""Keys that mean nothing any more: a warning in a file, and no obstacle to an incident that runs an older playbook."""

from __future__ import annotations

import pytest

from bot.adapters.yaml_playbooks import StoredPlaybooks, check_text, fragments_of, load_text
from bot.domain.playbooks.bundle import Bundle
from tests.domain.playbooks.including import HOST, VERIFY, marked
from tests.domain.playbooks.test_otherwise import SHORT

pytestmark = pytest.mark.fast

HINT = "'covers' is ignored here. Name the row at the case that proves it, in the playbook's table of cases."


def test_rows_at_a_state_are_warned_of_where_they_are_written() -> None:
    text, place = marked(SHORT, "  restart:\n", "  restart:\n    «covers: [K1]\n")
    checked = check_text(text, {}, file="p.yaml")
    assert not checked.faults
    assert f"p.yaml:{place}: {HINT}" in map(str, checked.warnings)


def test_rows_at_an_include_and_in_a_fragment_stop_nothing() -> None:
    host = HOST.replace("    # more\n", "    covers: [K3]\n")
    verify = VERIFY.replace("    read: [load]\n", "    covers: [K1]\n    read: [load]\n")
    checked = check_text(host, {}, file="p.yaml", fragments=fragments_of({"verify": verify}))
    assert not checked.faults
    assert [str(each).partition(": ")[2] for each in checked.warnings if "covers" in str(each)] == [HINT]


def test_an_incident_with_an_older_playbook_runs_on() -> None:
    older = SHORT.replace("  restart:\n", "  restart:\n    covers: [K1]\n")
    bundle = Bundle.of(load_text(older))
    assert "covers: [K1]" in bundle.stored()["playbooks"]
    again = StoredPlaybooks()(bundle.stored()).entry_playbook
    assert again.playbook.states == load_text(SHORT).playbook.states
