"""Real `vllm serve` processes on this machine's CPU, in place of the simulated engines.

A container's own command runs unchanged; a `vllm` first on its PATH adds what a CPU needs. The process serves at the
pod's address, its output is the container's log, its exit code is the container's. Clients are real streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import structlog
from prometheus_client.parser import text_string_to_metric_families

from bot.sandbox.fleet.container_log import ContainerLog
from bot.sandbox.fleet.engine import SHARED_PREFIX_TOKENS, Sequence
from bot.sandbox.fleet.engines import START_AGAIN, Fault
from bot.sandbox.fleet.pod_spec import PodSpec
from bot.sandbox.fleet.serve_flags import parse_serve
from bot.sandbox.fleet.tiny_model import FIRST_LETTER, LETTERS, NAME, write_tiny_model
from bot.sandbox.leash import GROUP, leash

SERVE_DEFAULTS = ("--max-num-batched-tokens=8192",)
"""As on the H100 that the nodes have; a CPU's default is 2048. The container's own flags win."""
SERVE_ALWAYS = ("--load-format=dummy", "--enforce-eager", "--stream-interval=32")
"""Random weights, no compiler, and an event for 32 tokens: all that two cores have should go into the engines."""
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
COMMAND = """\
#!/bin/sh
# The model must be the first argument. Of two equal flags vLLM takes the last one.
words="$1"; shift
case "$1" in -*) ;; *) words="$words $1"; shift ;; esac
exec "{vllm}" $words $SERVE_DEFAULTS "$@" $SERVE_ALWAYS
"""
STARTING_NICE, SERVING_NICE = 2, 5
"""Engines that serve leave the cores to those that start, and both to the bot."""
PROBE_SECONDS = 1.0
"""As the readiness probe of the demo's Deployment."""
GONE_WITHIN_SECONDS = 5.0
MAX_LINE_BYTES = 1 << 20
KILLED = 128
"""A shell's and a kubelet's exit code of a process that a signal ended: this, plus the signal's number."""
BLOCK_SIZE = 16
"""Of vLLM, where no flag sets it."""
CORE, WORKER = "VLLM::EngineCor", "VLLM::Worker"
"""The names of the engine's process and of the process that computes for it, as far as the kernel keeps them."""
NOT_HERE = {
    "metrics_down": "a real engine always serves its metrics",
    "slow": "a real engine is as slow as this machine is",
    "stuck": "a real engine goes on",
    "cuda_oom": "an engine on the CPU has no GPU memory to run out of",
}
"""Faults that only a simulated engine can have."""

log = structlog.get_logger(__name__)


class VllmEngines:
    """Starts `vllm`, the command of an installation on this machine."""

    def __init__(self, vllm: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="incident-bot-vllm-")
        self.folder = Path(self._folder.name)
        write_tiny_model(self.folder)
        command = self.folder / "bin" / "vllm"
        command.parent.mkdir()
        command.write_text(COMMAND.format(vllm=vllm.absolute()))
        command.chmod(0o755)
        self._session: aiohttp.ClientSession | None = None

    async def start(self, spec: PodSpec, address: str, log: ContainerLog, fault: Fault) -> VllmProcess | int:
        if self._session is None:
            # One connection for each request: vLLM closes idle ones, and a client must not run into that.
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        process = await _launched(self.folder, spec, address, fault)
        engine = VllmProcess(spec, address, process, log, self._session, fault)
        try:
            exit_code = await engine.until_it_serves()
        except asyncio.CancelledError:
            engine.kill()
            await engine.close()
            raise
        if exit_code is not None:
            await engine.close()
            return exit_code
        return engine

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._folder.cleanup()


async def _launched(folder: Path, spec: PodSpec, address: str, fault: Fault) -> asyncio.subprocess.Process:
    small = _small_pool(spec, fault.blocks) if fault.kind == "small_pool" else ()
    always = (*SERVE_ALWAYS, f"--host={address}", f"--port={spec.port}", *small)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("INCIDENT_BOT_")},
        **ENVIRONMENT,
        **spec.env,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "SERVE_DEFAULTS": " ".join(SERVE_DEFAULTS),
        "SERVE_ALWAYS": " ".join(always),
    }
    command = ["/usr/bin/env", *spec.argv]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot.sandbox.leash", GROUP, *command),
        cwd=folder,
        stdin=leash(),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
        # A group of its own: the API server, the engine and its workers are ended together, as a container's are.
        start_new_session=True,
        limit=MAX_LINE_BYTES,
    )


