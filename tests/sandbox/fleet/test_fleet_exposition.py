"""Our `/metrics` against two scrapes of a real vLLM 0.32, read by prometheus_client's own parser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.sandbox.fleet.engine import Engine, EngineLimits
from bot.sandbox.fleet.exposition import HttpCounts, Server, metrics_text
from bot.sandbox.fleet.startup import Started, plan_start

pytestmark = pytest.mark.fast

CAPTURES = Path(__file__).parent / "captures"
COMMAND = [
    *("vllm", "serve", "tiny-llama", "--served-model-name=tiny-llama", "--max-model-len=2048", "--block-size=32"),
    *("--num-gpu-blocks-override=128", "--max-num-seqs=64"),
]
START = 1.7952160645e09


def scrape(*, busy: bool) -> str:
    started = plan_start(COMMAND, "0.32.0")
    assert isinstance(started, Started)
    engine, http = Engine(started.limits, now=START), HttpCounts()
    if busy:
        for _ in range(20):
            engine.submit(96, 400, now=START)
        engine.advance(START + 60)
        http.note(200, 566, 1.5, START + 30, engine.measured)
    return metrics_text(engine, Server("tiny-llama", START, START + 17, started.cache_config), http, START + 60)


def shape(text: str) -> dict[str, tuple[str, str, frozenset[tuple[tuple[str, str], ...]]]]:
    """Families by name: type, HELP, and each sample's name and labels; free text in a label's value is left out."""
    families = {}
    for family in text_string_to_metric_families(text):
        samples = frozenset(
            (("", sample.name), *sorted((k, v) for k, v in sample.labels.items() if not _varies(family.name, k)))
            for sample in family.samples
        )
        families[family.name] = (family.type, family.documentation, samples)
    return families


def _varies(family: str, label: str) -> bool:
    return family == "vllm:cache_config_info" and label == "kv_cache_memory_bytes"  # set on a CPU, not on a GPU


@pytest.mark.parametrize(("capture", "busy"), [("idle.prom", False), ("busy.prom", True)])
def test_a_scrape_has_the_families_types_labels_and_buckets_of_the_real_server(capture: str, busy: bool) -> None:
    assert shape(scrape(busy=busy)) == shape((CAPTURES / capture).read_text())


@pytest.mark.parametrize(("capture", "busy"), [("idle.prom", False), ("busy.prom", True)])
def test_a_scrape_is_the_real_one_line_by_line_but_for_its_values(capture: str, busy: bool) -> None:
    assert _without_values(scrape(busy=busy)) == _without_values((CAPTURES / capture).read_text())


def _without_values(text: str) -> list[str]:
    text = re.sub(r'kv_cache_memory_bytes="\w+"', "", text)
    return [line if line.startswith("#") else line.rpartition(" ")[0] for line in text.splitlines()]


def test_the_usage_gauge_moves_in_steps_of_one_usable_block() -> None:
    engine = Engine(EngineLimits(prefix_caching=False))
    engine.submit(33, 10, now=0)
    engine.advance(0.001)
    assert engine.usage == 2 / 127


def test_created_and_start_times_are_those_of_this_process() -> None:
    values = {s.name: s.value for f in text_string_to_metric_families(scrape(busy=False)) for s in f.samples}
    assert values["process_start_time_seconds"] == START
    assert values["vllm:num_preemptions_created"] == START + 17
