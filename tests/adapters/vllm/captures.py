"""A captured scenario of a real server: its scrapes as the scraper would have made them, and its phases."""

from pathlib import Path

from bot.adapters.vllm.recording import read_recording
from bot.domain.signals.window import Window
from bot.flow.ports import Replica

ARCHIVE = Path(__file__).parents[2] / "data" / "vllm-captures.tar.xz"
REPLICA = Replica(name="llm-0", uid="u0", address="10.0.0.1")


class Capture:
    """One scenario: all its scrapes as the scraper would have made them, and when its phases began and ended."""

    def __init__(self, folder: Path) -> None:
        recording = read_recording(folder)
        self.scrapes, self._events = list(recording.scrapes), recording.events

    def phase(self, word: str) -> Window:
        """The time from the event that carries this word to the next event."""
        at = next(i for i, (_, event) in enumerate(self._events) if f"({word}" in event)
        return Window(self._events[at][0], self._events[at + 1][0])
