"""One vLLM server process inside a container: an engine with its HTTP endpoints, its log and its failures.

It behaves as vLLM 0.32, even if that is surprising: /health stays 200 under any load and while draining, and a new
request during the drain gets 200 with an empty answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Literal
from uuid import uuid4

from aiohttp import web
from pydantic import BaseModel, Field, ValidationError

from bot.sandbox.fleet import last_lines
from bot.sandbox.fleet.compaction import Pass
from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import Engine, Pace, Sequence
from bot.sandbox.fleet.engines import Fault
from bot.sandbox.fleet.exposition import HttpCounts, Server, metrics_text
from bot.sandbox.fleet.startup import LogLine, Started, api, core

METRICS_CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"
STATS_SECONDS = 10.0
DEAD_SERVER_LINGERS_SECONDS = 1.0


class Completion(BaseModel):
    """The parts of a completion request that the simulation reads; a token is a character, or one id of a list."""

    model: str | None = None
    prompt: str | list[int]
    max_tokens: int = Field(default=16, ge=1)
    stream: bool = False


class VllmServer:
    """`send` is the gateway's in-process entry; everything else reaches it over HTTP."""

    def __init__(
        self,
        name: str,
        started: Started,
        log: ContainerLog,
        *,
        process_started_at: float,
        now: float,
        pace: Pace | None = None,
    ) -> None:
        self.name = name
        self.started = started
        self.log = log
        self.engine = Engine(started.limits, pace, now=now)
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._facts = Server(started.served_name, process_started_at, now, started.cache_config)
        self._http = HttpCounts()
        self._mode: Literal["serving", "draining", "dead"] = "serving"
        self._metrics_down = False
        self._stuck = False
        """It takes requests and works on none."""
        self._dies_at = math.inf
        self._ended: list[Sequence] = []
        self._ticked = asyncio.Event()
        self._stats_at = now + STATS_SECONDS
        self._stats_from = (0, 0)
        self._runner: web.AppRunner | None = None
        self.before_a_scrape: Callable[[], object] = lambda: None

    # The gateway's side

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        if self._mode == "dead":
            return "down"
        if self._mode == "draining":
            return "empty"
        sequence = self.engine.submit(prompt_tokens, max_tokens, now)
        self._note_request(200 if sequence else 503, now)
        return sequence or "shed"

    def take_ended(self) -> list[Sequence]:
        """Sequences that ended since the last call, complete or cut."""
        ended, self._ended = self._ended, []
        return ended

    # What people and tests see

    @property
    def running(self) -> int:
        return len(self.engine.running)

    async def state(self) -> dict[str, Any]:
        engine = self.engine
        return {
            "running": len(engine.running),
            "waiting": len(engine.waiting),
            "kv_usage": round(engine.usage, 4),
            "preemptions": engine.measured.preemptions,
            "finished": engine.measured.finished_requests,
            "max_num_seqs": engine.limits.max_num_seqs,
            "num_gpu_blocks": engine.limits.blocks,
        }

    # Time

    def advance(self, until: float) -> None:
        if self._mode == "dead":
            return
        if until >= self._dies_at:
            self.die("engine_killed", until)  # as a real one, which gets SIGKILL
            return
        finished = [] if self._stuck else self.engine.advance(until)
        for sequence in finished:
            if sequence.finished_reason == "length":
                seconds = max(0.0, sequence.last_token_at - sequence.arrived_at)
                self._http.note(200, 566, seconds, until, self.engine.measured)
        self._ended.extend(finished)
        for one in self.engine.take_passes():
            self._write(until, *_pass_lines(one))
        self._pulse()
        if until >= self._stats_at:
            self._log_stats(until)

    def _log_stats(self, now: float) -> None:
        """vLLM's line every ten seconds, silent when idle."""
        engine = self.engine
        prompt, generated = engine.measured.prompt_tokens, engine.measured.generation_tokens
        before_prompt, before_generated = self._stats_from
        self._stats_at, self._stats_from = now + STATS_SECONDS, (prompt, generated)
        if generated == before_generated and not engine.in_flight:
            return
        hit_rate = 100 * engine.measured.cached_prompt_tokens / max(1, prompt)
        self._write(
            now,
            api(
                "loggers.py:335",
                f"Engine 000: Avg prompt throughput: {(prompt - before_prompt) / STATS_SECONDS:.1f} tokens/s, "
                f"Avg generation throughput: {(generated - before_generated) / STATS_SECONDS:.1f} tokens/s, "
                f"Running: {len(engine.running)} reqs, Waiting: {len(engine.waiting)} reqs, "
                f"GPU KV cache usage: {100 * engine.usage:.1f}%, Prefix cache hit rate: {hit_rate:.1f}%",
            ),
        )

    # Faults and ends

    def refusal(self, fault: str) -> str:
        """A simulated engine can have every fault."""
        return ""

    def suffer(self, fault: Fault) -> bool:
        small = fault.kind == "small_pool"
        blocks = fault.blocks if small else self.started.limits.blocks
        if blocks != self.engine.limits.blocks:
            self.engine.resize(blocks)
            labels = {
                "num_gpu_blocks": str(blocks),
                "kv_cache_size_tokens": str(blocks * self.engine.limits.block_size),
            }
            self._facts = replace(self._facts, cache_config={**self.started.cache_config, **labels})
        self.engine.pace = replace(self.engine.pace, slowdown=fault.factor if fault.kind == "slow" else 1.0)
        self._metrics_down = fault.kind == "metrics_down"
        self._stuck = fault.kind == "stuck"
        self._dies_at = self._facts.engine_created_at + fault.after if fault.kind == "dies" else math.inf
        return True

    def die(self, cause: str, now: float) -> None:
        """The engine dies; the API server logs it, answers 503 for a moment and exits cleanly: exit code 0."""
        if self._mode == "dead":
            return
        streams = self.engine.in_flight
        self._cut_all()
        self._write(now, *last_lines.of_a_death(cause, streams))
        asyncio.get_running_loop().call_later(DEAD_SERVER_LINGERS_SECONDS, self._end_by_itself, cause)

    def _end_by_itself(self, cause: str) -> None:
        self._write_farewell(last_lines.FINISHED)
        self._write(time.time(), *last_lines.after_a_death(cause, self.started.shutdown_timeout))
        self._exit(0)

    def _write_farewell(self, *last: str) -> None:
        for line in (*last_lines.FAREWELL, *last):
            self.log.raw(line, time.time())

    async def terminate(self, now: float) -> None:
        """SIGTERM: finishes what is in flight for at most `--shutdown-timeout`, then exits with 0."""
        if self._mode == "dead":
            return
        timeout_seconds = self.started.shutdown_timeout
        self._write(now, *last_lines.of_sigterm(timeout_seconds, self.engine.in_flight))
        if timeout_seconds > 0 and self.engine.in_flight:
            self._mode = "draining"
            await self._drained(timeout_seconds)
        if not self._is_dead():  # it may have died meanwhile, and then it ends by itself
            self._cut_all()
            self._write(time.time(), *last_lines.after_the_requests())
            self._write_farewell()
            self._exit(0)

    async def _drained(self, timeout_seconds: float) -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.engine.in_flight:
                    await self._tick()
        except TimeoutError:
            return  # what is left is cut by the exit, as in vLLM

    def kill(self) -> None:
        if self._mode != "dead":
            self._cut_all()
        self._exit(137)

    def _is_dead(self) -> bool:
        return self._mode == "dead"

    def _cut_all(self) -> None:
        self._mode = "dead"
        for sequence in (*self.engine.running, *self.engine.waiting):
            sequence.finished_reason = "cut"
            self._ended.append(sequence)
        self._pulse()

    def _exit(self, code: int) -> None:
        if not self.exited.done():
            self.exited.set_result(code)

    # HTTP

    async def listen(self, address: str, port: int) -> None:
        application = web.Application()
        application.add_routes(
            [
                web.get("/health", self._get_health),
                web.get("/metrics", self._get_metrics),
                web.get("/version", self._get_version),
                web.get("/load", self._get_load),
                web.get("/v1/models", self._get_models),
                web.post("/v1/completions", self._post_completion),
            ]
        )
        # A client that goes away ends its handler, and with it the sequence, as vLLM aborts it.
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, reuse_address=True).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _get_health(self, request: web.Request) -> web.Response:
        return self._answer(request, web.Response(status=503 if self._mode == "dead" else 200))

    async def _get_metrics(self, request: web.Request) -> web.Response:
        if self._metrics_down:
            return self._answer(request, web.Response(status=500, text="Internal Server Error"))
        self.before_a_scrape()
        text = metrics_text(self.engine, self._facts, self._http, time.time())
        body = web.Response(body=text.encode(), headers={"Content-Type": METRICS_CONTENT_TYPE})
        return self._answer(request, body)

    async def _get_version(self, request: web.Request) -> web.Response:
        return self._answer(request, web.json_response({"version": self.started.version}))

    async def _get_load(self, request: web.Request) -> web.Response:
        return self._answer(request, web.json_response({"server_load": 0}))

    async def _get_models(self, request: web.Request) -> web.Response:
        model = {
            "id": self.started.served_name,
            "object": "model",
            "created": int(self._facts.engine_created_at),
            "owned_by": "vllm",
            "root": self.started.model,
            "parent": None,
            "max_model_len": self.engine.limits.max_model_len,
        }
        return self._answer(request, web.json_response({"object": "list", "data": [model]}))

    async def _post_completion(self, request: web.Request) -> web.StreamResponse:
        try:
            asked = Completion.model_validate_json(await request.read())
        except ValidationError as error:
            return self._answer(request, _error(400, str(error), "BadRequestError"))
        if asked.model not in (None, self.started.served_name):
            missing = f"The model `{asked.model}` does not exist."
            return self._answer(request, _error(404, missing, "NotFoundError"))
        prompt_tokens = len(asked.prompt)
        limit = self.engine.limits.max_model_len
        if prompt_tokens >= limit:
            return self._answer(request, _too_long(limit, prompt_tokens))
        answer = self.send(prompt_tokens, asked.max_tokens, time.time())
        if answer == "shed":
            return _error(503, "The server is overloaded: the request queue is full.", "ServiceUnavailableError")
        if answer == "down":
            return _error(500, last_lines.ENGINE_DEAD, "InternalServerError")
        if isinstance(answer, Sequence) and not asked.stream:
            return await self._whole(answer)
        return await self._stream(request, answer if isinstance(answer, Sequence) else None)

    async def _whole(self, sequence: Sequence) -> web.Response:
        try:
            while sequence.finished_reason is None:
                await self._tick()
        except asyncio.CancelledError:
            self.engine.abort(sequence)
            raise
        if sequence.finished_reason == "cut":
            return _error(500, last_lines.ENGINE_DEAD, "InternalServerError")
        usage = {
            "prompt_tokens": sequence.prompt_tokens,
            "completion_tokens": sequence.generated,
            "total_tokens": sequence.tokens,
        }
        return web.json_response({**self._chunk("a" * sequence.generated, sequence), "usage": usage})

    async def _stream(self, request: web.Request, sequence: Sequence | None) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await stream.prepare(request)
        try:
            sent = 0
            while sequence is not None:
                if sequence.generated > sent:
                    chunk = self._chunk("a" * (sequence.generated - sent), sequence)
                    sent = sequence.generated
                    await stream.write(f"data: {json.dumps(chunk)}\n\n".encode())
                if sequence.finished_reason is not None:
                    break
                await self._tick()
            if sequence is not None and sequence.finished_reason == "cut":
                error = {"error": {"message": last_lines.ENGINE_DEAD, "type": "InternalServerError", "code": 500}}
                await stream.write(f"data: {json.dumps(error)}\n\n".encode())
            await stream.write(b"data: [DONE]\n\n")
        except (asyncio.CancelledError, ConnectionError):
            if sequence is not None:
                self.engine.abort(sequence)
            raise
        return stream

    def _chunk(self, text: str, sequence: Sequence) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": sequence.finished_reason}
        return {
            "id": f"cmpl-{uuid4().hex[:16]}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.started.served_name,
            "choices": [choice],
        }

    # Small things

    def _answer(self, request: web.Request, response: web.Response) -> web.Response:
        self._log_request(request.method, request.path, response.status, time.time())
        return response

    def _note_request(self, status: int, now: float) -> None:
        if status != 200:
            self._http.note(status, 566, 0.004, now, self.engine.measured)
        self._log_request("POST", "/v1/completions", status, now)

    def _log_request(self, method: str, path: str, status: int, now: float) -> None:
        answered = f"{status} {HTTPStatus(status).phrase}"
        self.log.raw(f'INFO:     10.0.0.9:41200 - "{method} {path} HTTP/1.1" {answered}', now)

    def _write(self, now: float, *lines: LogLine) -> None:
        self.log.write(lines, now)

    def _pulse(self) -> None:
        ticked, self._ticked = self._ticked, asyncio.Event()
        ticked.set()

    async def _tick(self) -> None:
        await self._ticked.wait()


def _pass_lines(one: Pass) -> tuple[LogLine, ...]:
    request = f"cmpl-{uuid4().hex[:16]}"
    applied = (
        f"TriAttention compression applied req={request} before={one.tokens_before} after={one.tokens_after} "
        f"reclaimed_blocks={one.blocks_freed}"
    )
    freed = f"TriAttention scheduler FREE_BLOCKS: req={request} freed={one.blocks_freed} kept={one.blocks_kept}"
    return core("runner.py:412", applied), core("scheduler.py:288", freed)


def _error(status: int, message: str, kind: str) -> web.Response:
    return web.json_response(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, status=status
    )


def _too_long(limit: int, tokens: int) -> web.Response:
    message = (
        f"This model's maximum context length is {limit} tokens. However, your prompt contains at least {tokens} "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the "
        f"input prompt. (parameter=input_tokens, value={tokens})"
    )
    body = {"message": message, "type": "BadRequestError", "param": "input_tokens", "code": 400}
    return web.json_response({"error": body}, status=400)
