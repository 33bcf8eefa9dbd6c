"""Pages and logs of real vLLM servers, unpacked once per session."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.adapters.vllm.recording import read_recording
from bot.domain.signals.window import Window
from bot.flow.ports.cluster import Replica
from tests.kit.archives import unpack

ARCHIVE = Path(__file__).parents[1] / "data" / "vllm-captures.tar.xz"
REPLICA = Replica(name="llm-0", uid="u0", address="10.0.0.1")


class Capture:
    """One scenario: all its scrapes, as the scraper would have made them, and the times of its phases."""

    def __init__(self, folder: Path) -> None:
        recording = read_recording(folder)
        self.scrapes, self._events = list(recording.scrapes), recording.events

    def phase(self, word: str) -> Window:
        """Returns the window from the event with this word to the next event."""
        at = next(i for i, (_, event) in enumerate(self._events) if f"({word}" in event)
        return Window(self._events[at][0], self._events[at + 1][0])


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, folder)
    found = next(folder.rglob("A_thrash_then_lower_max_num_seqs"))
    return found.parent


@pytest.fixture(scope="session")
def capture(captures: Path) -> Callable[[str], Capture]:
    made: dict[str, Capture] = {}

    def of(name: str) -> Capture:
        if name not in made:
            made[name] = Capture(captures / name)
        return made[name]

    return of
