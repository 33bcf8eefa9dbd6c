"""The floor: the minimum that still keeps the promise. Stored before the 200, posted after it, nothing lost by a crash.

No playbook, no run, no timeline; a crash may post a message twice. What the bot costs is a multiple of this.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import redis.asyncio as aioredis
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

INTAKE, SEEN, SHOWN, PRESSES = "floor:intake", "floor:seen", "floor:shown", "floor:presses"
AT_ONCE = 8
RETRY_SECONDS = 0.5
CANCEL_AGAIN_SECONDS = 0.1


def checked(body: bytes) -> tuple[str, dict[str, str]]:
    """The entry to store, and the dedupe keys of its alerts. Raise ValueError, KeyError or TypeError."""
    webhook = json.loads(body)
    if webhook["version"] != "4":
        raise ValueError("another version")
    keys = {f"{alert['fingerprint']}/{alert['startsAt']}/{alert['status']}": "1" for alert in webhook["alerts"]}
    first = webhook["alerts"][0]
    target = f"{first['labels']['namespace']}/{first['labels']['deployment']}"
    return json.dumps({"target": target, "text": f"{first['annotations']['summary']}: {target}"}), keys


class Floor:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._token, self._secret = options.token, options.signing_secret.encode()
        self._wanted = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self._redis: Any = aioredis.from_url(self._options.redis_url, decode_responses=True)
        headers = {"Authorization": f"Bearer {self._options.slack_token}"}
        async with aiohttp.ClientSession(headers=headers) as self._slack:
            self._wanted.set()
            posting = asyncio.create_task(self._post_what_is_stored())
            yield
            while not posting.done():
                # The Redis library may lose a cancellation.
                posting.cancel()
                await asyncio.wait({posting}, timeout=CANCEL_AGAIN_SECONDS)
        await self._redis.aclose()

    async def alertmanager(self, request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {self._token}"):
            return Response(status_code=401)
        try:
            entry, keys = checked(await request.body())
        except (ValueError, KeyError, TypeError, IndexError):
            return Response(status_code=400)
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(SEEN, mapping=keys)
            pipeline.rpush(INTAKE, entry)
            await pipeline.execute()
        self._wanted.set()
        return Response()

    async def press(self, request: Request) -> Response:
        body, stamp = await request.body(), request.headers.get("x-slack-request-timestamp", "0")
        digest = hmac.new(self._secret, b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
        is_signed = hmac.compare_digest(request.headers.get("x-slack-signature", ""), f"v0={digest}")
        if not is_signed or abs(time.time() - int(stamp)) > 300:
            return Response(status_code=401)
        form = parse_qs(body.decode())
        if "command" in form:
            await self._redis.xadd(PRESSES, {"user": form["user_id"][0], "value": form["text"][0]})
            return JSONResponse({"response_type": "ephemeral", "text": "Noted."})
        payload = json.loads(form["payload"][0])
        action = payload["actions"][0]
        await self._redis.xadd(PRESSES, {"user": payload["user"]["id"], "value": action["value"]})
        return Response()

    async def _post_what_is_stored(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while entries := await self._redis.lrange(INTAKE, 0, AT_ONCE - 1):
                await self._post_each(entries)

    async def _post_each(self, entries: list[str]) -> None:
        """One message a target; an entry leaves the intake only after Slack has taken its message."""
        texts = {parsed["target"]: parsed["text"] for parsed in map(json.loads, entries)}
        shown = await self._redis.smismember(SHOWN, list(texts))
        new = [text for text, is_shown in zip(texts.values(), shown, strict=True) if not is_shown]
        await asyncio.gather(*map(self._post, new))
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.sadd(SHOWN, *texts)
            pipeline.ltrim(INTAKE, len(entries), -1)
            await pipeline.execute()

    async def _post(self, text: str) -> None:
        message = {"channel": self._options.channel, "text": text}
        while True:
            async with self._slack.post(f"{self._options.slack_url}chat.postMessage", json=message) as answer:
                if (await answer.json())["ok"]:
                    return
            await asyncio.sleep(RETRY_SECONDS)


class Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print("ready", json.dumps({"url": f"http://{host}:{port}"}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    for name in ("--redis-url", "--slack-url", "--slack-token", "--signing-secret", "--channel", "--token"):
        parser.add_argument(name, required=True)
    floor = Floor(parser.parse_args())
    routes = [
        Route("/alertmanager", floor.alertmanager, methods=["POST"]),
        Route("/slack/events", floor.press, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=floor.lifespan)
    Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False)).run()


if __name__ == "__main__":
    main()
