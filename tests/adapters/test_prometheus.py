"""The history from Prometheus: the same samples, and therefore the same verdicts, as from our own scraping."""

import json
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from bot.adapters.prometheus.history import PrometheusHistory, ranged, selector_of
from bot.adapters.prometheus.memory import PrometheusMemory
from bot.adapters.prometheus.registers import PrometheusRegisters
from bot.adapters.vllm import metrics as vllm_metrics
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.target import Target
from bot.domain.signals.sampling import SampledSpec, metrics_of, read_window
from bot.domain.signals.scrape import Scrape
from bot.domain.signals.specs import (
    ComparedSignal,
    MeanSignal,
    MetricSignal,
    QuantileSignal,
    RatioSignal,
    ShareSignal,
    StallSignal,
)
from bot.domain.signals.window import Window
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import History, ReadContext
from bot.flow.read_signals import ReadSignals
from bot.flow.sample_replicas import SampledHistory
from bot.sandbox import valkey
from tests.fakes.samples import FakeSampleStore
from tests.kit.archives import unpack
from tests.kit.captures import ARCHIVE, Capture

REPLICA = Replica(name="llm-0", uid="u0", address="10.0.0.1", role="target", in_rotation=True)
CONTEXT = ReadContext(
    target=Target(cluster="c", namespace="serving", name="llm"),
    incident_id="INC-1",
    opened_at=0.0,
    picked={},
    settings={},
)


class Replicas:
    def __init__(self, *replicas: Replica) -> None:
        self._replicas = replicas

    async def replicas(self, target: Target, *, incident_id: str) -> Sequence[Replica]:
        return self._replicas


class Nothing:
    async def scrape(self, replicas: Sequence[Replica]) -> Sequence[Scrape]:
        return []


class NoCluster:
    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        return ClusterSnapshot(at=0.0, workload=None)


# --- a stand-in with prepared answers ---------------------------------------------------------------------------------


@dataclass
class Answer:
    body: bytes = b""
    status: int = 200
    port: int = 0
    asked: str = ""
    each: dict[str, str] = field(default_factory=dict)
    """The times of the last query that was asked at each step."""


@pytest.fixture
async def server() -> AsyncIterator[Answer]:
    answer = Answer()

    async def query(request: web.Request) -> web.Response:
        answer.asked = str((await request.post())["query"])
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    app = web.Application()

    async def query_range(request: web.Request) -> web.Response:
        answer.each = {name: str(value) for name, value in (await request.post()).items() if name != "query"}
        return web.Response(body=found(), content_type="application/json")

    app.router.add_post("/prom/api/v1/query", query)
    app.router.add_post("/prom/api/v1/query_range", query_range)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    answer.port = runner.addresses[0][1]
    yield answer
    await runner.cleanup()


def series(name: str, *values: tuple[float, float | str], pod: str = "llm-0", job: str = "vllm", **labels: str) -> Any:
    metric = {"__name__": name, "pod": pod, "job": job, "instance": "10.0.0.1:8000", "namespace": "serving", **labels}
    return {"metric": metric, "values": [[at, str(value)] for at, value in values]}


def found(*result: Any, warnings: Sequence[str] = ()) -> bytes:
    data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data, "warnings": list(warnings)}).encode()


async def between(server: Answer, *replicas: Replica, end: float = 100.0, now: float = 100.0) -> Sequence[Scrape]:
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.port}/prom/"
        live = Replicas(*(replicas or (REPLICA,)))
        history = PrometheusHistory(client, url, replicas=live, engine=vllm_metrics, now=lambda: now)
        return await history.between(CONTEXT, frozenset({"num_requests_running"}), end - 60, end)


@pytest.mark.fast
async def test_series_of_one_moment_become_one_scrape(server: Answer) -> None:
    server.body = found(
        series("vllm:num_requests_running", (80, 3), (95, 4), engine="0"),
        series("vllm:num_requests_running", (80, 1), (95, 2), engine="1"),
        series("process_start_time_seconds", (80, 7), (95, 7)),
        series("process_start_time_seconds", (80, 9), (95, 9), job="sidecar"),
    )
    scrapes = await between(server)
    assert [scrape.at for scrape in scrapes] == [80, 95]
    assert scrapes[1].ranks == {"0": {"num_requests_running": 4.0}, "1": {"num_requests_running": 2.0}}
    assert (scrapes[1].started_at, scrapes[1].uid, scrapes[1].in_rotation) == (7, "u0", True)


