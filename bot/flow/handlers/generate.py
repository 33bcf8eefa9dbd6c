"""Sends one long generation to a replica that serves no traffic, and watches its blocks until it ends.

Nothing outside shows that it was sent, so it is started only once. It ends early if the lease is lost or a person
halts: then the connection closes, and the engine drops the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from bot.domain.approvals.grant import Approved
from bot.domain.changes.generation import Blocks, Generation, blocks_in, generation_reading
from bot.domain.changes.plan import Call
from bot.domain.kernel.errors import ClusterError
from bot.domain.signals.signal import Reading
from bot.flow.perform_effect import EffectContext
from bot.flow.ports.cluster import Generated, Generations, Replica
from bot.flow.ports.readings import Replicas, Scraper
from bot.flow.ports.storage import CallClaims, RunStore

log = structlog.get_logger()
LOOK_EVERY_SECONDS = 0.5
"""The pool is full for only a moment at the end: a longer interval would miss the last blocks."""
REPORT_EVERY_SECONDS = 15.0
BESIDE_SECONDS = 120.0
"""For what is read before and after the generation."""


@dataclass(frozen=True)
class Made:
    """How the call ended, and what was observed; no reading if nothing ran."""

    result: Literal["done", "failed", "unclear"]
    detail: str
    reading: Reading | None = None


@dataclass
class _Watched:
    """What was observed while it ran, and why it was ended early; empty if it was not."""

    during: list[Blocks]
    ended_because: str = ""
    is_halted: bool = False


class GenerateOnReplica:
    def __init__(
        self,
        generations: Generations,
        replicas: Replicas,
        scraper: Scraper,
        claims: CallClaims,
        runs: RunStore,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._generations, self._replicas, self._scraper = generations, replicas, scraper
        self._claims, self._runs, self._pause = claims, runs, pause

    async def __call__(
        self, context: EffectContext, approved: Approved, call: Call, report: Callable[[str], Awaitable[None]]
    ) -> Made:
        context.may_take(float(call.body["within_seconds"]) + BESIDE_SECONDS)
        try:
            found = await self._replicas.replicas(context.run.target, incident_id=context.incident_id)
        except ClusterError as error:
            return Made("failed", f"nothing was sent: {error}")
        replica = next((one for one in found if one.uid == call.target.uid), None)
        if replica is None or replica.in_rotation is not False:
            return Made("failed", f"nothing was sent: {call.target.name} is gone, or not known to be out of rotation")
        before = await self._look(replica)
        if before.requests is None or before.requests > 0:
            seen = "its number of running requests is unknown" if before.requests is None else "it is not empty"
            return Made("failed", f"nothing was sent to {replica.name}: {seen}")
        sending = asyncio.create_task(self._generations.generate(approved, call, replica))
        try:
            watched = await self._watch(context, call, replica, sending, report)
            generated = await sending if not watched.ended_because else None
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return await self._result(call, generated, before, watched)

    async def _watch(
        self,
        context: EffectContext,
        call: Call,
        replica: Replica,
        sending: asyncio.Task[Generated],
        report: Callable[[str], Awaitable[None]],
    ) -> _Watched:
        watched, began, reported_at = _Watched([]), context.now, context.now
        while not sending.done():
            now = await self._runs.now()
            if context.lost.is_set():
                watched.ended_because = "another process took over"
            elif now - began > float(call.body["within_seconds"]):
                watched.ended_because = f"it did not finish within {call.body['within_seconds'] / 60:.0f} minutes"
            elif by := await self._claims.halted_by(context.incident_id):
                watched.ended_because, watched.is_halted = f"halted by {by}", True
            if watched.ended_because:
                return watched
            watched.during.append(await self._look(replica))
            if now - reported_at >= REPORT_EVERY_SECONDS:
                reported_at = now
                await report(_progress(watched.during[-1], now - began))
            await self._pause(LOOK_EVERY_SECONDS)
        return watched

    async def _look(self, replica: Replica) -> Blocks:
        return blocks_in((await self._scraper.scrape([replica]))[0])

    async def _result(self, call: Call, generated: Generated | None, before: Blocks, watched: _Watched) -> Made:
        if generated is not None and generated.result == "refused":
            return Made("failed", f"nothing was generated: {generated.detail}")
        tokens = generated.tokens if generated else None
        is_finished = generated is not None and generated.result == "ended"
        error = watched.ended_because or (generated.detail if generated and not is_finished else "")
        done = Generation(tokens, is_finished, error)
        reading = generation_reading(done, before, watched.during, at=await self._runs.now())
        log.info("generation.ended", target=str(call.target), finished=is_finished, error=error)
        if watched.is_halted:
            return Made("failed", watched.ended_because, reading)
        # A probe exists to find out whether this breaks.
        return Made("done", reading.detail, reading)


def _progress(seen: Blocks, seconds: float) -> str:
    used = "unknown" if seen.used is None else f"{seen.used:.0f}"
    return f"generating for {seconds:.0f} s, {used} blocks in use"
