"""Who may press, what people are shown and called by, and the time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from bot.domain.approvals.grant import Authority, Policy
from bot.domain.incidents.event import Event
from bot.domain.incidents.run import PageAction, Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import MessengerError


class People(Protocol):
    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        """Reads once whether this person may decide under the policy; unreadable means not allowed, with the reason."""
        ...

    async def may_operate(self, user: str, *, at: float) -> Authority:
        """Whether this person may answer questions, halt, resume, resolve."""
        ...


class OnDemand(Protocol):
    """What a messenger shows without its usual waits, because somebody asks for it now."""

    async def want_card(self, incident_id: str) -> None:
        """Somebody views this incident: its card no longer waits for its turn."""
        ...

    def ask_again(self) -> None:
        """Retries at once after a refusal, not when the retry is due."""
        ...


Draw = Callable[[], Awaitable[bytes]]


class PartlyShownError(MessengerError):
    """Some messages are there, as `events` report; the rest is shown later."""

    def __init__(self, reason: str, events: Sequence[Event], *, retry_after_seconds: float) -> None:
        super().__init__(reason, lasting=False, retry_after_seconds=retry_after_seconds)
        self.events = tuple(events)


class Displayed(NamedTuple):
    """What was shown."""

    events: Sequence[Event] = ()
    """`Posted` for each new message."""
    changed: Mapping[str, str] = MappingProxyType({})
    """What the messenger has to remember about the messages, and has not stored itself."""


class Messenger(Protocol):
    async def show(self, run: Run, shown: Mapping[str, str] | None = None) -> Displayed:
        """Brings the incident's card and thread up to date.

        `shown`: what is stored about its messages, if it has just been read; then the caller stores what has changed.

        Raises `PartlyShownError` if something is left to show later, and `MessengerError` if Slack refused; what was
        shown before that stays recorded.
        """
        ...

    async def notify(self, user: str, channel: str, text: str, *, response_url: str) -> None: ...

    async def announce(self, text: str, *, mentions: Collection[str] = ()) -> None:
        """Posts a message that belongs to no incident in the channel. Raises `MessengerError` if Slack refused.

        A person whom the text mentions, as `<@U0ANA>`, is notified only if `mentions` names them.
        """
        ...

    async def upload(self, run: Run, *, key: str, name: str, content: Draw, comment: str) -> None:
        """Uploads a file to the incident's thread, once by `key`: made again after a crash, its content may differ.

        `content` is called only when the file has to be uploaded.
        """
        ...

    async def illustrate(self, run: Run, slot: str, *, name: str, draw: Draw, caption: str) -> None:
        """Shows a picture in the message at `slot`, or as an upload in the thread if Slack refuses that.

        `draw` is called only when the picture has to be uploaded. Raises `MessengerError` to be called again.
        """
        ...


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds."""
        ...


class Silences(Protocol):
    """Every method raises `SourceError` if there is no answer."""

    async def create(self, labels: Mapping[str, str], *, starts_at: float, ends_at: float, why: str, key: str) -> str:
        """Creates a silence for alerts with all of these labels and returns its id. The same `key` creates it once."""
        ...

    async def expire(self, silence: str) -> None: ...


@dataclass(frozen=True)
class PageCall:
    """One call to a team's pager: the trigger of a page, its acknowledgement, or its end."""

    key: str
    """The pager deduplicates by it: one page for each team and incident."""
    team: str
    action: PageAction
    at: float
    text: str
    incident: str
    title: str
    target: str
    link: str = ""
    """The incident's card in Slack."""


class ReportSink(Protocol):
    """A place outside where reports of closed incidents are kept."""

    name: str

    async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
        """Keep these files, by name; those of an earlier close are replaced. Raises `SourceError`."""
        ...

    async def check(self) -> None:
        """Try whether reports can be kept there. Raises `SourceError`."""
        ...


class Pager(Protocol):
    async def send(self, team: str, call: PageCall) -> str:
        """Returns the name of the pager that accepted it. Raises `PagerError`."""
        ...


class FiringAlerts(Protocol):
    async def firing(self) -> Sequence[Alert]:
        """The alerts that fire now and would be sent; raises `SourceError` if there is no answer."""
        ...
