"""What runs beside the application."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from bot.wiring import begin

pytestmark = pytest.mark.fast


async def test_a_task_beside_the_application_that_fails_is_logged_at_once_with_its_error() -> None:
    async def fails() -> None:
        raise KeyError("members")

    async with contextlib.AsyncExitStack() as stack:
        begin(fails(), "people", stack)
        (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "people")
        with capture_logs() as lines:
            await asyncio.wait([task])
        assert [(line["event"], line["exc_info"]) for line in lines] == [("people.failed", True)]
