"""No log line contains a secret: neither a fact's field, nor a traceback, nor a library's message."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

from bot.adapters.logs import Facts, Masking, processors

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
