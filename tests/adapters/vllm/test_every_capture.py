"""Every captured page of every real server: the resolver's result and a direct reading agree, line by line."""

import re
import tarfile
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from bot.adapters.vllm.metrics import COUNTERS, GAUGES, HISTOGRAMS, parse, scrape_of
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.window import histogram_quantile
from tests.kit.captures import ARCHIVE, REPLICA

LINE = re.compile(r"^vllm:(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
OLD_NAMES = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "prefix_cache_hits": "gpu_prefix_cache_hits",
    "prefix_cache_queries": "gpu_prefix_cache_queries",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
}
ON_A_LABEL = {"num_gpu_blocks", "block_size", "request_success_abort", "request_success_error"}

with tarfile.open(ARCHIVE) as archive:
    NAMES = sorted(name for name in archive.getnames() if name.endswith(".prom"))
    FOLDERS = sorted({name.split("/")[0] for name in NAMES})


def pages(captures: Path, folder: str) -> list[tuple[str, Scrape]]:
    found = []
    for path in sorted((captures / folder).rglob("*.prom")):
        scrape = scrape_of(parse(path.read_text()), REPLICA, 5.0)
        if scrape is not None:
            found.append((path.read_text(), scrape))
    return found


def written(text: str) -> dict[str, float]:
    """Series name to the sum of its lines, read without any parser."""
    sums: dict[str, float] = defaultdict(float)
    for name, _, value in LINE.findall(text):
        sums[name] += float(value)
    return sums


def on_page(by_eye: dict[str, float], metric: str, *endings: str) -> float | None:
    return next(
        (
            by_eye[f"{name}{ending}"]
            for name in (metric, OLD_NAMES.get(metric, metric))
            for ending in endings
            if f"{name}{ending}" in by_eye
        ),
        None,
    )


def test_the_archive_holds_pages_of_old_and_new_engines() -> None:
    assert len(NAMES) > 200
    assert {"A_thrash_then_lower_max_num_seqs", "v0_public_scrape"} < set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_page_that_says_anything_of_the_engine_is_understood(captures: Path, folder: str) -> None:
    texts = [path.read_text() for path in (captures / folder).rglob("*.prom")]
    assert len(pages(captures, folder)) == len([text for text in texts if "vllm:num_requests_running" in text])


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_gauge_and_counter_is_what_its_lines_say_and_absent_where_they_are(captures: Path, folder: str) -> None:
    for text, scrape in pages(captures, folder):
        by_eye = written(text)
        for metric in sorted((GAUGES | COUNTERS) - ON_A_LABEL):
            read = scrape.ranks["0"].get(metric)
            assert read == on_page(by_eye, metric, "_total", ""), metric


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_histogram_is_whole_and_gives_a_quantile_within_its_bounds(captures: Path, folder: str) -> None:
    for text, scrape in pages(captures, folder):
        by_eye = written(text)
        found = scrape.histograms.get("0", {})
        assert found.keys() == {name for name in HISTOGRAMS if on_page(by_eye, name, "_count") is not None}
        for metric, histogram in found.items():
            assert histogram.count == on_page(by_eye, metric, "_count")
            assert histogram.sum == pytest.approx(on_page(by_eye, metric, "_sum"))
            counts = [count for _, count in sorted(histogram.buckets.items(), key=lambda bucket: float(bucket[0]))]
            assert counts[-1] == histogram.count
            assert all(after >= before for before, after in pairwise(counts))
            median, p99 = histogram_quantile(histogram.buckets, 0.5), histogram_quantile(histogram.buckets, 0.99)
            assert (median is None) == (histogram.count == 0)
            assert median is None or p99 is None or 0 <= median <= p99


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_pool_is_read_from_the_configuration_of_each_version(captures: Path, folder: str) -> None:
    for text, scrape in pages(captures, folder):
        blocks = re.search(r'cache_config_info\{[^}]*\bnum_gpu_blocks="(\d+)"', text)
        assert blocks is not None
        assert scrape.ranks["0"]["num_gpu_blocks"] == float(blocks[1])
        assert scrape.config["num_gpu_blocks"] == blocks[1]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("prefix", ["ray_vllm_", "ray_vllm:", "kserve_vllm:", "kserve_vllm_", "vllm_"])
def test_a_page_that_another_platform_renamed_says_the_same(captures: Path, folder: str, prefix: str) -> None:
    text, plain = pages(captures, folder)[-1]
    assert scrape_of(parse(re.sub("^vllm:", prefix, text, flags=re.MULTILINE)), REPLICA, 5.0) == plain


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if not folder.startswith("v0_")])
def test_a_second_data_parallel_rank_stands_beside_the_first_and_not_on_top_of_it(captures: Path, folder: str) -> None:
    text, plain = pages(captures, folder)[-1]
    lines = [line for line in text.splitlines() if line.startswith("vllm:") and 'engine="0"' in line]
    second = "\n".join(line.replace('engine="0"', 'engine="1"') for line in lines)
    both_pools = partial(re.sub, r'(\bnum_gpu_blocks)="(\d+)"', lambda found: f'{found[1]}="{2 * int(found[2])}"')
    # Beside each engine stand the blocks of both.
    both = scrape_of(parse(both_pools(f"{text}\n{second}\n")), REPLICA, 5.0)
    assert both is not None
    # What the API server sheds is counted before any rank, so its lines carry no rank.
    of_the_second = {name: value for name, value in plain.ranks["0"].items() if name != "admission_rejections"}
    assert both.ranks == {"0": plain.ranks["0"], "1": of_the_second}
    assert both.histograms == {"0": plain.histograms["0"], "1": plain.histograms["0"]}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_routers_copies_and_creation_times_add_nothing(captures: Path, folder: str) -> None:
    text, plain = pages(captures, folder)[-1]
    noise = [
        'vllm:num_requests_running{server="http://llm-0:8000"} 41.0',
        'vllm:num_requests_waiting{server="http://llm-0:8000"} 7.0',
        'vllm:gpu_prefix_cache_hits_total{server="http://llm-0:8000"} 9.0',
        'vllm:current_qps{server="http://llm-0:8000"} 3.0',
        "vllm:healthy_pods_total 4.0",
        'vllm:num_preemptions_created{engine="0"} 1.79e+09',
        'vllm:request_success_created{finished_reason="stop"} 1.79e+09',
        "vllm:time_to_first_token_seconds_created 1.79e+09",
    ]
    lines = "\n".join(noise)
    assert scrape_of(parse(f"{text}\n{lines}\n"), REPLICA, 5.0) == plain
