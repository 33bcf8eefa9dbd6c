"""A container's log as its kubelet stores it: lines with their time of writing, oldest dropped first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.sandbox.fleet.startup import LogLine

KEPT_LINES = 20_000


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The parameters of `GET .../log`."""

    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class ContainerLog:
    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=KEPT_LINES)

    def write(self, lines: Iterable[LogLine], now: float) -> None:
        self._lines.extend((now, line.written(now)) for line in lines)

    def raw(self, text: str, now: float) -> None:
        self._lines.append((now, text))

    def read(self, query: LogQuery) -> str:
        lines = [(at, text) for at, text in self._lines if query.since is None or at >= query.since]
        if query.tail_lines is not None:
            lines = lines[-query.tail_lines :] if query.tail_lines else []
        text = "".join(f"{_stamp(at) if query.timestamps else ''}{line}\n" for at, line in lines)
        return text if query.limit_bytes is None else text[: query.limit_bytes]


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z ")
