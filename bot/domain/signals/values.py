"""Views of values by dotted name: an expression names a few of hundreds, so each is looked up when it is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

from bot.domain.signals.signal import Reading, Value


@final
class Under(Mapping[str, Value]):
    """The values of a mapping, each called `prefix` and its name."""

    __slots__ = ("_prefix", "_values")

    def __init__(self, prefix: str, values: Mapping[str, Value]) -> None:
        self._prefix, self._values = prefix, values

    def __getitem__(self, name: str) -> Value:
        if not name.startswith(self._prefix):
            raise KeyError(name)
        return self._values[name[len(self._prefix) :]]

    def __iter__(self) -> Iterator[str]:
        return (self._prefix + name for name in self._values)

    def __len__(self) -> int:
        return len(self._values)


@final
class Within(Mapping[str, Value]):
    """Those values whose names begin with `prefix`, called without it."""

    __slots__ = ("_prefix", "_values")

    def __init__(self, prefix: str, values: Mapping[str, Value]) -> None:
        self._prefix, self._values = prefix, values

    def __getitem__(self, name: str) -> Value:
        return self._values[self._prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._values if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@final
class Known(Mapping[str, Value]):
    """The values of readings and their parts, `name` and `name.part`. What could not be read is not there."""

    __slots__ = ("_readings",)

    def __init__(self, readings: Mapping[str, Reading]) -> None:
        self._readings = readings

    def __getitem__(self, name: str) -> Value:
        of, _, part = name.partition(".")
        reading = self._readings[of]
        value = None if reading.unknown else reading.fields[part] if part else reading.value
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        for name, reading in self._readings.items():
            if reading.unknown:
                continue
            if reading.value is not None:
                yield name
            yield from (f"{name}.{part}" for part in reading.fields)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@final
class Overlaid(Mapping[str, Value]):
    """The values of `first`, and those that only `then` has."""

    __slots__ = ("_first", "_then")

    def __init__(self, first: Mapping[str, Value], then: Mapping[str, Value]) -> None:
        self._first, self._then = first, then

    def __getitem__(self, name: str) -> Value:
        try:
            return self._first[name]
        except KeyError:
            return self._then[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._first, *self._then]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
