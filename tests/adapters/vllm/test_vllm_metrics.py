"""All names that vLLM and its serving layers have given a metric map to one name, counted once."""

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.adapters.vllm.metrics import COUNTERS, GAUGES, HISTOGRAMS, parse, scrape_of, scrapes_of, series_pattern
from bot.domain.signals.metric import Series, value_of
from bot.domain.signals.sampling import read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.specs import MeanSignal
from bot.domain.signals.window import Window, histogram_quantile
from bot.flow.ports.cluster import Replica

pytestmark = pytest.mark.fast

REPLICA = Replica(name="llm-0", uid="u0", address="10.0.0.1", role="canary", in_rotation=False)


def page(*lines: str) -> Scrape:
    found = scrape_of(parse("\n".join(lines) + "\n"), REPLICA, 5.0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        pytest.param('vllm:gpu_cache_usage_perc{model_name="m"} 0.5', "kv_cache_usage_perc", id="v0-usage"),
        pytest.param('vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5', "kv_cache_usage_perc", id="v1-usage"),
        pytest.param('vllm:num_preemptions_total{model_name="m"} 0.5', "num_preemptions", id="counter"),
        pytest.param('vllm:gpu_prefix_cache_hits_total{engine="0"} 0.5', "prefix_cache_hits", id="v1-0.8-prefix-cache"),
        pytest.param('ray_vllm_num_requests_running{ReplicaId="x"} 0.5', "num_requests_running", id="ray"),
        pytest.param("ray_vllm:num_requests_running 0.5", "num_requests_running", id="older-ray"),
        pytest.param('kserve_vllm:num_requests_waiting{model_name="a/b"} 0.5', "num_requests_waiting", id="kserve"),
        pytest.param("vllm_num_requests_waiting 0.5", "num_requests_waiting", id="colon-relabelled"),
    ],
)
def test_each_versions_name_becomes_the_one_name(line: str, metric: str) -> None:
    assert page(line).ranks == {"0": {metric: 0.5}}


def test_a_deprecated_twin_on_the_same_page_is_not_counted_twice() -> None:
    both = page(
        'vllm:kv_cache_usage_perc{engine="0"} 0.4',
        'vllm:gpu_cache_usage_perc{engine="0"} 0.4',
        'vllm:prefix_cache_hits_total{engine="0"} 7.0',
        'vllm:gpu_prefix_cache_hits_total{engine="0"} 7.0',
        'vllm:time_per_output_token_seconds_count{engine="0"} 3.0',
        'vllm:inter_token_latency_seconds_count{engine="0"} 3.0',
    )
    assert both.ranks["0"] == {"kv_cache_usage_perc": 0.4, "prefix_cache_hits": 7.0}
    assert both.histograms["0"]["inter_token_latency_seconds"].count == 3.0


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -1)])
def test_a_counter_that_ray_exports_as_a_gauge_too_is_counted_once(rows: slice) -> None:
    """Ray 2.10 and newer, unless `RAY_EXPORT_COUNTER_AS_GAUGE` is 0."""
    lines = [
        'ray_vllm_num_preemptions{ReplicaId="a",WorkerId="w"} 7.0',
        'ray_vllm_num_preemptions_total{ReplicaId="a",WorkerId="w"} 7.0',
        'ray_vllm_request_success{finished_reason="stop",ReplicaId="a"} 5.0',
        'ray_vllm_request_success{finished_reason="error",ReplicaId="a"} 1.0',
        'ray_vllm_request_success_total{finished_reason="stop",ReplicaId="a"} 5.0',
        'ray_vllm_request_success_total{finished_reason="error",ReplicaId="a"} 1.0',
        'ray_vllm_num_requests_running{ReplicaId="a"} 2.0',
        'ray_vllm_e2e_request_latency_seconds_count{ReplicaId="a"} 6.0',
    ]
    found = page(*lines[rows])
    assert found.ranks["0"] == {
        "num_preemptions": 7.0,
        "request_success": 6.0,
        "request_success_error": 1.0,
        "num_requests_running": 2.0,
    }
    assert found.histograms["0"]["e2e_request_latency_seconds"].count == 6.0


def test_a_counter_without_total_is_counted() -> None:
    assert page("ray_vllm_num_preemptions 7.0").ranks["0"] == {"num_preemptions": 7.0}


def test_series_that_are_copied_to_another_prefix_are_counted_once() -> None:
    found = page(
        "vllm:num_requests_running 2.0",
        "kserve_vllm:num_requests_running 2.0",
        "vllm:e2e_request_latency_seconds_count 6.0",
        "kserve_vllm:e2e_request_latency_seconds_count 6.0",
    )
    assert found.ranks["0"] == {"num_requests_running": 2.0}
    assert found.histograms["0"]["e2e_request_latency_seconds"].count == 6.0


