"""The commands: quick to start, exact about faults, and without a traceback for known errors."""

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bot.adapters.redis.connection import Connection
from bot.cli.app import app
from bot.domain.kernel.timeline import GENESIS, Entry, chain
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.sandbox import valkey
from tests.kit.commands import PLAYBOOK, incident_bot, written
from tests.kit.settings import ENOUGH

README = Path(__file__).parents[2] / "README.md"


def test_a_command_that_does_not_reach_redis_says_what_to_do() -> None:
    result = incident_bot("halt", "all", REDIS_URL="redis://127.0.0.1:1/0")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Redis did not answer: ")
    assert result.stderr.endswith("\n→ Correct REDIS_URL, or start Redis, and repeat the command.\n")


def test_version_is_that_of_the_package() -> None:
    assert incident_bot("--version").stdout == f"incident-bot {version('incident-bot')}\n"


@pytest.mark.parametrize("group", [(), ("playbook",), ("timeline",)])
def test_help_cuts_no_summary_of_a_command(group: tuple[str, ...]) -> None:
    assert "..." not in incident_bot(*group, "--help").stdout.partition("Commands:")[2]


def test_a_packaged_playbook_is_checked_by_its_name_and_a_table_is_sent_to_test(tmp_path: Path) -> None:
    assert incident_bot("playbook", "check", "gpu-fault").stdout == "1 sound playbook, 0 faults, 0 warnings\n"
    table = written(tmp_path, "cases: []", "tiny.test.yaml")
    assert "is a test table. Play it: incident-bot playbook test" in incident_bot("playbook", "check", table).stdout
    assert incident_bot("playbook", "check", table, "gpu-fault").stdout == "1 sound playbook, 0 faults, 0 warnings\n"
    assert "no-such.yaml: cannot be read" in incident_bot("playbook", "check", "no-such.yaml").stdout
    for command in ("check", "test"):
        mistyped = incident_bot("playbook", command, "gpu-falt")
        assert mistyped.exit_code == 1
        assert "packaged playbook; did you mean 'gpu-fault'?" in mistyped.stderr
    fragment = packaged_playbooks() / "fragments" / "join.yaml"
    assert "join.yaml: is a fragment" in incident_bot("playbook", "check", fragment).stdout


def test_a_folder_of_fragments_is_checked_with_the_playbooks_that_include_them() -> None:
    fragments = packaged_playbooks() / "fragments"
    result = incident_bot("playbook", "check", fragments)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{fragments}: holds fragments: their states are checked where a playbook includes them. "
        f"Check the folder of the playbooks: incident-bot playbook check {packaged_playbooks()}",
        "0 sound playbooks, 1 fault, 0 warnings",
    ]


def test_a_file_beside_the_fragments_is_checked_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "fragments").mkdir()
    notes = written(tmp_path / "fragments", "just words", "README.md")
    result = incident_bot("playbook", "check", notes)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{notes}:1:1: ")


def test_the_doctor_speaks_as_a_program_of_its_own() -> None:
    """In a process where nothing else imported its module, which has the name of the command."""
    environ = ENOUGH | {
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "INCIDENT_BOT_SLACK_BASE_URL": "http://127.0.0.1:1/",
        "INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "false",
        "INCIDENT_BOT_KUBERNETES_URL": "http://127.0.0.1:1",
    }
    command = [sys.executable, "-m", "bot", "doctor"]
    done = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "✔ playbooks" in done.stdout
    assert "✖ redis" in done.stdout
    assert done.stderr == ""


def test_starting_imports_nothing_that_a_command_may_not_need() -> None:
    code = "import sys, bot.cli; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"pydantic", "redis", "kubernetes", "slack_sdk", "slack_bolt", "uvicorn", "starlette", "httpx"}
    assert heavy & set(loaded) == set()


@pytest.mark.parametrize("command", [("serve",), ("doctor",), ("export", "INC-1")])
def test_missing_settings_are_listed_without_a_traceback(command: tuple[str, ...]) -> None:
    result = incident_bot(*command)
    assert result.exit_code == 1
    assert "REDIS_URL (redis_url in the file) is not set" in result.stderr
    # A timeline can be exported where only Redis is known.
    assert ("SLACK_BOT_TOKEN" in result.stderr) == (command != ("export", "INC-1"))
    assert "Traceback" not in result.output


def test_the_packaged_playbooks_are_sound() -> None:
    result = incident_bot("playbook", "check")
    assert result.exit_code == 0, result.stdout
    assert " 0 faults" in result.stdout


