"""The code of an earlier commit, in a folder: for tests of a rolling upgrade."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.kit.archives import unpack

ROOT = Path(__file__).parent.parent


def why_not(commit: str) -> str:
    """Why there is no code of that commit; empty if there is."""
    try:
        found = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except FileNotFoundError:
        return "git is not installed, so there is no earlier code to upgrade from"
    if found.returncode:
        return f"this checkout has no {commit} (an archive or a shallow clone): there is nothing to upgrade from"
    return ""


@contextlib.contextmanager
def code_of(commit: str) -> Iterator[Path]:
    """A folder in which `python -m bot` runs that commit, with the libraries of this environment."""
    archive = _git("archive", "--format=tar", commit, "bot", "playbooks")
    archive.check_returncode()
    with tempfile.TemporaryDirectory(prefix="earlier-code-") as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            unpack(files, Path(folder))
        yield Path(folder)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
