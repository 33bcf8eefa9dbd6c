"""The `traffic` probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.signals.load_log import LOAD, load_of
from bot.domain.signals.probe_spec import Parameter
from bot.domain.signals.signal import Reading
from bot.domain.signals.window import Window
from bot.flow.ports.readings import LoadLog, ProbeRequest
from bot.probes.answers import answer, no_answer, seconds_asked_for
from bot.probes.declaration import Probe
from bot.probes.engine.sampled import Sampled

OVER, AGO = "30m", "24h"


@dataclass(frozen=True)
class Traffic:
    arrivals_ratio: float | None
    prompt_ratio: float | None
    output_ratio: float | None
    arrivals: float | None


@dataclass(frozen=True)
class ReadTraffic(Sampled):
    """Arrivals and lengths relative to the same time yesterday; unknown if no history reaches that far.

    Parameters: `over` is the length of the windows, `ago` the distance to yesterday's window.

    `loads` is the day that the bot keeps itself, in five minutes a point, for when no other source keeps samples that
    long.
    """

    loads: LoadLog | None = None

    async def __call__(self, request: ProbeRequest) -> Reading:
        if isinstance(span := seconds_asked_for(request, "over", OVER), str):
            return no_answer(request, span, source=self.history.source)
        if isinstance(ago := seconds_asked_for(request, "ago", AGO), str):
            return no_answer(request, ago, source=self.history.source)
        now = self.now()
        today = await self.read(request, LOAD, Window(now - span, now))
        then = Window(now - span - ago, now - ago)
        kept, sampled = await self._kept(request, then, ago), await self.read(request, LOAD, then)
        # Samples are finer, and mostly do not reach that far; then the reason comes from the bot's own day.
        yesterday = sampled if not sampled["arrivals"].unknown else kept or sampled
        return self._reading(request, today, yesterday, span)

    async def _kept(self, request: ProbeRequest, window: Window, ago: float) -> Mapping[str, Reading]:
        if self.loads is None:
            return {}
        points = await self.loads.all(request.context.target.key)
        return load_of(points, window, since=points[0].start if points else None, ago=ago)

    def _reading(
        self, request: ProbeRequest, today: Mapping[str, Reading], yesterday: Mapping[str, Reading], span: float
    ) -> Reading:
        arrivals = today["arrivals"].value
        parts = Traffic(
            arrivals_ratio=_ratio(today["arrivals"], yesterday["arrivals"]),
            prompt_ratio=_ratio(today["prompt"], yesterday["prompt"]),
            output_ratio=_ratio(today["output"], yesterday["output"]),
            arrivals=arrivals if isinstance(arrivals, float) else None,
        )
        missing = {"arrivals": today["arrivals"].unknown}
        for name, now in today.items():
            missing[f"{name}_ratio"] = now.unknown or f"yesterday: {yesterday[name].unknown or 'there was none'}"
        shown = [
            f"{name} {now.value:.3g} {now.unit}, yesterday {then.value:.3g}"
            for name, now in today.items()
            if isinstance(now.value, float) and isinstance((then := yesterday[name]).value, float)
        ]
        reading = answer(request, parts, missing=missing, detail="; ".join(shown), source=self.history.source)
        return reading.model_copy(update={"window_seconds": span})


def _ratio(now: Reading, then: Reading) -> float | None:
    """A ratio to zero is unknown."""
    if not isinstance(now.value, float) or not isinstance(then.value, float) or then.value <= 0:
        return None
    return now.value / then.value


PROBE = Probe(
    name="traffic",
    label="Traffic against yesterday",
    units={"arrivals": "per second"},
    help="Arrivals and lengths of requests against the same time yesterday, as ratios.",
    answer=Traffic,
    parameters={
        "over": Parameter("How much time is compared.", "duration"),
        "ago": Parameter("How long before it the time to compare with is.", "duration"),
    },
    read=lambda sources: ReadTraffic(sources.history, sources.now, sources.loads),
)
