"""A captured scenario of a real server: its scrapes as the scraper would have made them, and its phases."""

import json
from pathlib import Path

from bot.adapters.vllm.metrics import parse, scrape_of
from bot.domain.scrape import Scrape
from bot.domain.window import Window
from bot.flow.ports import Replica

ARCHIVE = Path(__file__).parents[2] / "data" / "vllm-captures.tar.xz"
REPLICA = Replica(name="llm-0", uid="u0", address="10.0.0.1")


class Capture:
    """One scenario: all its scrapes as the scraper would have made them, and when its phases began and ended."""

    def __init__(self, folder: Path) -> None:
        entries = [json.loads(line) for line in _lines(folder / "scrapes/index.jsonl")]
        self.scrapes = [_scrape(folder / "scrapes", entry) for entry in entries]
        self._events = [json.loads(line) for line in _lines(folder / "timeline.jsonl")]

    def phase(self, word: str) -> Window:
        """The time from the event that carries this word to the next event."""
        times = [event["t"] for event in self._events]
        at = next(i for i, event in enumerate(self._events) if f"({word}" in event["event"])
        return Window(times[at], times[at + 1])


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _scrape(folder: Path, entry: dict[str, object]) -> Scrape:
    at = float(str(entry["t"]))
    if "file" not in entry:
        return Scrape(replica=REPLICA.name, uid=REPLICA.uid, at=at, error=str(entry["error"]))
    found = scrape_of(parse((folder / str(entry["file"])).read_text()), REPLICA, at)
    assert found is not None
    return found
