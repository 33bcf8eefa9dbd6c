"""Quantities in the canonical form of the API server, and shares such as `25%`."""

import math
import re
from fractions import Fraction

from bot.domain.kernel.quantity import SUFFIXES, parse_quantity, split_quantity

DECIMAL, BINARY = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SMALLEST = Fraction(1, 10**9)


def canonical(text: str | int | float) -> str:
    """The same amount without a fraction and with the largest suffix: 3000 becomes `3k`. Raises `ValueError`."""
    amount, suffix = parse_quantity(text), split_quantity(text)[1]
    amount = math.ceil(amount / _SMALLEST) * _SMALLEST
    if suffix[:1] in ("e", "E") and suffix not in SUFFIXES:
        power = next(power for power in range(18, -10, -3) if _is_whole(amount / Fraction(10) ** power))
        return f"{amount / Fraction(10) ** power}" + (f"e{power}" if power else "")
    # An amount below 1024, or not a whole number of bytes, is written without a binary suffix.
    is_binary = suffix.endswith("i") and _is_whole(amount) and abs(amount) >= 1024
    units = BINARY if is_binary else DECIMAL
    unit = next((one for one in reversed(units) if _is_whole(amount / SUFFIXES.get(one, 1))), "n")
    return f"{amount / SUFFIXES.get(unit, 1)}{unit}" if amount else "0"


def _is_whole(amount: Fraction) -> bool:
    return amount.denominator == 1


def resolve_int_or_percent(value: int | str, total: int, *, round_up: bool) -> int:
    """`3` is 3; `25%` is a share of `total`. Raises `ValueError` for anything else."""
    if isinstance(value, int):
        return value
    matched = re.fullmatch(r"([0-9]+)%", value)
    if matched is None:
        raise ValueError("must be an integer or percentage (e.g '5%')")
    share = int(matched[1]) * total / 100
    return math.ceil(share) if round_up else math.floor(share)
