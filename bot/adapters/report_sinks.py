"""Where reports of closed incidents are kept, behind `flow.ports.ReportSink`: a directory, a bucket, a signed webhook.

Both overwrite or deduplicate, so a report whose answer was lost is sent again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import httpx

from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.redaction import place_of
from bot.domain.kernel.signature import SIGNATURE, TIMESTAMP, signature

TIMEOUT_SECONDS = 30.0
CHECK = "incident-bot-check.txt"


class Files:
    """A directory (`file:///…`) or a bucket (`s3://…`, `gs://…`, `az://…`), with the cloud's usual credentials."""

    def __init__(self, url: str) -> None:
        self.name = url

    async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
        """Write each file as `INC-7/NAME`. Raises `SourceError`."""
        await self._each({f"{incident_id}/{name}": content for name, content in files.items()})

    async def check(self) -> None:
        """Write a small file; it stays, as a bot that may only write needs no right to delete. Raises `SourceError`."""
        await self._each({CHECK: b"Written by incident-bot doctor, to see that reports can be kept here.\n"})

    async def _each(self, files: Mapping[str, bytes]) -> None:
        import obstore

        try:
            for path, content in files.items():
                await obstore.put_async(self._opened, path, content, use_multipart=False)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise SourceError(_reason(error)) from error

    @cached_property
    def _opened(self) -> Any:
        # Imported when it is first used: most bots keep no files.
        from obstore.store import LocalStore, from_url

        address = urlsplit(self.name)
        if address.scheme == "file":
            return LocalStore(address.path, mkdir=True)
        return from_url(self.name, client_options={"timeout": f"{TIMEOUT_SECONDS:.0f}s", "allow_http": True})


class ReportWebhook:
    """A POST of the report as JSON, signed like a page's."""

    def __init__(self, http: httpx.AsyncClient, url: str, secret: str) -> None:
        self._http, self._url, self._secret = http, url, secret
        self.name = place_of(url)

    async def put(self, incident_id: str, files: Mapping[str, bytes], *, at: float) -> None:
        body = {"incident": incident_id, "files": {name: content.decode() for name, content in files.items()}}
        content, timestamp = json.dumps(body).encode(), str(int(at))
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{incident_id}:{timestamp}",
            TIMESTAMP: timestamp,
            SIGNATURE: signature(self._secret, timestamp, content),
        }
        try:
            answer = await self._http.post(self._url, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise SourceError(f"the webhook for reports does not answer: {type(error).__name__}") from error
        if not answer.is_success:
            raise SourceError(f"the webhook for reports answers HTTP {answer.status_code}: {answer.text[:200]}")

    async def check(self) -> None:
        """See whether anything answers; a report is not sent for that. Raises `SourceError`."""
        try:
            await self._http.get(self._url)
        except httpx.HTTPError as error:
            raise SourceError(f"the webhook for reports does not answer: {type(error).__name__}") from error


def _reason(error: Exception) -> str:
    """The first line: the store's errors carry whole answers and their own debugging output."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