def _small_pool(spec: PodSpec, blocks: int) -> tuple[str, ...]:
    """vLLM does not start with a pool that is smaller than its longest request, so that is limited too."""
    fits = (blocks - 1) * int(parse_serve(spec.argv).get("block_size", BLOCK_SIZE))
    return (f"--num-gpu-blocks-override={blocks}", f"--max-model-len={fits}")


class VllmProcess:
    """One API server with its engine."""

    def __init__(
        self,
        spec: PodSpec,
        address: str,
        process: asyncio.subprocess.Process,
        container_log: ContainerLog,
        session: aiohttp.ClientSession,
        fault: Fault,
    ) -> None:
        self.name = spec.name
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._url = f"http://{address}:{spec.port}"
        self._process = process
        self._log = container_log
        self._session = session
        self._fault = fault
        self._starts_again = False
        self._is_killed = False
        self._random = Random(spec.name)  # noqa: S311 - prompts of a test load, no secret
        self._open: dict[Sequence, asyncio.Task[None]] = {}
        self._ended: list[Sequence] = []
        self._life = asyncio.create_task(self._follow(), name=f"engine of {spec.name}")
        self._dies: asyncio.TimerHandle | None = None
        self._renice(STARTING_NICE)

    async def until_it_serves(self) -> int | None:
        """None as soon as /health answers; the exit code of a process that ended before."""
        while not self.exited.done():
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._session.get(f"{self._url}/health", timeout=_timeout()) as answer:
                    if answer.status == 200:
                        self._renice(SERVING_NICE)
                        self._apply()
                        return None
            await asyncio.wait([self.exited], timeout=PROBE_SECONDS)
        return self.exited.result()

    @property
    def pid(self) -> int:
        """Of its API server, which leads the session of its engine."""
        return self._process.pid

    # Clients

    @property
    def running(self) -> int:
        return len(self._open)

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        """Begin a stream; whether it is shed or cut is known when it ends."""
        if self._is_gone:
            return "down"
        sequence = Sequence(prompt_tokens, max_tokens, arrived_at=now)
        self._open[sequence] = asyncio.create_task(self._stream(sequence))
        return sequence

    def take_ended(self) -> list[Sequence]:
        if self._is_gone:
            self._cut_all()
        ended, self._ended = self._ended, []
        return ended

    @property
    def _is_gone(self) -> bool:
        """A killed process is reaped a moment later, and the gateway does not ask again by then."""
        return self._is_killed or self.exited.done()

    def _cut_all(self) -> None:
        """What its end has cut; the gateway asks once after an end, and must not miss one."""
        for sequence, stream in [*self._open.items()]:
            sequence.finished_reason = "cut"
            self._ended.append(sequence)
            stream.cancel()
        self._open.clear()

    def advance(self, until: float) -> None:
        """Its time passes by itself."""

    async def _stream(self, sequence: Sequence) -> None:
        body = {
            "model": NAME,
            "prompt": [*self._prompt(sequence.prompt_tokens)],
            "max_tokens": sequence.max_tokens,
            "stream": True,
            "ignore_eos": True,
        }
        sequence.finished_reason = "refused"
        try:
            async with self._session.post(f"{self._url}/v1/completions", json=body) as answer:
                sequence.finished_reason = "cut"
                sequence.finished_reason = await _end_of(answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("stream.cut", pod=self.name, error=repr(error))
        finally:
            if self._open.pop(sequence, None) is not None:
                self._ended.append(sequence)

    def _prompt(self, tokens: int) -> Iterator[int]:
        """All prompts begin alike, as in the captures, so that the prefix cache has something to share."""
        shared = min(tokens - 1, SHARED_PREFIX_TOKENS)
        yield from range(FIRST_LETTER, FIRST_LETTER + shared)
        for _ in range(tokens - shared):
            yield FIRST_LETTER + self._random.randrange(LETTERS)

    async def state(self) -> dict[str, Any]:
        found = await self._metrics()
        return {
            "running": int(found.get("vllm:num_requests_running", 0)),
            "waiting": int(found.get("vllm:num_requests_waiting", 0)),
            "kv_usage": round(found.get("vllm:kv_cache_usage_perc", 0.0), 4),
            "preemptions": int(found.get("vllm:num_preemptions_total", 0)),
            "finished": int(found.get("vllm:request_success_total", 0)),
            "open_streams": len(self._open),
        }

    async def _metrics(self) -> dict[str, float]:
        """Sums over labels; empty while it does not answer."""
        try:
            async with self._session.get(f"{self._url}/metrics", timeout=_timeout()) as answer:
                page = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            log.info("metrics.unread", pod=self.name, error=repr(error))
            return {}
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    # Faults and ends

    def refusal(self, fault: str) -> str:
        return NOT_HERE.get(fault, "")

    def suffer(self, fault: Fault) -> bool:
        """A pool cannot change while an engine runs: it starts again, and its replica is not ready for a while."""
        before, self._fault = self._fault, fault
        pools = [one.blocks if one.kind == "small_pool" else None for one in (before, fault)]
        if pools[0] != pools[1]:
            self._starts_again = True
            self.kill()
        elif before != fault:
            self._apply()
        return not self._starts_again

    def _apply(self) -> None:
        if self._dies is not None:
            self._dies.cancel()
            self._dies = None
        if self._fault.kind == "dies":
            loop = asyncio.get_running_loop()
            self._dies = loop.call_later(self._fault.after, lambda: self.die("engine_killed", time.time()))

    def die(self, cause: str, now: float) -> None:
        """A process of the engine gets SIGKILL; the API server notices, and ends by itself."""
        for pid in self._processes(WORKER if cause == "worker_killed" else CORE):
            log.info("engine.killed", pod=self.name, pid=pid, cause=cause)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes(self, wanted: str) -> Iterator[int]:
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                name, _, rest = status.read_text().partition("(")[2].rpartition(")")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if name == wanted and int(rest.split()[2]) == self._process.pid:
                yield int(status.parent.name)

    async def terminate(self, now: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        await asyncio.shield(self.exited)

    def kill(self) -> None:
        self._is_killed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self) -> None:
        if self._dies is not None:
            self._dies.cancel()
        self.kill()  # workers of an engine that died outlive their API server by seconds
        for task in [*self._open.values()]:
            task.cancel()
        await asyncio.gather(*self._open.values(), return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._life), GONE_WITHIN_SECONDS)

    async def _follow(self) -> None:
        """Its output until the end, then its exit code."""
        reader = asyncio.create_task(self._read())
        code = await self._process.wait()
        # A worker may hold the output open for a moment longer than the container lives.
        await asyncio.wait([reader], timeout=PROBE_SECONDS)
        reader.cancel()
        exit_code = KILLED - code if code < 0 else code
        if not self.exited.done():
            self.exited.set_result(START_AGAIN if self._starts_again else exit_code)

    async def _read(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        while line := await output.readline():
            self._log.raw(line.decode(errors="replace").rstrip("\n"), time.time())

    def _renice(self, nice: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PGRP, self._process.pid, nice)
        # Most Linux systems share the cores between sessions first, and compare niceness only inside of one.
        # Best effort: such a system may refuse a second change so soon.
        with contextlib.suppress(OSError):
            Path(f"/proc/{self._process.pid}/autogroup").write_text(str(nice))


async def _end_of(answer: aiohttp.ClientResponse) -> str:
    """How a stream ended: `length` if it is whole, else as the gateway counts it."""
    if answer.status == 503:
        return "shed"
    if answer.status != 200:
        return "refused"
    begun = False
    async for line in answer.content:
        if not line.startswith(b"data: {"):
            continue
        begun = True
        choices = json.loads(line.removeprefix(b"data: ")).get("choices") or [{}]
        if choices[0].get("finish_reason") == "length":
            return "length"
    return "cut" if begun else "empty"


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=10)
