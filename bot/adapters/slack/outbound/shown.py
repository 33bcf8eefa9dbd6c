"""The messenger's two Protocols: what is known to be in Slack, slot by slot, and how fast more may be sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Shown:
    """One slot as it was last shown.

    While `attempt_at` is not 0 and `ts` is empty, a post may have been sent whose answer is not known.
    For a file slot (`file:<key>`) `ts` is the file's id, and `hash` is set once it is in the thread. For a picture in a
    message (`picture:<slot>`) `ts` is the file's id, and `hash` says whether Slack shows it.
    """

    ts: str = ""
    channel: str = ""
    hash: str = ""
    """The hash of the rendered message in Slack."""
    lasting: str = ""
    """The same without what moves by itself, and when the message was edited: progress alone is shown less often."""
    edited_at: float = 0.0
    attempt_at: float = 0.0
    first_attempt_at: float = 0.0
    """Look-ups begin here: even the oldest attempt may have arrived."""
    lookups: int = 0
    """How many look-ups since the last attempt did not find it."""
    link: str = ""
    """The address of the message, if it was requested."""
    alt_text: str = ""
    """What a picture shows."""


class ShownStore(Protocol):
    async def load(self, incident_id: str) -> Mapping[str, Shown]:
        """Every slot of the incident. Raise `StorageUnavailableError` on no answer."""
        ...

    def read(self, incident_id: str, stored: Mapping[str, str]) -> Mapping[str, Shown]:
        """What `load` returns, from text that was read already."""
        ...

    def written(self, shown: Mapping[str, Shown]) -> Mapping[str, str]:
        """The text that `read` reads."""
        ...

    async def save(self, incident_id: str, shown: Mapping[str, Shown]) -> None:
        """Stored when it returns. Raise `LostRunError` when the incident itself is not stored."""
        ...

    async def attempt(self, incident_id: str, shown: Mapping[str, Shown], *, channel: str) -> float:
        """Take a token of the pace of posts in this channel, store all of it, and return 0; as `save` if not stored.

        Without a token store nothing, and return the seconds until there is one.
        """
        ...


class Pace(Protocol):
    async def take(self, kind: Literal["post", "update", "home"], key: str) -> float:
        """Take one token and return 0, or take none and return the seconds until there is one.

        Posts: one bucket a channel (about 1/s with a short burst). Updates: one bucket a workspace (about 50 a minute).
        Homes: one bucket a person.
        """
        ...
