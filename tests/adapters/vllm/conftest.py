"""Pages and logs of real vLLM servers, unpacked once a session."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.adapters.vllm.captures import ARCHIVE, Capture


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
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
