"""How a playbook refers to a setting and to what a state picked, where no expression is: `settings.window`."""

from __future__ import annotations

SETTINGS_PREFIX = "settings."
"""Begins the name of a setting in expressions and texts."""
PICKED_PREFIX = "picked."


def setting_in(text: str) -> str | None:
    """Returns the name of the setting that a text stands for, as `settings.window` does; None for any other text."""
    return _after(SETTINGS_PREFIX, text)


def pick_in(text: str) -> str | None:
    """Returns the name of the pick that a text stands for, as `picked.replica` does; None for any other text."""
    return _after(PICKED_PREFIX, text)


def _after(prefix: str, text: str) -> str | None:
    return text.removeprefix(prefix) if text.startswith(prefix) else None
