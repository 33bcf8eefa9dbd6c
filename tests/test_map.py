"""The map in `bot/__init__.py` names stations that exist."""

from __future__ import annotations

import importlib.util
import re

import pytest

import bot

STATIONS = sorted(set(re.findall(r"`(bot\.[a-z_.]+)`", bot.__doc__ or "")))


def test_the_map_is_not_empty() -> None:
    assert len(STATIONS) >= 16


@pytest.mark.fast
@pytest.mark.parametrize("station", STATIONS)
def test_every_station_of_the_map_exists(station: str) -> None:
    assert importlib.util.find_spec(station) is not None
