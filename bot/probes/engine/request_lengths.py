"""The `request_lengths` probe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.kernel.durations import lasting
from bot.domain.signals.history import History, Missing, gather
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.sampling import bucket_rises
from bot.domain.signals.signal import Reading, unknown
from bot.domain.signals.window import COARSEST_SECONDS, Window
from bot.flow.ports.readings import ProbeRequest
from bot.probes.answers import answer, number_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

DAY_SECONDS = 24 * 3600.0
NEEDED_OF_DAY = 0.9
"""A day counts as proved if the samples cover nearly all of it."""


@dataclass(frozen=True)
class RequestLengths:
    longest: float
    above: float
    requests: float


class ReadRequestLengths(Sampled):
    """How long requests could have become in a day, rounded up to a bucket, and the share of longer ones.

    The engine rejects a request by the answer length that it asks for, however short the answer then is. A request
    without a limit is counted with all that the model's length leaves, which proves no shorter bound.
    """

    PROMPT, ASKED = "request_prompt_tokens", "request_params_max_tokens"

    async def __call__(self, request: ProbeRequest) -> Reading:
        now = self.now()
        window = Window(now - DAY_SECONDS, now)
        metrics = frozenset({self.PROMPT, self.ASKED})
        scrapes = await self.scrapes(request, metrics, window, step=COARSEST_SECONDS)
        # The replica that got the long requests is often the one that does not answer now.
        history = gather(scrapes, of=request.spec.of, picked={}, window=window, looks_back=True)
        if history.unreadable:
            replica, why = next(iter(sorted(history.unreadable.items())))
            return unknown(request.name, f"{replica}: {why}", at=now, source=self.history.source)
        if not history.scrapes:
            return unknown(request.name, "no replica was scraped", at=now, source=self.history.source)
        counts = {name: _bucket_counts(history, name) for name in sorted(metrics)}
        why_not = next((count.reason for count in counts.values() if isinstance(count, Missing)), "")
        if why_not:
            return unknown(request.name, why_not, at=now, source=self.history.source)
        # Prompts and requested answers are counted separately, so each may use half of the allowed share.
        allowed = _share(request) / 2
        bounds = [_bound(count, allowed) for count in counts.values() if not isinstance(count, Missing)]
        if any(bound is None for bound in bounds):
            reason = "some requests are longer than the largest bucket"
            return unknown(request.name, reason, at=now, source=self.history.source)
        longest = sum(bound for bound, _, _ in filter(None, bounds))
        above = sum(share for _, share, _ in filter(None, bounds))
        requests = max(count for _, _, count in filter(None, bounds))
        parts = RequestLengths(longest, above, requests)
        detail = (
            f"of {requests:.0f} requests in a day, prompt and the answer asked for stayed within {longest:.0f} tokens"
        )
        return answer(request, parts, detail=detail, source=self.history.source)


def _share(request: ProbeRequest) -> float:
    """The share of requests that may be longer: a number, or the name of the setting that contains it."""
    return number_asked_for(request, "share") or 0.0


def _bucket_counts(history: History, name: str) -> dict[float, float] | Missing:
    """How many observations of the window each bucket got, all replicas together."""
    counts: list[Mapping[float, float]] = []
    for replica, scrapes in history.scrapes.items():
        covered = scrapes[-1].at - scrapes[0].at
        if covered < NEEDED_OF_DAY * history.window.seconds:
            return Missing(f"only {lasting(covered)} of {lasting(history.window.seconds)} of history of {replica}")
        for rank, histograms in scrapes[-1].histograms.items():
            if name not in histograms:
                continue
            risen = bucket_rises(scrapes, rank, name, history.window)
            if isinstance(risen, Missing):
                return risen
            counts.append(
                {float(bound): count for bound, count in sorted(risen.items(), key=lambda one: float(one[0]))}
            )
    bounds = sorted({bound for each in counts for bound in each})
    return {bound: sum(_at_least(each, bound) for each in counts) for bound in bounds} or Missing(
        f"no {name} on any page"
    )


def _at_least(counts: Mapping[float, float], bound: float) -> float:
    """How many were within the bound: a page that lacks it, as of a model with another length, has one below it."""
    return max((count for own, count in counts.items() if own <= bound), default=0.0)


def _bound(counts: Mapping[float, float], allowed: float) -> tuple[float, float, float] | None:
    """The smallest finite bound with at most this share above it, that share, and the number of observations."""
    total = max(counts.values(), default=0.0)
    for bound, count in counts.items():
        above = (total - count) / total if total > 0 else 1.0
        if above <= allowed and math.isfinite(bound):
            return bound, above, total
    return None


PROBE = Probe(
    name="request_lengths",
    label="Lengths of requests",
    units={"above": "ratio"},
    help="The length that at most `share` of a day's requests exceeded.",
    answer=RequestLengths,
    parameters={
        "share": Parameter("The share of requests that may be longer.", "number"),
    },
    read=ReadRequestLengths.of,
)
