"""Numbers as Kubernetes writes them: `500m`, `64Gi`, `25%`.

Quantities are exact, since a GPU that is half counted is a GPU that is given away twice.
"""

import math
import re
from fractions import Fraction

_QUANTITY = re.compile(r"^([+-]?[0-9]*\.?[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]+)?$")
_SUFFIX: dict[str, Fraction] = {
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}


def parse_quantity(text: str | int | float) -> Fraction:
    """Raise `ValueError` for what is no quantity."""
    matched = _QUANTITY.match(str(text).strip())
    if matched is None:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, suffix = Fraction(matched[1]), matched[2]
    if not suffix:
        return number
    if suffix in _SUFFIX:
        return number * _SUFFIX[suffix]
    return number * Fraction(10) ** int(suffix[1:])


def resolve_int_or_percent(value: int | str, total: int, *, round_up: bool) -> int:
    """`3` is 3; `25%` is a share of `total`. Raise `ValueError` for anything else."""
    if isinstance(value, int):
        return value
    matched = re.fullmatch(r"([0-9]+)%", value)
    if matched is None:
        raise ValueError("must be an integer or percentage (e.g '5%')")
    share = int(matched[1]) * total / 100
    return math.ceil(share) if round_up else math.floor(share)