def test_a_sound_playbook_is_counted(tmp_path: Path) -> None:
    result = incident_bot("playbook", "check", written(tmp_path, PLAYBOOK))
    assert (result.exit_code, result.stdout) == (0, "1 sound playbook, 0 faults, 0 warnings\n")


def test_every_fault_of_every_file_has_its_place_and_a_hint(tmp_path: Path) -> None:
    one = written(tmp_path, PLAYBOOK.replace("to: ask}", "to: aks}"), "one.yaml")
    two = written(tmp_path, PLAYBOOK.replace("waiting > 1", "waitin > 1"), "two.yaml")
    result = incident_bot("playbook", "check", one, two)
    assert result.exit_code == 1
    assert f"{one}:14:33: " in result.stdout
    assert "Did you mean 'ask'?" in result.stdout
    assert f"{two}:14:16: " in result.stdout
    assert "Did you mean 'waiting'?" in result.stdout


def test_a_folder_is_checked_whole(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK)
    written(tmp_path, PLAYBOOK, "same-name.yaml")
    result = incident_bot("playbook", "check", tmp_path)
    assert result.exit_code == 1
    assert "'tiny' is also in" in result.stdout


def test_an_empty_folder_and_a_missing_file_are_faults(tmp_path: Path) -> None:
    assert "contains no playbook" in incident_bot("playbook", "check", tmp_path).stdout
    missing = incident_bot("playbook", "check", tmp_path / "none.yaml")
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stdout


def test_a_playbook_whose_file_is_never_read_is_not_called_sound(tmp_path: Path) -> None:
    path = written(tmp_path, PLAYBOOK, "tiny.yml")
    told = f"{path}: is not read: playbooks and fragments are *.yaml. Rename it to tiny.yaml."
    alone = incident_bot("playbook", "check", path)
    assert (alone.exit_code, alone.stdout) == (1, f"{told}\n0 sound playbooks, 1 fault, 0 warnings\n")
    written(tmp_path, PLAYBOOK.replace("playbook: tiny", "playbook: other"), "other.yaml")
    folder = incident_bot("playbook", "check", tmp_path)
    assert (folder.exit_code, folder.stdout) == (
        0, f"{told} (warning)\n1 sound playbook, 0 faults, 1 warning\n",
    )  # fmt: skip


def test_an_override_is_checked_with_the_playbook(tmp_path: Path) -> None:
    path = written(tmp_path, PLAYBOOK)
    assert incident_bot("playbook", "check", path, "--set", "window=15s").exit_code == 0
    assert "not a duration" in incident_bot("playbook", "check", path, "--set", "window=15").stdout
    assert "write name=value" in incident_bot("playbook", "check", path, "--set", "window").stderr


def test_a_playbook_is_drawn_by_name_or_by_file(tmp_path: Path) -> None:
    path = written(tmp_path, PLAYBOOK)
    by_name = incident_bot("playbook", "graph", "tiny", "--playbooks", tmp_path)
    assert by_name.stdout.startswith("flowchart TD\n")
    assert incident_bot("playbook", "graph", path).stdout == by_name.stdout


def test_a_picture_goes_into_a_file_and_never_to_a_terminal(tmp_path: Path) -> None:
    path, out = written(tmp_path, PLAYBOOK), tmp_path / "tiny.png"
    refused = incident_bot("playbook", "graph", path, "--format", "png")
    assert (refused.exit_code, refused.stderr) == (1, "a PNG needs a file; add --out FILE\n")
    assert incident_bot("playbook", "graph", path, "--format", "png", "--out", out).exit_code == 0
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_section_is_drawn_by_its_heading_and_a_mistyped_one_is_answered_with_those_there_are(tmp_path: Path) -> None:
    def drawn(*options: str) -> str:
        return incident_bot("playbook", "graph", "kv-cache-oom", "--format", "svg", *options).stdout

    # As text of the picture, where neither is cut.
    assert "Rollback" in drawn()
    assert "Give the host its memory back" not in drawn()
    assert "Give the host its memory back" in drawn("--section", "rollback")
    assert "Judge the canary" not in drawn()
    wrong = incident_bot("playbook", "graph", "kv-cache-oom", "--format", "svg", "--section", "Rolback")
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "kv-cache-oom has no section 'Rolback'. Did you mean 'Rollback'?\n",
    )


def test_a_section_is_refused_where_the_text_would_have_every_state() -> None:
    refused = incident_bot("playbook", "graph", "kv-cache-oom", "--section", "Rollback")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "--section needs --format svg or --format png: the text has every state\n"


def test_the_demo_says_that_its_port_is_in_use_before_it_starts_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = incident_bot("demo", "--port", str(port))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert (
        refused.stderr == f"port {port} cannot be used: Address already in use. Leave out --port to take a free one.\n"
    )


