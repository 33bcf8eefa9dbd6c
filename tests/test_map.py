"""The map in `bot/__init__.py` names stations that exist, and modules import each other as permitted."""

from __future__ import annotations

import importlib.util
import re

import pytest

import bot
from bot.probes.catalogue import PROBES
from tests.import_graph import cycles, imports_of

STATIONS = sorted(set(re.findall(r"`(bot\.[a-z_.]+)`", bot.__doc__ or "")))


def test_the_map_is_not_empty() -> None:
    assert len(STATIONS) >= 16


@pytest.mark.fast
@pytest.mark.parametrize("station", STATIONS)
def test_every_station_of_the_map_exists(station: str) -> None:
    assert importlib.util.find_spec(station) is not None


@pytest.mark.fast
def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycles(imports_of("bot")) == []


@pytest.mark.fast
def test_a_circle_of_imports_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


@pytest.mark.fast
def test_probes_do_not_import_each_other() -> None:
    declared = {probe.answer.__module__ for probe in PROBES.values()}
    imports = imports_of("bot")
    assert {module: imports[module] & declared for module in declared if imports[module] & declared} == {}
    assert len(declared) == len(PROBES)