@pytest.mark.fast
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
async def test_what_is_no_number_is_absent(server: Answer, value: str) -> None:
    server.body = found(series("vllm:num_requests_running", (95, 4)), series("vllm:num_requests_waiting", (95, value)))
    assert [scrape.ranks for scrape in await between(server)] == [{"0": {"num_requests_running": 4.0}}]


@pytest.mark.fast
async def test_a_pod_that_two_jobs_scrape_is_counted_once(server: Answer) -> None:
    server.body = found(
        series("vllm:num_requests_running", (80, 3), (95, 4), job="pods"),
        series("vllm:num_requests_running", (81, 3), job="services"),
    )
    assert [scrape.at for scrape in await between(server)] == [80, 95]


@pytest.mark.fast
@pytest.mark.parametrize("label", ["prometheus_replica", "replica"])
async def test_what_a_pair_of_prometheus_servers_sampled_at_one_moment_is_counted_once(
    server: Answer, label: str
) -> None:
    server.body = found(
        series("vllm:num_requests_running", (80, 3), (95, 4), **{label: "a"}),
        series("vllm:num_requests_running", (80, 3), (95, 4), **{label: "b"}),
    )
    running = [(scrape.at, scrape.ranks["0"]["num_requests_running"]) for scrape in await between(server)]
    assert running == [(80, 3), (95, 4)]


@pytest.mark.fast
async def test_a_pod_that_was_replaced_under_its_name_has_the_samples_of_both_addresses(server: Answer) -> None:
    server.body = found(
        series("vllm:num_requests_running", (40, 9), (50, 9), (60, 9), (70, 9), instance="10.0.0.1:8000"),
        series("vllm:num_requests_running", (85, 1), (95, 2), instance="10.0.0.9:8000"),
    )
    running = [(scrape.at, scrape.ranks["0"]["num_requests_running"]) for scrape in await between(server)]
    assert running == [(40, 9), (50, 9), (60, 9), (70, 9), (85, 1), (95, 2)]


@pytest.mark.fast
async def test_a_job_that_no_longer_scrapes_a_pod_gives_way_to_one_that_does(server: Answer) -> None:
    server.body = found(
        series("vllm:num_requests_running", *((at, 3) for at in range(20, 65, 5)), job="removed"),
        series("vllm:num_requests_running", *((at, 3) for at in range(35, 100, 15)), job="pods"),
    )
    assert [scrape.at for scrape in await between(server)] == [35, 50, 65, 80, 95]


@pytest.mark.fast
async def test_a_replica_that_prometheus_does_not_know_is_unreadable_and_not_idle(server: Answer) -> None:
    server.body = found()
    (scrape,) = await between(server)
    assert (scrape.replica, scrape.error) == ("llm-0", "Prometheus has no fresh sample of it")
    assert scrape.in_rotation is True


@pytest.mark.fast
@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        pytest.param(400, b'{"status":"error","error":"too many samples"}', "too many samples", id="refused"),
        pytest.param(502, b"<html>bad gateway</html>", "HTTP 502", id="proxy"),
        pytest.param(200, b"hello", "answered no JSON", id="not-json"),
        pytest.param(200, b'{"status":"success"}', "not in the form", id="another-form"),
        pytest.param(200, found(warnings=["store b is away"]), "only in part: store b is away", id="in-part"),
        pytest.param(
            200,
            b'{"status":"success","isPartial":true,"data":{"resultType":"matrix","result":[]}}',
            "only in part",
            id="in-part-victoriametrics",
        ),
    ],
)
async def test_an_answer_that_is_none_is_an_error_with_its_reason(
    server: Answer, status: int, body: bytes, reason: str
) -> None:
    server.status, server.body = status, body
    with pytest.raises(SourceError, match=reason):
        await between(server)


@pytest.mark.fast
@pytest.mark.parametrize("result", [None, "x", ["x"], [{}], [{"metric": None}], {"metric": {}}])
async def test_series_in_another_form_are_an_error_and_never_a_crash(server: Answer, result: object) -> None:
    server.body = json.dumps({"status": "success", "data": {"result": result}}).encode()
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.port}/prom"
        for read in (
            between(server),
            PrometheusMemory(client, url).least_free_mib("serving", ["llm-0"]),
            PrometheusRegisters(client, url).xids(["GPU-1"], 0.0, 60.0),
        ):
            with pytest.raises(SourceError, match="not in the form that Prometheus gives"):
                await read