def test_the_old_latency_histogram_becomes_the_new_one() -> None:
    old = page(
        'vllm:time_per_output_token_seconds_bucket{le="0.01"} 2.0',
        'vllm:time_per_output_token_seconds_bucket{le="+Inf"} 3.0',
        "vllm:time_per_output_token_seconds_sum 0.5",
        "vllm:time_per_output_token_seconds_count 3.0",
    )
    found = old.histograms["0"]["inter_token_latency_seconds"]
    assert (found.buckets, found.sum, found.count) == ({"0.01": 2.0, "+Inf": 3.0}, 0.5, 3.0)


def test_finished_requests_are_summed_over_reasons_and_the_bad_ones_are_kept_apart() -> None:
    found = page(
        'vllm:request_success_total{finished_reason="stop"} 5.0',
        'vllm:request_success_total{finished_reason="length"} 3.0',
        'vllm:request_success_total{finished_reason="abort"} 2.0',
        'vllm:request_success_total{finished_reason="error"} 1.0',
    ).ranks["0"]
    assert found == {"request_success": 11.0, "request_success_abort": 2.0, "request_success_error": 1.0}


def test_engine_ranks_are_kept_apart() -> None:
    found = page('vllm:num_requests_running{engine="0"} 3.0', 'vllm:num_requests_running{engine="1"} 4.0')
    assert found.ranks == {"0": {"num_requests_running": 3.0}, "1": {"num_requests_running": 4.0}}


@pytest.mark.parametrize(
    "line",
    [
        pytest.param('vllm:num_preemptions_created{engine="0"} 1.795e+09', id="created"),
        pytest.param('vllm:num_requests_running{server="http://a:8000"} 4.0', id="router-look-alike"),
        pytest.param('vllm:num_requests_waiting_by_reason{reason="capacity"} 4.0', id="part-of-another"),
        pytest.param("vllm:healthy_pods_total 4.0", id="router"),
        pytest.param('vllm:iteration_tokens_total_bucket{le="1.0"} 4.0', id="histogram-named-total"),
        pytest.param("process_start_time_seconds 1.0", id="no-engine"),
        pytest.param("", id="empty"),
    ],
)
def test_what_is_no_metric_of_the_engine_is_not_taken_for_one(line: str) -> None:
    assert scrape_of(parse(line + "\n"), REPLICA, 5.0) is None


def test_labels_may_hold_whatever_is_written_in_a_models_name() -> None:
    (sample,) = parse('vllm:num_requests_running{model_name="a,b=\\"c\\"} {\\\\d\\n",engine="0",} 3.0 1795216064500\n')
    assert sample == ("vllm:num_requests_running", {"model_name": 'a,b="c"} {\\d\n', "engine": "0"}, 3.0)


def test_what_is_no_number_is_absent() -> None:
    assert parse("vllm:kv_cache_usage_perc NaN\n") == []
    assert parse("vllm:num_requests_running +Inf\nvllm:num_requests_waiting -Inf\n") == []


@pytest.mark.parametrize("bound", ["", "fast", "NaN"])
def test_a_bucket_whose_bound_is_no_number_is_absent(bound: str) -> None:
    """The quantile of it raised, and with it the whole reading of the incident."""
    name = "vllm:time_to_first_token_seconds_bucket"
    found = page(f'{name}{{le="{bound}"}} 3.0', f'{name}{{le="+Inf"}} 4.0')
    buckets = found.histograms["0"]["time_to_first_token_seconds"].buckets
    assert (buckets, histogram_quantile(buckets, 0.9)) == ({"+Inf": 4.0}, None)


def test_absent_is_absent_and_not_zero() -> None:
    found = page('vllm:num_requests_running{engine="0"} 3.0')
    assert "num_preemptions" not in found.ranks["0"]
    assert found.started_at is None
    assert found.histograms == {}


def test_the_sum_or_count_of_a_histogram_that_is_missing_is_absent() -> None:
    """A mean of zero seconds would be a good one."""
    found = page('vllm:e2e_request_latency_seconds_count{engine="0"} 3.0').histograms["0"][
        "e2e_request_latency_seconds"
    ]
    assert (found.sum, found.count) == (None, 3.0)
    spec = MeanSignal(mean="e2e_request_latency_seconds")
    lines = [f'vllm:e2e_request_latency_seconds_count{{engine="0"}} {n}.0' for n in range(0, 310, 10)]
    scrapes = [page(line).model_copy(update={"at": 10.0 * n, "role": "target"}) for n, line in enumerate(lines)]
    reading = read_window("e2e", spec, scrapes, window=Window(0, 300), picked={})
    assert reading.value is None
    assert "e2e_request_latency_seconds" in reading.unknown


def test_the_scrape_carries_who_it_is_of() -> None:
    found = page("vllm:num_requests_running 1.0", "process_start_time_seconds 77.0")
    assert (found.replica, found.uid, found.at, found.started_at) == ("llm-0", "u0", 5.0, 77.0)
    assert (found.role, found.in_rotation) == ("canary", False)


