"""`vllm bench serve` in a container of the fleet: real requests to the engine at `--base-url`, and what it prints.

Only its flags for random prompts are known; others are accepted and ignored. It needs no tokenizer: a prompt is a list
of ids.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from bot.sandbox.fleet.container_log import ContainerLog

COMMAND = ("vllm", "bench", "serve")
FIRST_ID, IDS = 10, 80
"""Ids that are in every vocabulary."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as its client saw it; `error` is empty if it was answered in full."""

    seconds: float
    first_token: float
    tokens: int
    error: str = ""


def runs_bench(argv: Sequence[str]) -> bool:
    return tuple(word.rsplit("/", 1)[-1] for word in argv[: len(COMMAND)]) == COMMAND


async def run_bench(argv: Sequence[str], log: ContainerLog) -> int:
    """Returns the exit code."""
    flags = _flags(argv[len(COMMAND) :])

    def say(line: str) -> None:
        log.raw(line, time.time())

    # As many connections as requests: a queue in the client would look like one in the engine.
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        say("Starting initial single prompt test run...")
        first = await _request(http, flags, 0)
        if first.error:
            text = "Initial test run failed - Please make sure benchmark arguments are correctly specified."
            for line in ("Traceback (most recent call last):", f"ValueError: {text} Error: {first.error}"):
                say(line)
            return 1
        say("Initial test run completed.")
        say("Starting main benchmark run...")
        say(f"Traffic request rate: {flags.request_rate}")
        began = time.perf_counter()
        answers = await _all(http, flags)
        for line in report(answers, time.perf_counter() - began, flags.random_input_len, flags.request_rate):
            say(line)
    return 0


def _flags(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--endpoint", default="/v1/completions")
    parser.add_argument("--model", default=None)
    for name, default in (("--num-prompts", 1000), ("--random-input-len", 1024), ("--random-output-len", 128)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--max-concurrency", type=int, default=None)
    parser.add_argument("--request-rate", type=float, default=math.inf)
    return parser.parse_known_args(list(words))[0]


async def _all(http: aiohttp.ClientSession, flags: argparse.Namespace) -> list[Answer]:
    """Sends them evenly; the real client draws the pauses from a Poisson process."""
    free = asyncio.Semaphore(flags.max_concurrency or flags.num_prompts)

    async def one(number: int) -> Answer:
        async with free:
            return await _request(http, flags, number)

    async with asyncio.TaskGroup() as group:
        tasks = []
        for number in range(flags.num_prompts):
            tasks.append(group.create_task(one(number)))
            await asyncio.sleep(1 / flags.request_rate)
    return [task.result() for task in tasks]


async def _request(http: aiohttp.ClientSession, flags: argparse.Namespace, number: int) -> Answer:
    body = {
        "prompt": [FIRST_ID + (number * 7 + place) % IDS for place in range(flags.random_input_len)],
        "max_tokens": flags.random_output_len,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }
    sent, first_token, tokens = time.perf_counter(), 0.0, 0
    try:
        model = {"model": flags.model} if flags.model else {}
        async with http.post(flags.base_url + flags.endpoint, json=body | model) as answer:
            if answer.status != 200:
                return Answer(time.perf_counter() - sent, 0.0, 0, f"{answer.status} {answer.reason}")
            async for line in answer.content:
                word, _, data = line.decode().strip().partition(": ")
                if word != "data" or data == "[DONE]":
                    continue
                chunk = json.loads(data)
                if error := chunk.get("error"):
                    return Answer(time.perf_counter() - sent, first_token, tokens, str(error["message"]))
                text = "".join(choice["text"] for choice in chunk["choices"])
                if text and not first_token:
                    first_token = time.perf_counter() - sent
                # The simulated engine gives no usage, and a token of it is a character.
                tokens = (chunk.get("usage") or {}).get("completion_tokens") or tokens + len(text)
    except aiohttp.ClientError as error:
        return Answer(time.perf_counter() - sent, first_token, tokens, str(error) or repr(error))
    return Answer(time.perf_counter() - sent, first_token, tokens, "" if tokens else "no token was generated")


def report(answers: Sequence[Answer], seconds: float, input_tokens: int, rate: float = math.inf) -> list[str]:
    """What vLLM 0.32 prints about them; of no successful request zeros, as there."""
    good = [answer for answer in answers if not answer.error]
    generated, read = sum(answer.tokens for answer in good), input_tokens * len(good)
    times = {
        ("Time to First Token", "TTFT"): [answer.first_token for answer in good],
        ("Time per Output Token (excl. 1st token)", "TPOT"): [
            (answer.seconds - answer.first_token) / (answer.tokens - 1) for answer in good if answer.tokens > 1
        ],
        ("End-to-end Latency", "E2EL"): [answer.seconds for answer in good],
    }
    lines = [
        " Serving Benchmark Result ".center(50, "="),
        _line("Successful requests:", len(good)),
        _line("Failed requests:", len(answers) - len(good)),
        *([_line("Request rate configured (RPS):", rate)] if math.isfinite(rate) else []),
        _line("Benchmark duration (s):", seconds),
        _line("Total input tokens:", read),
        _line("Total generated tokens:", generated),
        _line("Request throughput (req/s):", len(good) / seconds),
        _line("Output token throughput (tok/s):", generated / seconds),
        _line("Total token throughput (tok/s):", (read + generated) / seconds),
    ]
    for (title, name), values in times.items():
        known = sorted(values) or [0.0]
        lines += [
            title.center(50, "-"),
            _line(f"Mean {name} (ms):", 1000 * statistics.fmean(known)),
            _line(f"Median {name} (ms):", 1000 * statistics.median(known)),
            _line(f"P99 {name} (ms):", 1000 * _p99(known)),
        ]
    return [*lines, "=" * 50]


def _line(label: str, value: float) -> str:
    return f"{label:<40} {value:<10}" if isinstance(value, int) else f"{label:<40} {value:<10.2f}"


def _p99(ordered: Sequence[float]) -> float:
    """As numpy computes it: between two values in proportion."""
    place = 0.99 * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