@pytest.mark.fast
async def test_a_note_about_the_query_itself_does_not_make_the_answer_partial(server: Answer) -> None:
    server.body = found(
        series("vllm:num_requests_running", (95, 4)), warnings=["PromQL info: metric might not be a counter"]
    )
    assert [scrape.at for scrape in await between(server)] == [95]


@pytest.mark.fast
async def test_a_prometheus_that_is_away_is_an_error() -> None:
    with pytest.raises(SourceError):
        await between(Answer(port=1))


@pytest.mark.fast
@pytest.mark.parametrize("name", ['a"} or vector(1) #', "a|.*", "A", "", "a\n", "x" * 300])
async def test_a_name_that_kubernetes_cannot_have_given_is_never_put_into_a_query(server: Answer, name: str) -> None:
    with pytest.raises(SourceError, match="is not the name"):
        selector_of("up", name, ["llm-0"])
    with pytest.raises(SourceError, match="is not the name"):
        await between(server, Replica(name=name, uid="u", address="10.0.0.1"))
    assert server.asked == ""


@pytest.mark.fast
def test_names_are_matched_literally() -> None:
    query = ranged(selector_of("(?:vllm:x)", "serving", ["a.b", "c"]), 1.5)
    assert query == '{__name__=~"(?:vllm:x)",namespace="serving",pod=~"a\\\\.b|c"}[1500ms]'


OF_EAST = {"cluster": "east", "site": 'a "b"\\'}


@pytest.mark.fast
async def test_every_query_is_about_the_series_of_one_cluster(server: Answer) -> None:
    url, asked = f"http://127.0.0.1:{server.port}/prom/", list[str]()
    server.body = found()
    async with httpx.AsyncClient() as client:
        history = PrometheusHistory(client, url, replicas=Replicas(REPLICA), engine=vllm_metrics, labels=OF_EAST)
        memory, registers = PrometheusMemory(client, url, OF_EAST), PrometheusRegisters(client, url, OF_EAST)
        reads = (
            history.between(CONTEXT, frozenset({"num_requests_running"}), 0, 60),
            memory.day_before("host", "serving", ["llm-0"], 100.0),
            memory.day_before("gpu", "serving", ["llm-0"], 100.0),
            registers.xids(["GPU-1"], 0.0, 60.0),
        )
        for read in reads:
            await read
            asked.append(server.asked)
        with pytest.raises(SourceError, match="no whole day"):
            await memory.least_free_mib("serving", ["llm-0"])
        asked.append(server.asked)
    for query in asked:
        selectors = query.count('namespace="serving"') + query.count("UUID=")
        assert query.count(r'cluster="east",site="a \"b\"\\"') == selectors > 0, query


@pytest.mark.fast
@pytest.mark.parametrize(
    ("kind", "former"),
    [
        ("Deployment", "|llm-[a-z0-9]{1,10}-[a-z0-9]{5}"),
        ("StatefulSet", "|llm-[0-9]+"),
        ("LeaderWorkerSet", "|llm-[0-9]+"),
        ("Unknown", ""),
    ],
)
def test_pods_that_a_workload_once_had_are_asked_for_too(kind: str, former: str) -> None:
    target = Target(cluster="c", namespace="serving", kind=kind, name="llm")
    query = selector_of("x", "serving", ["llm-7d9f-abcde"], of=target)
    assert f'pod=~"llm\\\\-7d9f\\\\-abcde{former}"' in query


@pytest.mark.fast
async def test_the_fleet_of_a_past_window_is_the_pods_that_were_there_then(server: Answer) -> None:
    server.body = found(series("vllm:num_requests_running", (80, 3), (95, 4), pod="llm-7d9f-abcde"))
    scrapes = await between(server, end=100, now=5000)
    # llm-0 lives now; whether it did then is not known, so nobody says that it was silent.
    assert [(scrape.replica, scrape.at, scrape.error) for scrape in scrapes] == [
        ("llm-7d9f-abcde", 80, ""),
        ("llm-7d9f-abcde", 95, ""),
    ]