def test_the_real_page_of_0_32_is_read_whole(captures: Path) -> None:
    text = (captures / "A_thrash_then_lower_max_num_seqs/scrapes/0060.prom").read_text()
    found = scrape_of(parse(text), REPLICA, 5.0)
    assert found is not None
    assert (GAUGES | COUNTERS) - found.ranks["0"].keys() == set()
    assert HISTOGRAMS - found.histograms["0"].keys() == set()
    assert found.ranks["0"]["num_preemptions"] == 975
    assert found.ranks["0"]["request_success"] == 468
    assert (found.ranks["0"]["num_gpu_blocks"], found.ranks["0"]["block_size"]) == (128, 32)
    assert found.histograms["0"]["request_generation_tokens"].sum == 240333
    assert found.started_at == 1795216064.5
    assert found.config["cache_dtype"] == "auto"


def test_cutting_the_page_down_first_loses_nothing(captures: Path) -> None:
    text = (captures / "A_thrash_then_lower_max_num_seqs/scrapes/0060.prom").read_text()
    every = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    wanted = {(sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in every}
    cut = {(sample.name, tuple(sorted(sample.labels.items())), sample.value) for sample in parse(text)}
    assert cut < wanted
    whole = scrape_of(parse(text), REPLICA, 5.0)
    from_all = scrape_of(every, REPLICA, 5.0)  # type: ignore[arg-type]  # the library's sample has the same fields
    assert whole == from_all


def test_each_data_parallel_engine_has_its_own_blocks() -> None:
    """Two engines of 64 blocks behind two API servers: each one's line in `cache_config_info` says 128."""
    found = page((Path(__file__).parent / "captures" / "two_engines.prom").read_text())
    ranks = found.ranks.values()
    assert [(rank["num_gpu_blocks"], rank["block_size"]) for rank in ranks] == [(64, 32), (64, 32)]
    # One block is reserved: 60 of the other 63 are in use.
    assert [value_of(found, rank, "free_blocks") for rank in "01"] == pytest.approx([63, 3])
    assert [value_of(found, rank, "usable_tokens") for rank in "01"] == [2016, 2016]


def test_the_pool_of_a_model_with_sliding_windows_holds_what_the_engine_says() -> None:
    """Five layers of six have a window of 256: 256 blocks of 32 hold 1,330 tokens, and six requests fill them."""
    found = page((Path(__file__).parent / "captures" / "sliding_windows.prom").read_text())
    assert found.ranks["0"]["num_requests_running"] == 6
    assert found.ranks["0"]["kv_cache_usage_perc"] > 0.97
    assert value_of(found, "0", "usable_tokens") == 1324


def test_the_only_line_of_an_older_version_has_the_blocks_of_all_engines() -> None:
    """Until 0.10 only the first engine has one."""
    found = page(
        'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="128"} 1.0',
        'vllm:num_requests_running{engine="0"} 3.0',
        'vllm:num_requests_running{engine="1"} 4.0',
    )
    assert found.ranks["0"]["num_gpu_blocks"] == 64


def test_a_line_without_an_engine_is_no_engine() -> None:
    found = page(
        'vllm:cache_config_info{engine="3",block_size="16",num_gpu_blocks="128"} 1.0',
        'vllm:num_requests_running{engine="3"} 3.0',
        'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 4.0',
    )
    assert found.ranks["3"]["num_gpu_blocks"] == 128


def test_a_public_page_of_0_6_is_read(captures: Path) -> None:
    text = (captures / "v0_public_scrape/0.6.x_idle_llama31_8b.prom").read_text()
    found = scrape_of(parse(text), REPLICA, 5.0)
    assert found is not None
    assert found.ranks["0"]["kv_cache_usage_perc"] == 0.0
    assert found.ranks["0"]["num_gpu_blocks"] == 2375
    assert "request_success" not in found.ranks["0"]


def test_the_pattern_for_a_metrics_store_asks_for_what_a_derived_metric_needs() -> None:
    pattern = series_pattern(frozenset({"arrivals", "usable_tokens"}))
    for name in ("request_success", "num_requests_running", "num_requests_waiting", "cache_config_info"):
        assert name in pattern
    assert "num_preemptions" not in pattern


@pytest.mark.parametrize("metric", ["usable_tokens", "free_blocks"])
def test_a_metrics_store_gives_each_engine_its_own_blocks(metric: str) -> None:
    """Until 0.10 only the first engine has the line of the pool, with the blocks of all engines."""
    page = "".join(
        f'vllm:num_requests_running{{engine="{each}"}} 1\nvllm:kv_cache_usage_perc{{engine="{each}"}} 0.5\n'
        for each in (0, 1)
    )
    samples = parse(page + 'vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="128"} 1\n')
    wanted = re.compile(series_pattern(frozenset({metric})))
    stored = [Series(each.name, each.labels, ((1.0, each.value),)) for each in samples if wanted.fullmatch(each.name)]
    (from_store,), from_page = scrapes_of(stored, REPLICA), scrape_of(samples, REPLICA, 1.0)
    assert from_page is not None
    assert value_of(from_store, "0", metric) == value_of(from_page, "0", metric) is not None
