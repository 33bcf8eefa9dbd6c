"""The files of playbooks and fragments: their texts, and whether they have changed."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.domain.kernel.errors import Fault

FRAGMENTS = "fragments"
"""The folder of fragments, beside the playbooks."""
MAX_BYTES = 512 * 1024
SETTLED_SECONDS = 5.0
"""Longer than one tick of a file system's clock: 2 s where it is the longest."""
FragmentTexts = Mapping[str, tuple[str, str | Fault]]
"""Fragments by name: the file, and its text or why it cannot be read."""


def text_of(path: Path) -> str | Fault:
    """Returns the text of a file, or why it cannot be read."""
    try:
        # Without waiting: a pipe in the folder may never get a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Fault(str(path), "is not a file with text", "Move it out of the folder.")
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            return Fault(str(path), f"the file is bigger than {MAX_BYTES // 1024} KiB")
        return content.decode("utf-8")
    except OSError as error:
        return Fault(str(path), f"cannot be read: {error.strerror}")
    except UnicodeDecodeError as error:
        return Fault(str(path), f"is not UTF-8 at byte {error.start}")


def texts_of_fragments(folder: Path) -> FragmentTexts:
    return {path.stem: (str(path), text_of(path)) for path in sorted(folder.glob("*.yaml"))}


def never_read(path: Path) -> Fault:
    """For a `*.yml`."""
    return Fault(str(path), "is not read: playbooks and fragments are *.yaml", f"Rename it to {path.stem}.yaml.")


class FileHashes:
    """A hash of each file of the folders that `load_folders` reads. A file is read only when it may have changed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._known: dict[str, _Read] = {}

    def __call__(self) -> dict[str, str]:
        files = (each for folder in self._folders for each in (folder, folder / FRAGMENTS))
        found = {str(path): path for folder in files for path in sorted(folder.glob("*.yaml"))}
        self._known = {name: self._hash(name, path) for name, path in found.items()}
        return {name: read.digest for name, read in self._known.items()}

    def _hash(self, name: str, path: Path) -> _Read:
        written, known = _written(path), self._known.get(name)
        if known is not None and known.is_final and known.written == written:
            return known
        read_at, text = time.time(), text_of(path)
        digest = hashlib.sha256(str(text).encode()).hexdigest()
        # Two writes within one tick of the file system's clock leave the same times. What could not be read may be
        # readable a moment later, without any write.
        is_final = written is not None and isinstance(text, str) and read_at - written.at > SETTLED_SECONDS
        return _Read(written, digest, is_final)


@dataclass(frozen=True)
class _Written:
    """What differs after a file was written. A mounted ConfigMap is replaced by another file of the same name."""

    at: float
    size: int
    inode: int


@dataclass(frozen=True)
class _Read:
    written: _Written | None
    digest: str
    is_final: bool
    """It need not be read again until it is written."""


def _written(path: Path) -> _Written | None:
    """None for a link without an end, or a file that has just gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return _Written(max(found.st_mtime, found.st_ctime), found.st_size, found.st_ino)
