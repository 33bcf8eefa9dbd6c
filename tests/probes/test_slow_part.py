"""One engine rank, model or adapter that is slower than the others."""

from collections.abc import Sequence
from typing import Any

import pytest

from bot.adapters.vllm.metrics import parse, scrape_of
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.signals.scrape import WHOLE, Histogram, Scrape
from bot.domain.signals.signal import Reading
from bot.flow.ports.cluster import Replica
from tests.kit import probes
from tests.kit.probes import Samples, request

pytestmark = pytest.mark.fast
NOW = 100_000.0
TWO = {"0": 6.0, "1": 18.0}


def pages(
    name: str,
    seconds: dict[str, float],
    *,
    every: float = 2.0,
    label: str = "engine",
    answers: dict[str, float] | None = None,
) -> Sequence[Scrape]:
    """A minute of one replica's pages: each part finishes a request every two seconds, which took so long.

    `answers`: the tokens of the part's answers, else 200.
    """
    found = []
    for step in range(7):
        at = NOW - 60 + 10 * step
        count = 10 * step / every
        means = {
            part: {
                "e2e_request_latency_seconds": took,
                "time_to_first_token_seconds": 0.5,
                "request_prompt_tokens": 500.0,
                "request_generation_tokens": (answers or {}).get(part, 200.0),
            }
            for part, took in seconds.items()
        }
        text = "".join(
            f'vllm:{metric}_sum{{{label}="{part}"}} {mean * count}\nvllm:{metric}_count{{{label}="{part}"}} {count}\n'
            for part, each in means.items()
            for metric, mean in each.items()
        )
        scrape = scrape_of(parse(text), Replica(name=name, uid=name, address="10.0.0.1"), at)
        assert scrape is not None
        found.append(scrape)
    return found


async def ask(*scrapes: Scrape, **parameters: Any) -> Reading:
    asked = request("slow_part", ClusterSnapshot(at=NOW, workload=None), at=NOW, parameters=parameters)
    return await probes.ask(asked, history=Samples(*scrapes))


async def test_a_slow_engine_rank_is_found_and_its_replica_named() -> None:
    fast = {"0": 6.0, "1": 6.0}
    reading = await ask(*pages("a", fast), *pages("b", fast | {"1": 18.0}))
    assert (reading.fields["kind"], reading.fields["name"]) == ("rank", "1")
    assert reading.fields["replica"] == "b"
    assert reading.detail == "rank 1 of b: 3.0 times the others over 5 min, at equal lengths of requests"


@pytest.mark.parametrize("label", ["model_name", "lora_name"])
async def test_a_slow_model_or_adapter_is_named_where_the_pages_distinguish_them(label: str) -> None:
    reading = await ask(*pages("a", {"base": 6.0, "sql": 18.0}, label=label))
    assert (reading.fields["kind"], reading.fields["name"], reading.fields["replica"]) == ("model", "sql", "")


@pytest.mark.parametrize(("label", "parts"), [("engine", ("0", "1")), ("model_name", ("base", "sql"))])
async def test_a_part_with_longer_requests_is_not_slow_for_that_reason(label: str, parts: tuple[str, str]) -> None:
    """Each token takes as long as those of the other part; its answers have three times as many."""
    usual, long = parts
    reading = await ask(*pages("a", {usual: 6.0, long: 17.0}, label=label, answers={long: 600.0}))
    assert reading.fields["name"] == long
    assert reading.fields["ratio"] == pytest.approx(1.0)
    assert reading.detail.endswith("1.0 times the others over 5 min, at equal lengths of requests")


async def test_a_part_whose_requests_are_short_and_slow_is_found_beside_one_with_long_requests() -> None:
    reading = await ask(*pages("a", {"0": 18.0, "1": 17.5, "2": 6.0}, answers={"0": 600.0, "1": 200.0, "2": 200.0}))
    assert reading.fields["name"] == "1"


async def test_parts_whose_lengths_are_not_on_their_pages_are_not_compared() -> None:
    found = [scrape.model_copy(update={"histograms": without_lengths(scrape)}) for scrape in pages("a", TWO)]
    assert (await ask(*found)).unknown == "the lengths of the requests of ranks 0, 1 of a are not on its page"


def without_lengths(scrape: Scrape) -> dict[str, dict[str, Histogram]]:
    return {rank: {WHOLE: each[WHOLE]} for rank, each in scrape.histograms.items()}


async def test_single_ranks_and_models_are_the_replicas_themselves() -> None:
    reading = await ask(*pages("a", {"0": 6.0}), *pages("b", {"0": 18.0}))
    assert reading.unknown == "no two engine ranks or models finish requests"


async def test_a_window_that_is_no_duration_compares_nothing() -> None:
    reading = await ask(*pages("a", {"0": 6.0, "1": 18.0}), over="soon")
    assert reading.unknown.startswith("'soon' is not a duration")


async def test_a_rank_that_hardly_finishes_anything_has_no_mean() -> None:
    reading = await ask(*pages("a", {"0": 6.0, "1": 18.0}, every=20.0))
    assert reading.unknown == "no two engine ranks or models finish requests"
