"""Where the owners of workloads keep them: files of git repositories, which are changed by pull requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.kernel.target import Target


@dataclass(frozen=True)
class Proposal:
    """One pull request."""

    target: Target
    edit: OwnersEdit
    branch: str
    """The same for each attempt, and no other proposal's: by it a pull request is found again."""
    title: str
    body: str
    """In Markdown."""


class Repositories(Protocol):
    def file_of(self, target: Target) -> str:
        """Returns the repository and the path, for people; empty if the settings name none for this target."""
        ...

    async def propose(self, proposal: Proposal) -> str:
        """Returns the address of the pull request, which may be an earlier attempt's. Raises `RepositoryError`."""
        ...
