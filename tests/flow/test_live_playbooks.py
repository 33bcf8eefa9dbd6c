"""Files of playbooks that change while the bot runs: what is in force, and what people are told, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import hashes_of, load_folder
from bot.domain.errors import MessengerError
from bot.domain.target import Target
from bot.flow.live_playbooks import LivePlaybooks

pytestmark = pytest.mark.fast

DRILL = (Path(__file__).parent / "drill.yaml").read_text(encoding="utf-8")
TARGET = Target(cluster="test", namespace="llm", kind="Deployment", name="llm")


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.told, self.is_away = folder, list[str](), False
        self.write(DRILL)
        self.live = LivePlaybooks(lambda: load_folder(folder), lambda: hashes_of([folder]), self._tell)

    async def _tell(self, about: str, text: str) -> None:
        if self.is_away:
            raise MessengerError("Slack is away", lasting=False)
        self.told.append(text)

    def write(self, text: str, name: str = "drill") -> None:
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    async def settled(self) -> None:
        """Two rounds: one sees that something changed, the next that it stands still."""
        await self.live.refresh()
        await self.live.refresh()

    @property
    def title(self) -> str:
        bundle = self.live.bundle("drill", TARGET)
        return "" if bundle is None else bundle.entry_playbook.playbook.title


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def titled(title: str) -> str:
    lines = [f"title: {title}" if line.startswith("title:") else line for line in DRILL.splitlines()]
    return "\n".join(lines) + "\n"


async def test_an_edit_counts_without_a_restart(bench: Bench) -> None:
    bench.write(titled("Another"))
    await bench.settled()
    assert (bench.title, bench.told) == ("Another", [])


async def test_a_file_that_is_being_written_is_not_read_halfway(bench: Bench) -> None:
    bench.write(DRILL[:50])
    await bench.live.refresh()
    bench.write(titled("Whole"))
    await bench.settled()
    assert (bench.title, bench.told) == ("Whole", [])


async def test_a_broken_edit_leaves_the_last_good_version_in_force_and_is_told_once(bench: Bench) -> None:
    before = bench.title
    bench.write(DRILL.replace("start:", "strt:", 1))
    await bench.settled()
    await bench.settled()
    assert bench.title == before
    (told,) = bench.told
    assert "The last good version of drill stays in force" in told
    assert "drill.yaml:" in told
    bench.write(titled("Mended"))
    await bench.settled()
    assert bench.title == "Mended"


async def test_what_slack_did_not_take_is_told_later(bench: Bench) -> None:
    bench.is_away = True
    bench.write(DRILL.replace("start:", "strt:", 1))
    await bench.settled()
    assert bench.told == []
    bench.is_away = False
    await bench.live.refresh()
    assert len(bench.told) == 1


async def test_a_new_file_with_faults_is_told_too(bench: Bench) -> None:
    bench.write("language: 1\n", "new")
    await bench.settled()
    assert ["It is not in force" in text for text in bench.told] == [True]


async def test_a_file_that_was_deleted_opens_nothing_any_more(bench: Bench) -> None:
    (bench.folder / "drill.yaml").unlink()
    await bench.settled()
    assert bench.live.bundle("drill", TARGET) is None
