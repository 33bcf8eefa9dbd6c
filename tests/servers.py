"""Real servers that some tests need. A missing one skips its tests, or fails them if CI requires it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

NEEDED = "TESTS_NEED_SERVERS"
PROGRAMS = {
    "redis": ("redis-server", "valkey-server"),
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "amtool": ("amtool",),
    "alertmanager": ("prometheus-alertmanager", "alertmanager"),
    "vllm": ("vllm",),
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
}
"""What `needs_server` may name, and what it is called on different systems."""
OPTIONAL = frozenset({"vllm"})
"""Too large for CI: a test that needs one is skipped there too."""


def program(server: str) -> Path | None:
    """Where it is, by the first of its names on PATH."""
    found = (shutil.which(name) for name in PROGRAMS[server])
    return next((Path(path) for path in found if path), None)


def required(server: str) -> str:
    """Its path, for a test that is marked with `needs_server`."""
    path = program(server)
    if path is None:
        raise AssertionError(f"{server} is not on PATH; mark the test with needs_server('{server}')")
    return str(path)


def skip_without_servers(item: pytest.Item) -> None:
    """Skip, or fail under `TESTS_NEED_SERVERS=1`, a test whose servers are not installed."""
    named = [server for marker in item.iter_markers("needs_server") for server in marker.args]
    if unknown := sorted(set(named) - set(PROGRAMS)):
        raise pytest.UsageError(f"{item.nodeid}: needs_server{unknown} is none of {sorted(PROGRAMS)}")
    missing = [server for server in named if program(server) is None]
    if not missing:
        return
    tried = "; ".join(f"{server}: no {' or '.join(PROGRAMS[server])} on PATH" for server in missing)
    if os.environ.get(NEEDED) == "1" and not OPTIONAL.issuperset(missing):
        pytest.fail(f"{tried} ({NEEDED}=1 does not let this test be skipped)", pytrace=False)
    pytest.skip(tried)
