"""Playbook files that change while the bot runs: the version in force, and one notice to people."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bot.adapters.yaml_playbooks import FileHashes, load_folder, load_folders
from bot.domain.kernel.errors import MessengerError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.library import Library
from bot.domain.playbooks.settings import Override
from bot.flow.live_playbooks import LivePlaybooks

pytestmark = pytest.mark.fast

DRILL = (Path(__file__).parent / "drill.yaml").read_text(encoding="utf-8")
TARGET = Target(cluster="test", namespace="llm", kind="Deployment", name="llm")


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.announced, self.is_away = folder, list[str](), False
        self.write(DRILL)
        self.known = set[str]()
        self.live = self.bot()

    def bot(self, *overrides: Override) -> LivePlaybooks:
        """One replica of the bot; what was announced is known to all of them."""
        return LivePlaybooks(
            lambda: load_folder(self.folder, *overrides), FileHashes([self.folder]), self._announce, self._forget
        )

    async def _announce(self, about: str, text: str) -> None:
        if self.is_away:
            raise MessengerError("Slack is away", lasting=False)
        if about not in self.known:
            self.known.add(about)
            self.announced.append(text)

    async def _forget(self, about: str) -> None:
        self.known.discard(about)

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
    assert (bench.title, bench.announced) == ("Another", [])


async def test_an_override_with_a_fault_is_announced_and_named_to_who_watches_the_bot(bench: Bench) -> None:
    assert bench.live.notices() == {}
    bench.live = bench.bot(Override(settings={"windw": "5m"}))
    await bench.live.refresh()
    fault = "overrides: no playbook has a setting 'windw'"
    (announced,) = bench.announced
    assert announced.startswith("Overrides in the bot's settings have faults.")
    assert fault in announced
    assert bench.live.notices()["playbooks"].startswith(fault)


async def test_who_watches_the_bot_sees_how_many_more_faults_there_are(bench: Bench) -> None:
    bench.live = bench.bot(Override(settings={"windw": "5m"}), Override(settings={"calm": "5m", "load": "1"}))
    assert bench.live.notices()["playbooks"].endswith(" (and 2 more)")


async def test_a_file_that_is_being_written_is_not_read_halfway(bench: Bench) -> None:
    bench.write(DRILL[:50])
    await bench.live.refresh()
    bench.write(titled("Whole"))
    await bench.settled()
    assert (bench.title, bench.announced) == ("Whole", [])


async def test_an_edit_that_cannot_be_read_at_first_is_read_again(bench: Bench) -> None:
    faults = [None, OSError("the volume is not there")]

    def read() -> Library:
        if faults and (fault := faults.pop(0)) is not None:
            raise fault
        return load_folder(bench.folder)

    bench.live = LivePlaybooks(read, FileHashes([bench.folder]), bench._announce, bench._forget)
    bench.write(titled("Another"))
    await bench.live.refresh()
    with pytest.raises(OSError, match="the volume is not there"):
        await bench.live.refresh()
    await bench.live.refresh()
    assert bench.title == "Another"


async def test_a_broken_edit_leaves_the_last_good_version_in_force_and_is_announced_once(bench: Bench) -> None:
    before = bench.title
    bench.write(DRILL.replace("start:", "strt:", 1))
    await bench.settled()
    await bench.settled()
    assert bench.title == before
    (announced,) = bench.announced
    assert "The last good version of drill stays in force" in announced
    assert "drill.yaml:" in announced
    bench.write(titled("Mended"))
    await bench.settled()
    assert bench.title == "Mended"


async def test_a_file_that_is_mended_is_announced_and_the_same_fault_is_announced_again(bench: Bench) -> None:
    for _ in range(2):
        bench.write(DRILL.replace("start:", "strt:", 1))
        await bench.settled()
        bench.write(DRILL)
        await bench.settled()
    kinds = ["is sound again" if "sound again" in text else "has faults" for text in bench.announced]
    assert kinds == ["has faults", "is sound again"] * 2


async def test_two_bots_announce_one_edit_once(bench: Bench) -> None:
    other = bench.bot()
    for text in (DRILL.replace("start:", "strt:", 1), DRILL):
        bench.write(text)
        for live in (bench.live, other, other, bench.live):
            await live.refresh()
    assert len(bench.announced) == 2


async def test_a_file_that_is_broken_when_the_bot_starts_is_announced_once_however_often_it_starts(
    bench: Bench,
) -> None:
    bench.write(DRILL.replace("start:", "strt:", 1))
    for _ in range(2):
        await bench.bot().refresh()
    assert ["It is not in force" in text for text in bench.announced] == [True]


async def test_a_broken_file_that_is_deleted_is_not_called_sound(bench: Bench) -> None:
    bench.write("language: 1\n", "new")
    await bench.settled()
    (bench.folder / "new.yaml").unlink()
    await bench.settled()
    assert len(bench.announced) == 1


async def test_what_slack_did_not_take_is_announced_later(bench: Bench) -> None:
    bench.is_away = True
    bench.write(DRILL.replace("start:", "strt:", 1))
    with capture_logs() as logs:
        await bench.settled()
        await bench.live.refresh()
    assert bench.announced == []
    assert [each["event"] for each in logs].count("playbooks.not_announced") == 1
    bench.is_away = False
    await bench.live.refresh()
    assert len(bench.announced) == 1


async def test_a_new_file_with_faults_is_announced_too(bench: Bench) -> None:
    bench.write("language: 1\n", "new")
    await bench.settled()
    assert ["It is not in force" in text for text in bench.announced] == [True]


async def test_a_file_that_was_deleted_opens_nothing_any_more(bench: Bench) -> None:
    (bench.folder / "drill.yaml").unlink()
    await bench.settled()
    assert bench.live.bundle("drill", TARGET) is None


async def test_the_last_good_version_keeps_its_settings_of_single_targets(bench: Bench) -> None:
    bench.live = bench.bot(Override(target="llm/*", settings={"calm_for": "7s"}))
    bench.write(DRILL + "\nnonsense: 1\n")
    await bench.settled()
    bundle = bench.live.bundle("drill", TARGET)
    assert bundle is not None
    assert bundle.entry_playbook.settings["calm_for"] == 7.0


async def test_a_new_file_with_faults_leaves_the_one_of_a_later_folder_in_force(tmp_path: Path) -> None:
    packaged, own = tmp_path / "packaged", tmp_path / "own"
    for folder in (packaged, own):
        folder.mkdir()
    bench = Bench(packaged)
    folders = (packaged, own)
    bench.live = LivePlaybooks(lambda: load_folders(folders), FileHashes(folders), bench._announce, bench._forget)
    (own / "drill.yaml").write_text(DRILL + "\nnonsense: 1\n", encoding="utf-8")
    await bench.settled()
    assert bench.live.bundle("drill", TARGET) is not None
    assert "The last good version of drill stays in force." in bench.announced[-1]
