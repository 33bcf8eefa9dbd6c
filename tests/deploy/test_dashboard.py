"""The Grafana dashboard: every query is valid PromQL over series of a real vLLM, under an honest title."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.deploy.files import DEPLOY, ROOT

CAPTURE = ROOT / "tests" / "sandbox" / "fleet" / "captures" / "busy.prom"
BEFORE = {"vllm:gpu_cache_usage_perc", "vllm:time_per_output_token_seconds_bucket"}
"""What engines before 0.11 and 0.10 call these (facts by version); the new name stands beside them."""


def panels() -> list[dict[str, Any]]:
    return list(json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"])


def variables() -> dict[str, dict[str, Any]]:
    written = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return {each["name"]: each for each in written["templating"]["list"]}


def links() -> list[str]:
    """The addresses of the dashboard in the README, the examples and the reference."""
    files = (ROOT / "README.md", DEPLOY / "reference" / "settings.md", *DEPLOY.glob("*.example.yaml"))
    found = [re.findall(r"https://[^\s`]*var-[^\s`]*", file.read_text(encoding="utf-8")) for file in files]
    return [link for each in found for link in each]


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@pytest.mark.needs_server("promtool")
def test_every_query_is_valid(tmp_path: Path) -> None:
    plain = [re.sub(r"\$\w+", "", query) for query in queries()]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(plain)]
    (tmp_path / "panels.yaml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    command = ["promtool", "check", "rules", "panels.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.fast
def test_every_query_is_limited_to_what_is_chosen() -> None:
    chosen = 'cluster=~"$cluster", namespace=~"$namespace", pod=~"$workload.*", pod=~"$pod"}'
    of_engines = [query for query in queries() if "vllm:" in query]
    assert all(query.count("vllm:") == query.count("{" + chosen) for query in of_engines)
    lists = {name: each["query"] for name, each in variables().items() if each["type"] == "query"}
    assert lists.keys() == {"cluster", "namespace", "pod"}
    assert chosen.removesuffix(', pod=~"$pod"}') in lists["pod"]


@pytest.mark.fast
def test_the_documented_links_show_the_workload() -> None:
    """Grafana escapes a pattern in a variable that has `All` or several values: a pod `llm.*` would be none."""
    uid = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["uid"]
    assert len(links()) == 4
    for link in links():
        parts = urlsplit(link)
        assert parts.path.split("/")[:3] == ["", "d", uid], link
        given = {name: value for name, value in parse_qsl(parts.query) if name.startswith("var-")}
        assert given["var-workload"] == "$workload", link
        assert all(re.fullmatch(r"\$\w+", value) for value in given.values()), link
        assert {name.removeprefix("var-") for name in given} <= variables().keys()
    assert variables()["workload"]["type"] == "textbox"


@pytest.mark.fast
def test_every_series_is_one_that_a_real_engine_exposes() -> None:
    exposed = set(re.findall(r"^(vllm:\w+)", CAPTURE.read_text(), re.MULTILINE))
    named = {name for query in queries() for name in re.findall(r"vllm:\w+", query)}
    assert len(named) > 10
    assert named - exposed <= BEFORE


@pytest.mark.fast
@pytest.mark.parametrize(
    "shown",
    [
        "vllm:kv_cache_usage_perc", "vllm:num_requests_waiting", "vllm:generation_tokens_total",
        "vllm:e2e_request_latency_seconds_bucket", "vllm:num_preemptions_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:inter_token_latency_seconds_bucket", "vllm:request_prompt_tokens_sum", "vllm:cache_config_info",
        "vllm:request_prompt_tokens_bucket", "vllm:request_generation_tokens_bucket", "vllm:prefix_cache_hits_total",
        "deriv(vllm:kv_cache_usage_perc",
    ],
)  # fmt: skip
def test_what_an_engineer_looks_for_has_a_panel(shown: str) -> None:
    assert any(shown in query for query in queries())


@pytest.mark.fast
def test_kv_usage_is_not_called_gpu_memory() -> None:
    shown = [panel for panel in panels() if "kv_cache_usage_perc" in panel["targets"][0]["expr"]]
    assert [panel["title"] for panel in shown if "memory" in panel["title"].lower()] == []
    assert len(shown) == 3
    assert all(panel["description"] for panel in panels())


@pytest.mark.fast
def test_lengths_are_shown_as_distributions_and_quantiles() -> None:
    heatmaps = {panel["title"]: panel["targets"] for panel in panels() if panel["type"] == "heatmap"}
    assert heatmaps.keys() == {"Prompt lengths", "Output lengths"}
    assert all(target["format"] == "heatmap" for (target,) in heatmaps.values())
    assert sum("histogram_quantile(0.95" in query for query in queries()) == 2


@pytest.mark.fast
def test_no_panel_covers_another() -> None:
    cells = [
        (x, y)
        for box in (panel["gridPos"] for panel in panels())
        for x in range(box["x"], box["x"] + box["w"])
        for y in range(box["y"], box["y"] + box["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in panels()}) == len(panels())
