"""Alertmanager's own API (v2): firing alerts, and silences. A silence is looked up by its key first: created once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import BadWebhookError, NoAnswerError, SourceError
from bot.domain.kernel.finding import Finding, broken, fine

AUTHOR = "incident-bot"
MAX_COMMENT_CHARACTERS = 1_000
RECEIVER = "incident-bot"
"""The bot's receiver in `deploy/alertmanager-snippet.yaml`; the Prometheus Operator prefixes its names with paths."""


class _Status(BaseModel):
    state: str


class _Silence(BaseModel):
    id: str
    created_by: str = Field(alias="createdBy")
    comment: str
    status: _Status


class _Made(BaseModel):
    id: str = Field(alias="silenceID")


class _Receiver(BaseModel):
    name: str


_SILENCES, _MADE, _RECEIVERS = TypeAdapter(list[_Silence]), TypeAdapter(_Made), TypeAdapter(list[_Receiver])
_Form = TypeVar("_Form")


class AlertmanagerApi:
    """`flow.ports.Silences` and `FiringAlerts`. Raises `SourceError` if it does not answer or refuses."""

    def __init__(self, http: httpx.AsyncClient, url: str, read: Callable[[bytes], Sequence[Alert]]) -> None:
        """`read` parses its list into alerts; raises `BadWebhookError` if that is something else."""
        self._http, self._url, self._read = http, f"{url.rstrip('/')}/api/v2", read

    async def firing(self) -> Sequence[Alert]:
        path = "alerts?active=true&silenced=false&inhibited=false"
        # Alerts that its routes send only to others are not the bot's. Under another name it cannot tell.
        every = _read(_RECEIVERS, await self._answer("GET", "receivers"))
        if ours := [re.escape(each.name) for each in every if each.name.rsplit("/", 1)[-1] == RECEIVER]:
            path += f"&receiver={quote('|'.join(ours), safe='')}"
        response = await self._answer("GET", path)
        try:
            return self._read(response.content)
        except BadWebhookError as error:
            raise SourceError(f"Alertmanager: {error}") from error

    async def create(self, labels: Mapping[str, str], *, starts_at: float, ends_at: float, why: str, key: str) -> str:
        for known in await self._silences():
            if known.created_by == AUTHOR and known.comment.endswith(f"[{key}]"):
                return known.id
        body = {
            "matchers": [
                {"name": name, "value": value, "isRegex": False, "isEqual": True} for name, value in labels.items()
            ],
            "startsAt": _time(starts_at),
            "endsAt": _time(ends_at),
            "createdBy": AUTHOR,
            "comment": f"{why[:MAX_COMMENT_CHARACTERS]} [{key}]",
        }
        return _read(_MADE, await self._answer("POST", "silences", body)).id

    async def expire(self, silence: str) -> None:
        """A silence that has ended or is unknown counts as expired."""
        found = [each for each in await self._silences() if each.id == silence]
        if found and found[0].status.state != "expired":
            await self._answer("DELETE", f"silence/{silence}")

    async def _silences(self) -> list[_Silence]:
        return _read(_SILENCES, await self._answer("GET", "silences"))

    async def _answer(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        try:
            response = await self._http.request(method, f"{self._url}/{path}", json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise SourceError(f"Alertmanager: {type(error).__name__}") from error
        except httpx.HTTPError as error:
            raise NoAnswerError(f"Alertmanager: {type(error).__name__}") from error
        if response.is_success:
            return response
        raise SourceError(f"Alertmanager: HTTP {response.status_code}: {response.text[:200]}")


def _read(form: TypeAdapter[_Form], response: httpx.Response) -> _Form:
    try:
        return form.validate_json(response.content)
    except ValidationError as error:
        # A proxy may answer in its place, also with 200.
        raise SourceError("Alertmanager: its answer is not in the form that Alertmanager gives") from error


async def reachable(http: httpx.AsyncClient, url: str) -> Finding:
    """Whether this is an Alertmanager that accepts requests for silences."""
    remedy = "Correct alertmanager.url; until then `/incident silence` fails. Alerts come in without it."
    try:
        answer = await http.get(f"{url.rstrip('/')}/api/v2/status")
        version = answer.json()["versionInfo"]["version"] if answer.is_success else ""
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, httpx.HTTPError) else "what answers is not Alertmanager"
        return broken("alertmanager", f"{url}: {reason or type(error).__name__}", remedy)
    if not answer.is_success:
        return broken("alertmanager", f"{url} answers /api/v2/status with HTTP {answer.status_code}", remedy)
    return fine("alertmanager", f"answers, version {version}")


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()
