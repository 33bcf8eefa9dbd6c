"""Kubernetes quantities are parsed exactly, as the official client and the API server parse them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.kernel.quantity import parse_quantity, whole

pytestmark = pytest.mark.fast
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e+6"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3k", 3000),
        ("1M", 1_000_000),
        ("0.5", Fraction(1, 2)),
        ("1e3", 1000),
        ("100m", Fraction(1, 10)),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        (" 4 ", 4),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("-1Ki", -1024),
        (8, 8),
        (0.5, Fraction(1, 2)),
    ],
)
def test_a_quantity_is_read_exactly(text: str | float, value: Fraction | int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["four", "", "1ki", "1K", "1 Gi", "--1", "1e", "0x10", "1_000", "NaN", "1.2.3"])
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse_quantity(text)


def test_a_boolean_is_not_a_quantity() -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        parse_quantity(True)


def test_what_cannot_be_divided_is_rounded_up() -> None:
    assert (whole("500m"), whole("3k"), whole("2"), whole("1001m")) == (1, 3000, 2, 2)


@given(
    number=st.decimals(min_value=-(10**9), max_value=10**9, places=3).map(lambda number: f"{number:f}"),
    suffix=st.sampled_from(SUFFIXES),
)
def test_it_agrees_with_the_official_client(number: str, suffix: str) -> None:
    from kubernetes.utils import quantity as client

    official: Callable[[str], Decimal] = client.parse_quantity
    ours, theirs = parse_quantity(number + suffix), Fraction(official(number + suffix))
    # The client counts in decimals of 28 digits.
    assert abs(ours - theirs) <= abs(ours) / 10**20
