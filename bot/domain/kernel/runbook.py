"""A step of the runbook that a playbook follows, with the address of its text."""

from __future__ import annotations

import unicodedata

from bot.domain.kernel.strict import Strict

_NOT_IN_A_LINK = frozenset("<>\"'`|\\^{}")


class Runbook(Strict):
    """A step of the runbook that a playbook follows."""

    step: str
    """The step as the runbook calls it."""
    url: str = ""
    """Where it is written."""

    @property
    def link(self) -> str:
        """The address if it is safe in a link of any format; else empty, and only the step is shown."""
        is_web = self.url.startswith(("https://", "http://"))
        return self.url if is_web and all(map(_may_be_in_a_link, self.url)) else ""


def _may_be_in_a_link(char: str) -> bool:
    """Spaces and unseen characters end a link in some formats, and disguise it in others."""
    return char not in _NOT_IN_A_LINK and unicodedata.category(char)[0] not in "CZ"
