"""What a handler comes to."""

from __future__ import annotations

from typing import TypeVar

from bot.flow.perform_effect import Done, Later

E = TypeVar("E")


def only(result: Done | Later, kind: type[E]) -> E:
    """The one event of an effect that is done."""
    assert isinstance(result, Done)
    (event,) = result.events
    assert isinstance(event, kind)
    return event
