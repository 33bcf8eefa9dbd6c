"""No log line contains a secret: neither a fact's field, nor a traceback, nor a library's message."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

import pytest
import structlog

from bot.adapters.logs import Facts, FewLines, Masking, processors

pytestmark = pytest.mark.fast
SECRET = "xoxb-123456-very-secret"


def rendered(style: str, event: dict[str, Any]) -> str:
    known: Any = event
    for step in processors(Facts(), style=style):
        known = step(None, "error", known)
    return str(known)


def failed() -> Any:
    try:
        raise KeyError(SECRET)
    except KeyError:
        return sys.exc_info()


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"reason": f"Slack answered {SECRET}"}, id="text"),
        pytest.param({"calls": [f"--api-key={SECRET}"]}, id="list"),
        pytest.param({"labels": {"api_token": "plain words"}, "seen": [SECRET]}, id="by-name"),
        pytest.param({"exc_info": failed()}, id="traceback"),
    ],
)
def test_no_fact_contains_a_secret(style: str, fields: dict[str, Any]) -> None:
    line = rendered(style, {"event": "effect.failed", "incident": "INC-1", **fields})
    assert "very-secret" not in line
    assert "plain words" not in line
    assert "INC-1" in line
    assert ("KeyError" in line) == ("exc_info" in fields)


def test_what_a_library_logs_is_masked_too() -> None:
    record = logging.LogRecord("lib", logging.ERROR, "lib.py", 1, "sent with %s", (SECRET,), failed())
    line = Masking("%(name)s %(message)s").format(record)
    assert "very-secret" not in line
    assert line.startswith("lib sent with (masked)")


def test_each_fact_is_counted_by_its_name() -> None:
    facts = Facts()
    for _ in range(2):
        facts.count(None, "error", {"event": "event.set_aside"})
    assert 'incident_bot_facts_total{fact="event.set_aside"} 2.0' in facts.page({})


TERMINAL = "\x1b]0;owned\x07\x9b2J\r"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"sender": TERMINAL}, id="text"),
        pytest.param({"labels": {"pod": TERMINAL}, "seen": [TERMINAL]}, id="inside"),
        pytest.param({"exception": f"Traceback\n  {TERMINAL}"}, id="traceback"),
    ],
)
@pytest.mark.parametrize("style", ["json", "console"])
def test_no_fact_commands_the_terminal_that_shows_it(style: str, fields: dict[str, Any]) -> None:
    line = rendered(style, {"event": "alert.failed", **fields})
    assert not set(TERMINAL) & {"\x1b", "\x07", "\x9b", "\r"} & set(line)
    assert "owned" in line


def test_what_a_library_logs_commands_no_terminal() -> None:
    record = logging.LogRecord("lib", logging.ERROR, "lib.py", 1, "read %s", (TERMINAL,), failed())
    line = Masking("%(message)s").format(record)
    assert line.startswith("read \\x1b]0;owned\\x07\\x9b2J\\x0d\nTraceback")


def refused(few: FewLines, **fields: Any) -> Any:
    """The fields of the line that is written; None if there is none."""
    try:
        return dict(few(None, "warning", {"event": "webhook.refused", "status": 401} | fields))
    except structlog.DropEvent:
        return None


def test_a_flood_of_refused_requests_is_one_line_a_second_with_their_number() -> None:
    clock = iter([0.0, 0.1, 0.2, 0.9, 1.0, 1.1, 9.0])
    few = FewLines(elapsed=lambda: next(clock))
    lines = [refused(few) for _ in range(7)]
    assert [line and line.get("since_last") for line in lines] == [1, None, None, None, 4, None, 2]


def test_a_flood_hides_no_other_line() -> None:
    few = FewLines(elapsed=lambda: 0.0)
    assert refused(few)
    assert refused(few, status=400)
    assert refused(few, event="slack.refused")
    assert not refused(few)
    for _ in range(3):
        assert refused(few, event="alert.failed") == {"event": "alert.failed", "status": 401}


def test_a_flood_is_counted_whole() -> None:
    facts = Facts()
    steps = processors(facts, style="json")
    for _ in range(3):
        with contextlib.suppress(structlog.DropEvent):
            known: Any = {"event": "slack.refused"}
            for step in steps:
                known = step(None, "warning", known)
    assert 'incident_bot_facts_total{fact="slack.refused"} 3.0' in facts.page({})
