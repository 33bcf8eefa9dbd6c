"""One query to Prometheus: limited in time and size, and naming nothing but Kubernetes objects."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import httpx

from bot.domain.kernel.errors import SourceError
from bot.flow.bounded import TooLargeError, at_most

DEADLINE_SECONDS = 4.0
MAX_BYTES = 64 * 1024 * 1024
NOTES = ("PromQL info", "PromQL warning")
"""How a note begins that is about the query, not about absent samples."""
NO_LABELS: Mapping[str, str] = MappingProxyType({})
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""What Kubernetes allows as the name of a pod or namespace; nothing else goes into a query."""


class PrometheusQueries:
    def __init__(self, client: httpx.AsyncClient, url: str, *, about: str = "") -> None:
        """`about`: begins the text of each error."""
        self._client, self._url, self._about = client, url.rstrip("/"), about

    async def ask(self, query: str, *, at: float | None = None) -> bytes:
        """The body of the answer, for `data_of` or `series_of`. Raises `SourceError` if there is none.

        `at`: in epoch seconds; None: now.
        """
        form = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
        return await self._asked("query", form)

    async def ask_each(self, query: str, *, start: float, end: float, step: float) -> bytes:
        """As `ask`, at each step of a time in the past."""
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return await self._asked("query_range", form)

    async def _asked(self, what: str, form: Mapping[str, str]) -> bytes:
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await self._post(what, form)
        except TimeoutError as error:
            raise SourceError(f"{self._about}did not answer within {DEADLINE_SECONDS:g} s") from error
        except httpx.HTTPError as error:
            raise SourceError(f"{self._about}{error or type(error).__name__}") from error

    async def _post(self, what: str, form: Mapping[str, str]) -> bytes:
        async with self._client.stream("POST", f"{self._url}/api/v1/{what}", data=dict(form)) as response:
            try:
                body = await at_most(response.aiter_bytes(), MAX_BYTES)
            except TooLargeError as error:
                raise SourceError(f"{self._about}answered more than {MAX_BYTES >> 20} MiB") from error
        # A refused query is a 4xx with its reason in JSON; any other status outside 2xx has none.
        if response.status_code >= 300 and not body.startswith(b"{"):
            raise SourceError(f"{self._about}answered HTTP {response.status_code}")
        return body

    def data_of(self, body: bytes) -> dict[str, Any]:
        """The `data` of a whole answer; raises `SourceError` if there is none."""
        try:
            answer = json.loads(body)
            if answer["status"] != "success":
                raise SourceError(f"{self._about}refused the query: {str(answer.get('error', ''))[:300]}")
            # Where a store is away, Thanos answers with what the others have, and warns.
            warnings = [str(warning) for warning in answer.get("warnings") or ()]
            if absent := [warning for warning in warnings if not warning.startswith(NOTES)]:
                raise SourceError(f"{self._about}answered only in part: {absent[0][:300]}")
            if answer.get("isPartial"):
                raise SourceError(f"{self._about}answered only in part: a storage node of VictoriaMetrics is away")
            return dict(answer["data"])
        except json.JSONDecodeError as error:
            raise SourceError(f"{self._about}answered no JSON") from error
        except (KeyError, TypeError, ValueError) as error:
            raise self.strange() from error

    def series_of(self, body: bytes) -> list[dict[str, Any]]:
        """The series of an answer; raises `SourceError` if it has none."""
        found = self.data_of(body).get("result")
        if not isinstance(found, list):
            raise self.strange()
        if not all(isinstance(one, dict) and isinstance(one.get("metric"), dict) for one in found):
            raise self.strange()
        return found

    def strange(self) -> SourceError:
        return SourceError(f"{self._about}its answer is not in the form that Prometheus gives")


def refuse_strange(names: Iterable[str]) -> None:
    """Raises `SourceError` for a name that is invalid in Kubernetes."""
    if strange := [name for name in names if not _NAME.fullmatch(name)]:
        raise SourceError(f"{strange[0][:60]!r} is not the name of a Kubernetes object, so it is not asked for")


def also(labels: Mapping[str, str]) -> str:
    """Returns these labels as further matchers of a selector."""
    return "".join(f",{name}={quoted(value)}" for name, value in labels.items())


def quoted(text: str) -> str:
    """Returns a string of PromQL with this text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
