"""Reads from Redis for the command line."""

from __future__ import annotations

from bot.cli.stored import loaded


class Large:
    """A result whose repr takes long. It counts them."""

    formatted = 0

    def __repr__(self) -> str:
        self.formatted += 1
        return "a whole run"


def test_a_loaded_result_is_not_formatted_when_its_event_loop_ends() -> None:
    async def load() -> Large:
        return Large()

    result = loaded(load())
    assert result.formatted == 0
