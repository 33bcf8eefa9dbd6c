"""Tar archives, unpacked."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def unpack(archive: tarfile.TarFile, folder: Path, members: Iterable[tarfile.TarInfo] | None = None) -> None:
    """Extracts what is in a safe place and form, where Python can check it: since 3.11.4, and Debian 12 has 3.11.2."""
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    archive.extractall(folder, members, **safely)
