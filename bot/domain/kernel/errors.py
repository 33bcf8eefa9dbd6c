"""Every error that the bot raises on purpose; each leaf names what to do about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal


class BotError(Exception):
    """Root of the tree; never raised itself."""


@dataclass(frozen=True)
class Fault:
    """One fault in a file: where (`file:line:column`), what, and what to do next."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        if not self.hint:
            return f"{self.where}: {self.what}"
        return f"{self.where}: {self.what}{'.' if self.hint[0].isupper() else ''} {self.hint}"


class PlaybookError(BotError):
    """Fix the file: all faults of one playbook at once."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = faults


class SettingsError(BotError):
    """Fix the settings: all faults at once, before any socket opens."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ExpressionError(BotError):
    """Fix the expression; `column` counts from 1 within it.

    `unknown`: the name that nothing defines, if that is the fault; `near`: the known one that the hint suggests.
    """

    def __init__(self, what: str, column: int, hint: str = "", *, unknown: str = "", near: str = "") -> None:
        super().__init__(what)
        self.what, self.column, self.hint, self.unknown, self.near = what, column, hint, unknown, near

    def moved(self, by: int) -> ExpressionError:
        """Returns it for a text in which the expression begins `by` characters later."""
        return ExpressionError(self.what, by + self.column, self.hint, unknown=self.unknown, near=self.near)


class BadWebhookError(BotError):
    """Notify the sender (4xx): the payload is not what Alertmanager sends."""


class SecretFileError(BotError):
    """Notify the sender (503): the file of a secret of the bot cannot be read now."""


class OpeningError(BotError):
    """Notify the person who wanted to open an incident; `fields` has the fault of each field of the form."""

    def __init__(self, reason: str, fields: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.fields = dict(fields or {})


class ApprovalError(BotError):
    """Notify the presser: the message is the reason why the press does not count."""


class StaleRunError(BotError):
    """Reload the run and decide again: another process committed first."""


class NewerFormError(BotError):
    """Leave it as it is: a newer version of the bot stored it, and its replicas go on with it."""

    def __init__(self, what: str, forms: str = "") -> None:
        detail = f" ({forms})" if forms else ""
        super().__init__(
            f"{what} was stored by a newer version of the bot{detail}; it is left to the replicas of that version"
        )


class StorageUnavailableError(BotError):
    """Redis did not answer: nothing was accepted, nothing may be changed; try again later."""


class SourceError(BotError):
    """A source of readings failed or was too slow: its signals are unknown, with this reason."""


class NoAnswerError(SourceError):
    """A request was sent and not answered: nobody knows whether it was carried out."""


class CircuitOpenError(SourceError):
    """Try again later: the dependency has not answered for a while, so the call was skipped."""

    def __init__(self, reason: str, *, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class ClusterError(BotError):
    """Kubernetes refused or did not answer a read; the reason is for people."""


class RefusedError(ClusterError):
    """Look at the bot's role: the API server answered, and forbids this read."""


class CutLogError(ClusterError):
    """Ask for fewer lines: the newest of those that were asked for are missing. `beginning`: those that are there."""

    def __init__(self, reason: str, beginning: str) -> None:
        self.beginning = beginning
        super().__init__(reason)


class UnknownClusterError(ClusterError):
    """Name one of the bot's clusters: none was named, or one that it does not work on."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.name, self.known = name, ", ".join(f"'{each}'" for each in sorted(known))
        unknown = f"'{name}' is not a cluster of this bot" if name else "the cluster is not named"
        super().__init__(f"{unknown}; its clusters: {self.known}")


class SilentClusterError(ClusterError):
    """Ask again in a moment: the cluster does not answer, and nothing else names the workload."""


class NotServingError(BotError):
    """Nothing to do: the alert is about a workload that runs no inference engine."""


class ServiceError(BotError):
    """A service outside refused permanently (`lasting`), or for now; raised only as one of those below."""

    def __init__(self, reason: str, *, lasting: bool, retry_after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.lasting, self.retry_after_seconds = reason, lasting, retry_after_seconds


class PagerError(ServiceError):
    """A pager refused permanently (`lasting`) or did not answer."""


class RepositoryError(ServiceError):
    """A pull request could not be opened: refused permanently (`lasting`), or not answered."""


class MessengerError(ServiceError):
    """Slack refused permanently (`lasting`) or for now."""

    def __init__(self, reason: str, *, lasting: bool, retry_after_seconds: float = 1.0) -> None:
        super().__init__(reason, lasting=lasting, retry_after_seconds=retry_after_seconds)


class PaceError(MessengerError):
    """Nothing was sent: Slack would accept it after `retry_after_seconds`."""


class OvertakenError(MessengerError):
    """Load everything and show it again: this process was frozen, and another one may have shown more meanwhile."""

    def __init__(self, doing: str) -> None:
        super().__init__(f"{doing}: this process was frozen meanwhile", lasting=False)


class LostRunError(BotError):
    """The storage lacks an incident that it should have: it may have lost its data."""


class NoPlanError(BotError):
    """The verb declines: the run continues with this outcome, and people read the reason and the hint."""

    def __init__(
        self,
        outcome: Literal["not_needed", "impossible", "unknown"],
        reason: str,
        hint: str = "",
        handed_out: Sequence[Mapping[str, Any]] = (),
        owners_edit: Mapping[str, Any] | None = None,
    ) -> None:
        """`handed_out`: the flag edits that the owner of the workload has to make, where `hint` is their patch.

        `owners_edit`: the fields of an `OwnersEdit` that says the same, where a file can be edited by it.
        """
        super().__init__(reason)
        self.outcome, self.reason, self.hint, self.handed_out = outcome, reason, hint, tuple(handed_out)
        self.owners_edit = owners_edit


def impossible(reason: str, hint: str = "") -> NoPlanError:
    return NoPlanError("impossible", reason, hint)


def not_needed(reason: str) -> NoPlanError:
    return NoPlanError("not_needed", reason)
