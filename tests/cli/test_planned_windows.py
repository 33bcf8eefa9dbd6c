"""Maintenance and freezes from the command line, on a real Redis."""

from __future__ import annotations

import pytest
from typer.testing import Result

from bot.sandbox import valkey
from tests.kit.commands import incident_bot


class Deployment:
    def __init__(self, url: str, tag: str) -> None:
        # No other setting is needed: these commands work where nothing else does.
        self._environ = {"REDIS_URL": url, "INCIDENT_BOT_REDIS_TAG": tag}

    def says(self, *words: str) -> Result:
        return incident_bot(*words, **self._environ)


@pytest.fixture
def deployment(redis_server: valkey.Embedded, tag: str) -> Deployment:
    return Deployment(redis_server.url, tag)


@pytest.mark.parametrize("kind", ["maintenance", "freeze"])
def test_a_window_is_begun_listed_and_ended(kind: str, deployment: Deployment) -> None:
    assert deployment.says(kind).output == f"There is no {kind} now.\n"
    begun = deployment.says(kind, "serving/llm", "--for", "2h", "--reason", "new driver", "--by", "ana")
    assert begun.exit_code == 0
    assert begun.output.startswith(f"serving/llm: {kind} until ")
    assert begun.output.endswith("UTC: new driver (ana (command line))\n")
    assert deployment.says(kind).output == begun.output
    assert deployment.says(kind, "serving/llm", "--off").output == f"The {kind} of serving/llm is over.\n"
    assert deployment.says(kind).output == f"There is no {kind} now.\n"


def test_a_window_without_a_reason_is_refused(deployment: Deployment) -> None:
    refused = deployment.says("freeze", "all")
    assert refused.exit_code != 0
    assert "a reason is needed" in refused.output + refused.stderr


def test_a_window_that_is_to_end_must_be_named(deployment: Deployment) -> None:
    refused = deployment.says("freeze", "--off")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "Not done: name what the freeze is of, such as `incident-bot freeze serving/llm --off`.\n"


def test_maintenance_is_shorter_than_a_day(deployment: Deployment) -> None:
    refused = deployment.says("maintenance", "serving/llm", "--for", "25h", "--reason", "x")
    assert "at most 24 hours" in refused.output + refused.stderr


def test_a_terminal_takes_no_text_from_outside_as_a_command(deployment: Deployment) -> None:
    deployment.says("freeze", "all", "--for", "1h", "--reason", "\x1b]52;c;cm0gLXJm\x07 the launch", "--by", "ana")
    listed = deployment.says("freeze").output
    assert "\\x1b]52;c;cm0gLXJm\\x07 the launch" in listed
    assert not set(listed) & {"\x1b", "\x07"}


def test_a_terminal_takes_no_message_about_a_mistake_as_a_command(deployment: Deployment) -> None:
    refused = deployment.says("halt", "\x1b]0;INC-1\x07")
    assert "\\x1b]0;INC-1\\x07" in refused.stderr
    assert not set(refused.stderr) & {"\x1b", "\x07"}
