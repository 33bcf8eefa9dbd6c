"""Loopback addresses: no two fleets share an octet, though both look for one before either listens."""

from __future__ import annotations

import pytest

from bot.sandbox.fleet.addresses import Addresses

pytestmark = pytest.mark.fast


def test_fleets_that_start_at_once_have_different_addresses() -> None:
    fleets = [Addresses() for _ in range(20)]
    assert len({fleet.octet for fleet in fleets}) == len(fleets)
    for fleet in fleets:
        fleet.close()


def test_an_address_is_never_given_out_twice() -> None:
    fleet = Addresses(7)
    pods = [fleet.next_pod() for _ in range(600)]
    assert (pods[0], pods[250], len(set(pods))) == ("127.7.1.1", "127.7.2.1", 600)
