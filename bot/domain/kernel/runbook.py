"""A step of the runbook that a playbook follows, with the address of its text."""

from __future__ import annotations

from bot.domain.kernel.links import safe_url
from bot.domain.kernel.strict import Strict


class Runbook(Strict):
    """A step of the runbook that a playbook follows."""

    step: str
    """The step as the runbook calls it."""
    url: str = ""
    """Where it is written."""

    @property
    def link(self) -> str:
        """The address if it is safe in a link of any format; else empty, and only the step is shown."""
        return safe_url(self.url)


class RelatedRunbook(Strict):
    """Another runbook that belongs to the same trouble."""

    runbook: str
    """What it is called."""
    url: str = ""
    """Where it is written."""
    playbook: str = ""
    """The playbook that follows it."""

    @property
    def link(self) -> str:
        """The address if it is safe in a link of any format; else empty, and only the name is shown."""
        return safe_url(self.url)
