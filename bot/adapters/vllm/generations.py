"""The only code that gives an engine work: one long completion of an approved plan, straight to its pod, sent once.

A request that certainly did not begin is refused; a connection that breaks after the request was sent is broken. The
caller sets the deadline: closing the connection makes vLLM drop the request.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from bot.domain.approvals.grant import Approved
from bot.domain.changes.plan import Call
from bot.domain.kernel.errors import ApprovalError
from bot.flow.bounded import at_most
from bot.flow.ports.cluster import Generated, Replica

PROMPT = "Count upwards from one, every number in words, separated by commas: one, two, three,"
CONNECT_SECONDS = 5.0
MODELS_SECONDS = 10.0
MAX_ERROR_LETTERS = 300
MAX_ANSWER_BYTES = 8 * 1024 * 1024


class VllmGenerations:
    """The `Generations` port. Use as `async with`, or call `close`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> VllmGenerations:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        if call not in approved.plan.calls or call.method != "generate":
            raise ApprovalError(f"not a generation of the approved plan: {call.title}")
        if replica.uid != call.target.uid:
            raise ApprovalError(f"{call.title} is not about {replica.name}")
        host = f"[{replica.address}]" if ":" in replica.address else replica.address
        base = f"http://{host}:{replica.port}/v1"
        try:
            model = await self._model(base)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            return Generated("refused", detail=f"{base}/models: {error or type(error).__name__}")
        return await self._complete(f"{base}/completions", model, int(call.body["max_tokens"]))

    async def _model(self, base: str) -> str:
        timeout = aiohttp.ClientTimeout(total=MODELS_SECONDS)
        async with self._opened().get(f"{base}/models", timeout=timeout, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError(f"HTTP {answer.status}")
            served = json.loads(await at_most(answer.content.iter_any(), MAX_ANSWER_BYTES))
        try:
            return str(served["data"][0]["id"])
        except (TypeError, LookupError):
            raise ValueError("it names no model") from None

    async def _complete(self, url: str, model: str, max_tokens: int) -> Generated:
        asked = {"model": model, "prompt": PROMPT, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}
        try:
            async with self._opened().post(url, json=asked, allow_redirects=False) as answer:
                body = await at_most(answer.content.iter_any(), MAX_ANSWER_BYTES)
                if answer.status != 200:
                    text = body.decode("utf-8", errors="replace")[:MAX_ERROR_LETTERS]
                    # A full queue (503) and a malformed request were rejected before anything began.
                    is_turned_away = answer.status < 500 or answer.status == 503
                    return Generated("refused" if is_turned_away else "broken", detail=f"HTTP {answer.status}: {text}")
                return _ended(json.loads(body), max_tokens)
        except aiohttp.ClientConnectorError as error:
            return Generated("refused", detail=f"{url}: {error}")
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            return Generated("broken", detail=f"{url}: {error or type(error).__name__}")

    def _opened(self) -> aiohttp.ClientSession:
        """Opened on the loop that sends. The environment's proxy must not be used for pods."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        return self._session


def _ended(answer: Any, max_tokens: int) -> Generated:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    if not isinstance(usage, dict) or not isinstance(usage.get("total_tokens"), int):
        return Generated("broken", detail="the answer does not say how many tokens it has")
    total, made = usage["total_tokens"], usage.get("completion_tokens")
    if made != max_tokens:
        return Generated("broken", tokens=total, detail=f"it ended after {made} of {max_tokens} tokens")
    return Generated("ended", tokens=total)
