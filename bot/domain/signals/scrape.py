"""One scrape of one replica: its engine metrics under their resolved names. Absent is absent, never zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

WHOLE, FIRST = "e2e_request_latency_seconds", "time_to_first_token_seconds"
PROMPT, ANSWER = "request_prompt_tokens", "request_generation_tokens"
OF_REQUESTS = (WHOLE, FIRST, PROMPT, ANSWER)
"""The histograms that show how long requests take, and how long they are. They are kept by model too."""


class Histogram(BaseModel):
    """Cumulative counts by upper bound (`+Inf` last), as Prometheus exposes them."""

    model_config = ConfigDict(frozen=True)

    buckets: dict[str, float] = {}
    sum: float | None = None
    count: float | None = None
    """None where the page, or what stores it, leaves them out."""


class Scrape(BaseModel):
    """The metrics of one replica at one time. `ranks` maps an engine rank ("0" when unlabelled) to its values."""

    model_config = ConfigDict(frozen=True)

    replica: str
    uid: str = ""
    at: float
    started_at: float | None = None
    """`process_start_time_seconds`: a jump means that every counter was reset."""
    role: str = "target"
    """`target` or `canary`."""
    in_rotation: bool | None = None
    ranks: dict[str, dict[str, float]] = {}
    """rank -> resolved metric name (no prefix, no `_total`) -> value; labelled parts summed."""
    histograms: dict[str, dict[str, Histogram]] = {}
    by_model: dict[str, dict[str, Histogram]] = {}
    """Model, or model/adapter -> each of `OF_REQUESTS` -> sum and count; empty if the page names one model only."""
    config: dict[str, str] = {}
    """Labels of `vllm:cache_config_info`."""
    error: str = ""
    """Why this replica could not be scraped."""


def of_group(pages: Sequence[Scrape]) -> Scrape:
    """Returns the scrape of a replica whose pods each have a page of their own engines, the leader's first.

    Without one of the pages it is a failed one: the engines that are not seen may be those that hang.
    """
    leader, *others = pages
    if not others:
        return leader  # nearly every replica is one pod
    for one in pages:
        if one.error:
            error = one.error if one is leader else f"{one.replica}: {one.error}"
            return leader.model_copy(update={"error": error, "ranks": {}, "histograms": {}, "by_model": {}})
    ranks, histograms = dict(leader.ranks), dict(leader.histograms)
    for one in others:
        ranks |= one.ranks
        histograms |= one.histograms
    return leader.model_copy(update={"ranks": ranks, "histograms": histograms})


@dataclass(frozen=True)
class ReplicaLoad:
    """The load of one replica now, from its own /metrics; None means unknown."""

    running: float | None
    waiting: float | None
    arrivals_in_window: float | None = None
    window_seconds: float = 0.0
    has_moved: bool | None = None
    """Whether its engine has finished a request, made a token or used other KV blocks in the window."""