def test_an_unknown_playbook_is_answered_with_a_suggestion(tmp_path: Path) -> None:
    written(tmp_path, PLAYBOOK)
    result = incident_bot("playbook", "graph", "tinny", "--playbooks", tmp_path)
    assert result.exit_code == 1
    assert "did you mean 'tiny'?" in result.stderr


def test_an_unknown_scenario_is_answered_with_the_known_ones() -> None:
    result = incident_bot("demo", "--scenario", "flood")
    assert result.exit_code == 1
    assert "thrash" in result.stderr
    assert incident_bot("demo", "--scenario", "trash").stderr == "no scenario 'trash'; did you mean 'thrash'?\n"


@pytest.fixture
def stored(redis_server: valkey.Embedded, tag: str) -> dict[str, str]:
    """An environment in whose Redis INC-1 has a timeline."""
    entries = chain([Entry(kind="opened", at=1.8e9, text="opened by alert A on serving/llm")], head=GENESIS, length=0)

    async def put() -> None:
        connection = Connection.open(redis_server.url, tag=tag)
        await connection.ask(
            connection.client.rpush(connection.key("timeline", "INC-1"), *(item.model_dump_json() for item in entries))
        )
        await connection.close()

    asyncio.run(put())
    return {"REDIS_URL": redis_server.url, "INCIDENT_BOT_REDIS_TAG": tag}


def test_an_incident_is_exported_as_markdown(stored: dict[str, str]) -> None:
    result = incident_bot("export", "INC-1", **stored)
    assert result.exit_code == 0, result.output
    assert "| Target | `serving/llm` |" in result.stdout


@pytest.mark.parametrize("named", ["1", "inc-1"])
def test_an_incident_is_named_as_in_slack(stored: dict[str, str], named: str) -> None:
    assert "serving/llm" in incident_bot("export", named, **stored).stdout


def test_an_incident_is_exported_as_json_into_a_file(stored: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "inc-1.json"
    result = incident_bot("export", "INC-1", "--format", "json", "--out", out, **stored)
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text())["report"]["broken_at"] is None
    assert "cannot be written" in incident_bot("export", "INC-1", "--out", tmp_path, **stored).stderr


def test_an_incident_is_exported_as_a_page(stored: dict[str, str]) -> None:
    result = incident_bot("export", "INC-1", "--format", "html", **ENOUGH | stored)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("<!doctype html>")
    assert "<dd><code>serving/llm</code></dd>" in result.stdout


def test_an_unknown_incident_is_named(stored: dict[str, str]) -> None:
    result = incident_bot("export", "INC-9", **stored)
    assert result.exit_code == 1
    assert "INC-9: not in this Redis" in result.stderr


@pytest.mark.parametrize("name", ["payments", "INC-", "INC-1x"])
def test_what_is_no_incident_is_not_looked_for(stored: dict[str, str], name: str) -> None:
    result = incident_bot("export", name, **stored)
    assert (result.exit_code, result.stderr) == (1, f"'{name}' is not an incident such as INC-7\n")


def test_a_redis_that_is_away_is_a_message() -> None:
    result = incident_bot("export", "INC-1", **(ENOUGH | {"REDIS_URL": "redis://127.0.0.1:1/0"}))
    assert result.exit_code == 1
    assert "Redis did not answer" in result.stderr


def test_an_author_may_follow_the_readme_word_by_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [
        block for block in re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL) if "playbook new" in block
    ]
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        command = shlex.split(line, comments=True)
        result = CliRunner().invoke(app, command[1:])
        assert (line, result.exit_code) == (line, 0)
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_written_or_is_not_there_is_reported_in_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, PLAYBOOK)
    unwritable = incident_bot("playbook", "graph", path, "--out", tmp_path / "no" / "x.mmd")
    assert unwritable.stderr == f"{tmp_path}/no/x.mmd cannot be written: No such file or directory\n"
    absent = incident_bot("playbook", "coverage", tmp_path / "absent.yaml")
    assert (absent.exit_code, absent.stderr) == (1, f"{tmp_path}/absent.yaml: there is no such folder or playbook\n")
    elsewhere = incident_bot("playbook", "graph", "mine")
    assert "for your own, give its file, mine.yaml" in elsewhere.stderr


def test_the_days_of_what_was_observed_are_named_once(redis_server: valkey.Embedded, tag: str) -> None:
    result = incident_bot("observed", "--days", "3", REDIS_URL=redis_server.url, REDIS_TAG=tag)
    assert result.exit_code == 0, result.output
    assert re.fullmatch(r"Observe-only, .* to .*: the bot would have proposed 0 changes.*\n", result.stdout)