@pytest.mark.fast
async def test_a_pod_that_leaves_is_not_read_now_although_it_is_still_scraped(server: Answer) -> None:
    """It drains for minutes: its thrash would stay after the rollout that ended it. So would that of a namesake."""
    ours = series("vllm:num_requests_running", (80, 3), (95, 4))
    leaving = [
        series("vllm:num_requests_running", (80, 40), (95, 40), pod=pod) for pod in ("llm-5b8c-zzzzz", "llm-a-b")
    ]
    server.body = found(ours, *leaving)
    assert [(scrape.replica, scrape.at) for scrape in await between(server)] == [("llm-0", 80), ("llm-0", 95)]


@pytest.mark.fast
async def test_the_register_of_a_gpu_in_slices_is_the_highest_of_theirs(server: Answer) -> None:
    """Neither slice's register changes. Merged by time alone, 0 and 79 would alternate: a fresh fault."""
    times = (10, 25, 40)
    slices = {"1": 0, "2": 79}
    server.body = found(
        *(
            series("DCGM_FI_DEV_XID_ERRORS", *((at, xid) for at in times), UUID="GPU-1", GPU_I_ID=each)
            for each, xid in slices.items()
        ),
        series("DCGM_FI_DEV_XID_ERRORS", (55, 79), UUID="GPU-1", pod="the-next-holder"),
    )
    async with httpx.AsyncClient() as client:
        registers = PrometheusRegisters(client, f"http://127.0.0.1:{server.port}/prom/")
        assert await registers.xids(["GPU-1"], 0.0, 60.0) == {"GPU-1": [(at, 79) for at in (*times, 55)]}


GROUP = Replica(name="llm-0", uid="u0", address="10.0.0.1", workers=(("llm-0-1", "10.0.0.2"),))


@pytest.mark.fast
async def test_the_engines_of_a_groups_workers_are_read_with_their_leaders(server: Answer) -> None:
    running = "vllm:num_requests_running"
    leader = series(running, (70, 3), (85, 4), (100, 5), engine="0")
    worker = series(running, (77, 6), (92, 7), pod="llm-0-1", engine="8", instance="10.0.0.2:8000")
    server.body = found(leader, worker)
    scrapes = await between(server, GROUP, end=100, now=100)
    assert 'pod=~"llm\\\\-0|llm\\\\-0\\\\-1' in server.asked
    assert [
        (one.replica, one.at, {rank: values["num_requests_running"] for rank, values in one.ranks.items()})
        for one in scrapes
    ] == [("llm-0", 85, {"0": 4, "8": 6}), ("llm-0", 100, {"0": 5, "8": 7})]


@pytest.mark.fast
async def test_a_group_without_a_fresh_sample_of_a_worker_cannot_be_read(server: Answer) -> None:
    server.body = found(series("vllm:num_requests_running", (85, 4), (100, 5), engine="0"))
    assert [one.error for one in await between(server, GROUP, end=100, now=100)] == [
        "Prometheus has no fresh sample of it"
    ]


@pytest.mark.fast
async def test_one_of_several_pages_of_a_pod_does_not_stand_for_all(server: Answer) -> None:
    server.body = found(series("vllm:num_requests_running", (85, 4), (100, 5), engine="0"))
    replica = replace(REPLICA, unread="each engine has a page")
    assert [one.error for one in await between(server, replica, end=100, now=100)] == ["each engine has a page"]
    assert await between(server, replica, end=100, now=5000) == []


# --- a real Prometheus ------------------------------------------------------------------------------------------------


def as_openmetrics(capture: Path) -> str:
    """The captured scrapes as one backfill file: every sample of the bot's metrics with its time."""
    lines: dict[str, list[str]] = {}
    for entry in map(json.loads, (capture / "scrapes/index.jsonl").read_text().splitlines()):
        if "file" not in entry:
            continue
        for family in text_string_to_metric_families((capture / "scrapes" / entry["file"]).read_text()):
            for sample in family.samples:
                labels = {**sample.labels, "pod": "llm-0", "namespace": "serving", "job": "vllm", "instance": "i"}
                shown = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
                line = f"{sample.name}{{{shown}}} {sample.value} {entry['t']:.3f}"
                lines.setdefault(sample.name, []).append(line)
    families = [f"# TYPE {name} unknown\n" + "\n".join(found) for name, found in lines.items()]
    return "\n".join(families) + "\n# EOF\n"


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(ARCHIVE) as archive:
        unpack(archive, folder)
    return next(folder.rglob("A_thrash_then_lower_max_num_seqs"))


