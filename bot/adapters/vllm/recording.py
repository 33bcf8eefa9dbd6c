"""A recorded folder of `/metrics` pages, read as the scraper would have read them, and served as a history.

A folder contains `scrapes/index.jsonl` (`t`, and `file` or `error`) with the pages beside it, and maybe
`timeline.jsonl` (`t`, `event`); or one such folder for each replica.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.adapters.vllm.metrics import parse, scrape_of
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.scrape import Scrape
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import ReadContext

INDEX = Path("scrapes") / "index.jsonl"


@dataclass(frozen=True)
class Recording:
    scrapes: tuple[Scrape, ...]
    events: tuple[tuple[float, str], ...]
    """Actions during the recording, as noted by its author."""

    @property
    def begins(self) -> float:
        return self.scrapes[0].at

    @property
    def ends(self) -> float:
        return self.scrapes[-1].at


class RecordedHistory:
    """The `History` port over a recording: it grows as virtual time passes, without scrapes."""

    source = "recorded scrapes"
    has_whole_pages = True

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def sample(self, context: ReadContext) -> None:
        """There is nothing to scrape."""

    async def between(
        self, context: ReadContext, metrics: frozenset[str], start: float, end: float, *, step: float = 0.0
    ) -> Sequence[Scrape]:
        return [scrape for scrape in self._recording.scrapes if start <= scrape.at <= end]


def read_recording(folder: Path) -> Recording:
    """Raises `SourceError` if the folder contains no recording."""
    folders = (
        [folder] if (folder / INDEX).is_file() else sorted(path.parent.parent for path in folder.glob(f"*/{INDEX}"))
    )
    if not folders:
        raise SourceError(f"{folder} holds no recording: there is no {INDEX} in it, nor in its folders")
    names = ["llm-0"] if folders == [folder] else [each.name for each in folders]
    scrapes = [scrape for each, name in zip(folders, names, strict=True) for scrape in _scrapes(each, name)]
    if not scrapes:
        raise SourceError(f"{folder / INDEX} names no scrape")
    events = {(float(line["t"]), str(line["event"])) for each in folders for line in _lines(each / "timeline.jsonl")}
    return Recording(tuple(sorted(scrapes, key=lambda scrape: scrape.at)), tuple(sorted(events)))


def _scrapes(folder: Path, name: str) -> list[Scrape]:
    replica = Replica(name=name, uid=f"recorded-{name}", address="")
    return [_scrape(folder / INDEX.parent, entry, replica) for entry in _lines(folder / INDEX)]


def _scrape(folder: Path, entry: dict[str, Any], replica: Replica) -> Scrape:
    at = float(entry["t"])
    if "file" not in entry:
        return Scrape(replica=replica.name, uid=replica.uid, at=at, error=str(entry.get("error", "no answer")))
    try:
        found = scrape_of(parse((folder / str(entry["file"])).read_text(encoding="utf-8")), replica, at)
    except (OSError, ValueError) as error:
        raise SourceError(f"{folder / str(entry['file'])} cannot be read: {error}") from error
    return found or Scrape(replica=replica.name, uid=replica.uid, at=at, error="no vLLM metrics on its page")


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except ValueError as error:
        raise SourceError(f"{path} is not one JSON object a line: {error}") from error
