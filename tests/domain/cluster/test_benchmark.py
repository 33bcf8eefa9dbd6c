"""The result of a load test: what `vllm bench serve` prints, its JSON, and what neither of them says."""

from __future__ import annotations

import json

import pytest

from bot.domain.cluster.benchmark import PARTS
from bot.domain.cluster.job import job_reading

pytestmark = pytest.mark.fast
NOW = 1_800_000_000.0
PRINTED = """\
Starting initial single prompt test run...
Initial test run completed.
Starting main benchmark run...
============ Serving Benchmark Result ============
Successful requests:                     298
Failed requests:                         2
Request rate configured (RPS):           1.50
Benchmark duration (s):                  198.61
Total input tokens:                      298117
Total generated tokens:                  37519
Request throughput (req/s):              1.50
Output token throughput (tok/s):         188.91
Peak output token throughput (tok/s):    265.00
Total token throughput (tok/s):          1689.93
---------------Time to First Token----------------
Mean TTFT (ms):                          188.40
Median TTFT (ms):                        163.92
P99 TTFT (ms):                           412.50
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          11.43
P99 TPOT (ms):                           16.30
==================================================
"""
MEASURED = {
    "completed": 298.0,
    "failed": 2.0,
    "requests_per_second": 1.5,
    "tokens_per_second": 188.91,
    "ttft_p99": 0.4125,
}
SAVED = {
    "completed": 298,
    "failed": 2,
    "request_throughput": 1.5,
    "output_throughput": 188.91,
    "mean_ttft_ms": 188.4,
    "p99_ttft_ms": 412.5,
}


def without(label: str) -> str:
    return "".join(line for line in PRINTED.splitlines(keepends=True) if not line.startswith(label))


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(PRINTED, id="printed"),
        pytest.param(PRINTED.replace("412.50", "999.00") + PRINTED, id="the-last-of-two"),
        pytest.param(PRINTED + "sys:1: ResourceWarning: unclosed transport\n", id="a-warning-follows"),
        pytest.param(json.dumps(SAVED), id="json"),
        pytest.param(PRINTED.replace("412.50", "999.00") + json.dumps(SAVED), id="json-counts-more"),
    ],
)
def test_a_load_test_is_read_from_what_vllm_bench_serve_leaves(log: str) -> None:
    reading = job_reading(log, at=NOW)
    assert {part: reading.fields[part] for part in PARTS} == MEASURED


@pytest.mark.parametrize(
    ("log", "part", "reason"),
    [
        pytest.param("loading\ndone", "ttft_p99", "no result of a benchmark", id="another-program"),
        pytest.param("P99 TTFT (ms): 10.00", "ttft_p99", "no result of a benchmark", id="no-title"),
        pytest.param(without("P99 TTFT"), "ttft_p99", "printed no line 'P99 TTFT (ms)'", id="other-percentiles"),
        pytest.param(without("Failed"), "failed", "printed no line 'Failed requests'", id="an-older-version"),
        pytest.param(PRINTED.replace("412.50", "nan"), "ttft_p99", "is not a number: nan", id="not-a-number"),
        pytest.param(PRINTED.replace("412.50", "-1"), "ttft_p99", "is not a number: -1", id="below-zero"),
        pytest.param('{"request_throughput": 1.5}', "ttft_p99", "no 'p99_ttft_ms'", id="json-without-it"),
        pytest.param('{"completed": 5, "p99_ttft_ms": "fast"}', "ttft_p99", "is not a number: fast", id="json-text"),
        pytest.param('{"completed": 5, "p99_ttft_ms": true}', "ttft_p99", "is not a number: True", id="json-flag"),
    ],
)
def test_what_the_output_lacks_is_unknown_with_the_reason(log: str, part: str, reason: str) -> None:
    reading = job_reading(log, at=NOW)
    assert part not in reading.fields
    assert reason in reading.unknown_parts[part]


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(PRINTED.replace("298\n", "0\n", 1).replace("412.50", "0.00"), id="printed"),
        pytest.param(json.dumps(SAVED | {"completed": 0, "p99_ttft_ms": 0.0}), id="json"),
    ],
)
def test_a_test_in_which_no_request_succeeded_measured_nothing(log: str) -> None:
    """vLLM prints a first token after 0 ms then."""
    reading = job_reading(log, at=NOW)
    assert (reading.fields["completed"], reading.fields["failed"]) == (0.0, 2.0)
    assert reading.unknown_parts["ttft_p99"] == "no request of the benchmark succeeded"
    assert "ttft_p99" not in reading.fields


@pytest.mark.parametrize(
    ("log", "text"),
    [
        pytest.param(
            PRINTED,
            "298 requests succeeded, 2 failed, 1.5 requests/s, 189 tokens/s, first token p99 0.412 s",
            id="a-load-test",
        ),
        pytest.param(
            without("P99 TTFT"),
            "298 requests succeeded, 2 failed, 1.5 requests/s, 189 tokens/s; "
            "not known: the benchmark printed no line 'P99 TTFT (ms)'",
            id="without-its-p99",
        ),
        pytest.param(
            '{"score": 0.71, "baseline": 0.73, "eval": "gsm8k"}', "score 0.71, baseline 0.73, eval gsm8k", id="an-eval"
        ),
        pytest.param(
            '{"score": 0.71}',
            "score 0.71; not known: the Job's JSON line has no 'baseline', the Job's JSON line has no 'eval'",
            id="an-eval-without-baseline",
        ),
        pytest.param("loading\ndone", "no result; the log ends with: done", id="neither"),
    ],
)
def test_people_read_the_result_that_the_job_has(log: str, text: str) -> None:
    assert job_reading(log, at=NOW).detail == text