@pytest.fixture(scope="module")
def prometheus(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Prometheus whose storage holds the capture; gives its URL."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "in.om").write_text(as_openmetrics(captured))
    backfill = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "in.om"), str(folder / "data")]
    subprocess.run(backfill, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("")
    port = valkey.free_port()
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _wait_until_ready(process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_until_ready(process: "subprocess.Popen[str]") -> None:
    """Until it says so itself; the suite's own timeout is the deadline."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "ready to receive web requests" in line:
            return
    raise AssertionError(f"Prometheus ended before it was ready: {''.join(lines)}")


@pytest.mark.needs_server("prometheus", "promtool")
@pytest.mark.parametrize("phase", ["healthy", "thrash", "capped"])
@pytest.mark.parametrize(
    "spec",
    [
        MetricSignal(metric="kv_cache_usage_perc"),
        MetricSignal(metric="arrivals", take="increase", across="sum"),
        MetricSignal(metric="usable_tokens", take="last", across="min"),
        RatioSignal(ratio=("num_preemptions", "request_success")),
        RatioSignal(ratio=("request_success_error", "request_success"), across="each"),
        MeanSignal(mean="request_generation_tokens"),
        QuantileSignal(quantile=0.9, histogram="time_to_first_token_seconds"),
        ShareSignal(share_above=0.25, histogram="time_to_first_token_seconds"),
        MeanSignal(mean="request_prefill_time_seconds"),
        MetricSignal(metric="kv_cache_usage_perc", take="slope"),
        MetricSignal(metric="free_blocks", take="min", across="min"),
        MetricSignal(metric="num_preemptions", take="rate", across="each"),
        StallSignal(stall="engine"),
    ],
    ids=lambda spec: spec.model_dump_json(exclude_defaults=True),
)
async def test_a_real_prometheus_leads_to_the_same_verdict_as_our_own_scrapes(
    prometheus: str, captured: Path, phase: str, spec: SampledSpec
) -> None:
    capture = Capture(captured)
    # Milliseconds are what Prometheus keeps.
    window = Window(round(capture.phase(phase).start, 3), round(capture.phase(phase).end, 3))
    async with httpx.AsyncClient() as client:
        history = PrometheusHistory(client, prometheus, replicas=Replicas(REPLICA), engine=vllm_metrics)
        scrapes = await history.between(CONTEXT, metrics_of(spec), window.start, window.end)
    from_prometheus = read_window("it", spec, scrapes, window=window, picked={})
    direct = read_window("it", spec, capture.scrapes, window=window, picked={})
    # Prometheus keeps a scrape's time to the millisecond, so a rate differs in its last digits.
    assert from_prometheus.value == pytest.approx(direct.value, rel=1e-3, abs=1e-9)
    assert (from_prometheus.unknown, from_prometheus.unit) == (direct.unknown, direct.unit)
    assert from_prometheus.is_known


@pytest.mark.needs_server("prometheus", "promtool")
@pytest.mark.parametrize(
    "spec",
    [
        MetricSignal(metric="kv_cache_usage_perc", take="avg"),
        MetricSignal(metric="num_requests_running", take="avg"),
        MetricSignal(metric="arrivals", take="increase", across="sum"),
        RatioSignal(ratio=("num_preemptions", "request_success")),
        MeanSignal(mean="request_generation_tokens"),
        QuantileSignal(quantile=0.95, histogram="e2e_request_latency_seconds"),
    ],
    ids=lambda spec: spec.model_dump_json(exclude_defaults=True),
)
async def test_fewer_samples_of_a_real_prometheus_lead_to_the_same_verdict(
    prometheus: str, captured: Path, spec: SampledSpec
) -> None:
    capture = Capture(captured)
    # With the restart in it.
    window = Window(round(capture.phase("healthy").start, 3), round(capture.phase("capped").end, 3))
    async with httpx.AsyncClient() as client:
        history = PrometheusHistory(client, prometheus, replicas=Replicas(REPLICA), engine=vllm_metrics)
        every = await history.between(CONTEXT, metrics_of(spec), window.start, window.end)
        fewer = await history.between(CONTEXT, metrics_of(spec), window.start, window.end, step=10.0)
    assert len(fewer) <= 2 + window.seconds / 10
    expected = read_window("it", spec, every, window=window, picked={})
    reading = read_window("it", spec, fewer, window=window, picked={})
    assert reading.is_known
    assert reading.value == pytest.approx(expected.value, rel=0.1)


@pytest.mark.fast
async def test_with_a_step_the_newest_sample_is_read_as_it_is(server: Answer) -> None:
    server.body = found(series("vllm:num_requests_running", (9960, 3), (9975, 4)))
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.port}/prom/"
        history = PrometheusHistory(client, url, replicas=Replicas(REPLICA), engine=vllm_metrics, now=lambda: 10000.0)
        scrapes = await history.between(CONTEXT, frozenset({"num_requests_running"}), 1000, 10000, step=300)
    assert server.asked.endswith("[60000ms]")
    assert server.each == {"start": "1240.000", "end": "9940.000", "step": "300"}
    assert [scrape.at for scrape in scrapes] == [9975]


@pytest.mark.fast
async def test_with_a_step_a_time_in_the_past_is_read_up_to_its_very_end(server: Answer) -> None:
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{server.port}/prom/"
        history = PrometheusHistory(client, url, replicas=Replicas(REPLICA), engine=vllm_metrics, now=lambda: 10000.0)
        await history.between(CONTEXT, frozenset({"num_requests_running"}), 1000, 9400, step=300)
    assert (server.asked, server.each) == ("", {"start": "1000.000", "end": "9400.000", "step": "300"})


@pytest.mark.needs_server("prometheus")
async def test_both_histories_know_the_same_of_the_time_before_and_nothing_of_the_time_before_that(
    prometheus: str, captured: Path
) -> None:
    capture = Capture(captured)
    healthy, thrash = capture.phase("healthy"), capture.phase("thrash")
    context = replace(CONTEXT, moments={"incident.starts_at": healthy.end, "results.long_ago.kv": healthy.start - 600})
    usage = MetricSignal(metric="kv_cache_usage_perc", over=f"{int(healthy.seconds) - 1}s")
    specs = {
        "before": usage.model_copy(update={"ending": "incident.starts_at"}),
        "long_ago": usage.model_copy(update={"ending": "results.long_ago.kv"}),
    }
    store = FakeSampleStore()
    await store.add(CONTEXT.target.key, capture.scrapes)

    def now() -> float:
        return thrash.end

    replicas = Replicas(REPLICA)
    own = SampledHistory(replicas=Replicas(), scraper=Nothing(), store=store, now=now)
    async with httpx.AsyncClient() as client:
        theirs = PrometheusHistory(client, prometheus, replicas=replicas, engine=vllm_metrics, now=now)
        histories: list[History] = [own, theirs]
        direct, stored = [
            await ReadSignals(history=one, probes={}, cluster=NoCluster(), now=now).read(specs, context)
            for one in histories
        ]
    assert stored["before"].value == pytest.approx(direct["before"].value)
    assert stored["before"].value == pytest.approx(0.43, abs=0.02)
    assert (direct["long_ago"].is_known, stored["long_ago"].is_known) == (False, False)
    assert "no history reaches there" in direct["long_ago"].unknown
    assert stored["long_ago"].unknown == direct["long_ago"].unknown


@pytest.mark.needs_server("prometheus")
async def test_both_histories_compare_alike_with_the_past_at_similar_load(prometheus: str, captured: Path) -> None:
    capture = Capture(captured)
    healthy, thrash = capture.phase("healthy"), capture.phase("thrash")
    running = MetricSignal(metric="num_requests_running", over="20s", take="avg", across="sum")
    past = f"{int(thrash.end - 20 - healthy.start)}s"
    specs = {
        "alike": ComparedSignal(compared=running, past=past, load_within=0.5),
        "never": ComparedSignal(compared=running, past=past, load_within=0.001),
    }
    store = FakeSampleStore()
    await store.add(CONTEXT.target.key, capture.scrapes)

    def now() -> float:
        return thrash.end

    own = SampledHistory(replicas=Replicas(), scraper=Nothing(), store=store, now=now)
    async with httpx.AsyncClient() as client:
        theirs = PrometheusHistory(client, prometheus, replicas=Replicas(REPLICA), engine=vllm_metrics, now=now)
        histories: list[History] = [own, theirs]
        direct, stored = [
            await ReadSignals(history=one, probes={}, cluster=NoCluster(), now=now).read(specs, CONTEXT)
            for one in histories
        ]
    assert stored["alike"].value == pytest.approx(direct["alike"].value, rel=1e-3)
    assert stored["alike"].detail == direct["alike"].detail
    assert (direct["alike"].source, stored["alike"].source) == ("direct scrapes", "Prometheus")
    assert stored["never"].unknown == direct["never"].unknown
    assert "no such load in the" in stored["never"].unknown
