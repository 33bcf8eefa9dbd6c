"""The part of the Kubernetes API that kubelets and the gateway need, as plain JSON over aiohttp.

A watch never ends for its reader: it lists, follows, and lists again if the server closes it or has dropped the
version.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
import structlog

USER_AGENT = "sandbox-kubelet"
RETRY_SECONDS = 0.25

log = structlog.get_logger(__name__)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One object in its present state; `gone` objects have their last known state."""

    kind: Literal["present", "gone"]
    object: Object


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:300]}")
        self.status = status


class KubernetesApi:
    """GET, POST, merge-PATCH, DELETE and watch against one API server."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"User-Agent": USER_AGENT}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._url = url.rstrip("/")
        self._session = aiohttp.ClientSession(headers=headers)

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        return await self._call("GET", path, query=query)

    async def create(self, path: str, body: Object) -> Object:
        return await self._call("POST", path, body=body)

    async def merge(self, path: str, body: Object) -> Object:
        return await self._call("PATCH", path, body=body, content_type="application/merge-patch+json")

    async def delete(self, path: str, body: Object) -> Object:
        return await self._call("DELETE", path, body=body)

    async def watch(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[Change]:
        known: dict[str, Object] = {}
        while True:
            try:
                async for change in self._list_and_follow(path, dict(query or {}), known):
                    yield change
            except (aiohttp.ClientError, ApiError, TimeoutError) as error:
                log.warning("watch.interrupted", path=path, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _list_and_follow(
        self, path: str, query: dict[str, str], known: dict[str, Object]
    ) -> AsyncIterator[Change]:
        listed = await self.get(path, query)
        items = {_uid(item): item for item in listed["items"]}
        for uid in [uid for uid in known if uid not in items]:
            yield Change("gone", known.pop(uid))
        for uid, item in items.items():
            known[uid] = item
            yield Change("present", item)
        version = listed["metadata"]["resourceVersion"]
        async for event in self._events(path, {**query, "watch": "true", "resourceVersion": version}):
            if event["type"] == "ERROR":
                return  # usually too old a version: list again
            if event["type"] == "BOOKMARK":
                continue
            item = event["object"]
            if event["type"] == "DELETED":
                known.pop(_uid(item), None)
                yield Change("gone", item)
            else:
                known[_uid(item)] = item
                yield Change("present", item)

    async def _events(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Object]:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._session.get(self._url + path, params=query, timeout=timeout) as answer:
            if answer.status != 200:
                raise ApiError(answer.status, await answer.text())
            buffer = b""
            async for chunk in answer.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        timeout = aiohttp.ClientTimeout(total=10)
        headers = {"Content-Type": content_type} if body is not None else None
        data = json.dumps(body) if body is not None else None
        async with self._session.request(
            method, self._url + path, params=query, data=data, headers=headers, timeout=timeout
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise ApiError(answer.status, text)
            parsed: Object = json.loads(text)
            return parsed


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])
