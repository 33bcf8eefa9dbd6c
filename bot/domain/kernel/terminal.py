"""Text for a terminal. Text from outside may hold what a terminal takes as a command."""

from __future__ import annotations

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def plain(text: str) -> str:
    """Returns the text with its control characters as `\\x1b`, but with its lines and tabs."""
    return text.translate(_CONTROLS)
