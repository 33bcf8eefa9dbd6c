"""The shipped playbooks over recordings of real vLLM servers: their proposals there, and what they leave alone.

Every metric, log line and flag is the recording's; what only a cluster could show is as the playbook's own test table
gives it, or written here.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.adapters.vllm.recording import RecordedHistory, Recording, read_recording
from bot.adapters.yaml_playbooks import load_folder, load_playbook, load_table
from bot.domain.incidents.rehearsed import Rehearsed
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Circumstances, Table, table_of
from bot.domain.signals.signal import Reading
from bot.domain.signals.specs import ProbeSignal
from bot.flow.ports.readings import ProbeReader, ProbeRequest
from bot.flow.rehearse_case import TARGET, AsWritten, alert_at
from bot.flow.rehearse_recording import OverRecording
from bot.flow.rehearse_run import Clock, Rehearsal
from bot.flow.route_alerts import opened
from bot.probes.engine.compression import Evidence, compression_of
from bot.probes.engine.kv_budget import ReadKvBudget
from bot.probes.engine.log_lines import last_words
from tests.domain.changes.snapshots import deployment, load, planned, service, snapshot, template, weighed

PLAYBOOKS = packaged_playbooks()
THRASHES, SHEDS = "A_thrash_then_lower_max_num_seqs", "E_queue_limit_503"
PLAIN, QUANTISED = "B_thrash_8MiB_kv_auto", "C_same_8MiB_kv_fp8"
RECORDED = frozenset({"kv_budget"})
"""Probes that the recording itself answers."""
SHORT = {
    "window": "30s", "length_window": "60s", "baseline_window": "30s", "stall_window": "20s", "gather_within": "60s",
    "canary_for": "5s", "canary_within": "30s", "settle_for": "2s", "calm_for": "10s", "flap_for": "15s",
    "flap_within": "30s", "before_window": "30s",
}  # fmt: skip
"""A recording lasts minutes, so what is waited for is shortened; nothing that is compared with is changed."""


@pytest.fixture(scope="module")
def recorded(captures: Path) -> Callable[[str], Recording]:
    return functools.cache(lambda name: read_recording(captures / name))


@functools.cache
def playbook(name: str, settings: tuple[tuple[str, str], ...] = ()) -> CompiledPlaybook:
    path = PLAYBOOKS / f"{name}.yaml"
    has, wanted = load_playbook(path).settings, {**SHORT, **dict(settings)}
    return load_playbook(path, {setting: value for setting, value in wanted.items() if setting in has})


@functools.cache
def bundle_of(name: str, settings: tuple[tuple[str, str], ...] = ()) -> Bundle:
    return Bundle.of(playbook(name, settings), library())


@functools.cache
def library() -> Mapping[str, CompiledPlaybook]:
    return load_folder(PLAYBOOKS).playbooks


@functools.cache
def cluster_readings(name: str) -> dict[str, Any]:
    """Probes and the canary, as the playbook's own table shares them among all its cases."""
    table, signals = table_of(load_table(PLAYBOOKS / f"{name}.test.yaml").data), playbook(name).playbook.signals
    assert isinstance(table, Table)
    return {
        signal: value
        for signal, value in table.shared.given.items()
        if signal.startswith("canary_") or (isinstance(signals[signal], ProbeSignal) and signal not in RECORDED)
    }


async def play(
    name: str, recording: Recording, opens_at: float, given: Mapping[str, Any], answers: Mapping[str, Any],
    *, probes: Mapping[str, ProbeReader] | None = None, settings: tuple[tuple[str, str], ...] = (),
    changes: Mapping[str, Any] | None = None,
) -> Rehearsed:  # fmt: skip
    """One run of a shipped playbook over a recording that begins at second 0; nobody sits at the terminal."""
    clock, history = Clock(recording.begins + opens_at), RecordedHistory(recording)
    written = Circumstances.model_validate({"given": given, "answers": answers, "changes": changes or {}})
    known = {"kv_budget": ReadKvBudget(history, clock), **(probes or {})}
    met = OverRecording(written, playbook(name, settings), clock, history=history, probes=known, ask=lambda _: None)
    bundle, alert = bundle_of(name, settings), alert_at(clock.now, name)
    run = opened("INC-1", alert.alert, TARGET, bundle)
    return await Rehearsal(run, bundle, met, clock, until=recording.ends).play(alert)


# --- A: a thrash, and a cap that ends it; the queue stays ------------------------------------------------------------

NO_MORE = {"capacity_ask_scale_out": "option:hand_over"}


async def kv_cache_oom(recording: Recording, opens_at: float, changes: Mapping[str, Any] = NO_MORE) -> Rehearsed:
    given, answers = cluster_readings("kv-cache-oom"), {"hand_over": "taken"}
    return await play("kv-cache-oom", recording, opens_at, given, answers, changes=changes)


async def test_over_the_thrash_of_a_it_proposes_about_the_cap_that_ended_it(
    recorded: Callable[[str], Recording],
) -> None:
    """A cap of six was tried in the recording; the lengths leave room for seven."""
    found = await kv_cache_oom(recorded(THRASHES), 110)
    first = found.proposed[0]
    assert (first.state, first.verb) == ("relieve_limit_concurrency", "canary")
    assert first.arguments["edits"][0] == {
        "first_of": ["--max-num-active-seqs", "--max-num-seqs"], "direction": "lower", "value": 7,
    }  # fmt: skip


async def test_over_a_the_thrash_is_gone_and_the_capacity_is_not(recorded: Callable[[str], Recording]) -> None:
    """48 workers against six at once: no preemption any more, and 42 requests wait."""
    found = await kv_cache_oom(recorded(THRASHES), 110)
    assert found.path[-6:] == (
        "verify_capacity",
        "hangs_now",
        "capacity_ask",
        "capacity_ask_scale_out",
        "hand_over",
        "handed_over",
    )
    calm = next(visit for visit in found.visits if visit.state == "verify_memory")
    # The server was restarted with the cap after 169 s and had no full window of its own before 199 s.
    assert 199 < calm.at - recorded(THRASHES).begins < 273


async def test_over_a_the_calm_of_a_quarter_of_the_load_is_not_called_fixed(
    recorded: Callable[[str], Recording],
) -> None:
    """After 273 s only five workers are left; the queue is gone with them, which proves nothing."""
    found = await kv_cache_oom(recorded(THRASHES), 110, {"capacity_ask_scale_out": "option:again"})
    assert "capacity_ask" in found.path
    assert "kept" not in found.path
    assert (found.run.is_open, found.path[-1]) == (True, "verify_calm")


async def test_over_the_healthy_minute_of_a_nothing_is_proposed(recorded: Callable[[str], Recording]) -> None:
    found = await kv_cache_oom(recorded(THRASHES), 35)
    assert found.proposed == ()
    assert (found.path[-1], found.run.ending) == ("self_cleared_end", "self_cleared")


# --- E: it sheds load; its highest usage is 0.99 and it does not thrash ----------------------------------------------


@pytest.mark.parametrize(
    ("opens_at", "proposed"),
    [
        # By then it cannot stay calm any more, and users wait.
        pytest.param(40, ["scale"], id="long enough to ask about capacity"),
        pytest.param(45, [], id="too short to ask"),
        pytest.param(50, [], id="shorter"),
    ],
)
async def test_over_the_shedding_of_e_no_cap_is_proposed(
    recorded: Callable[[str], Recording], opens_at: float, proposed: list[str]
) -> None:
    found = await kv_cache_oom(recorded(SHEDS), opens_at)
    assert [each.verb for each in found.proposed] == proposed
    assert "relieve" not in found.path
    assert "flap" in found.path


# --- B and C: the same bytes with fp8 hold twice the tokens, and the pool is as full as before -----------------------


def one_after_the_other(before: Recording, after: Recording) -> Recording:
    """The server of `before` ran until that of `after` began."""
    shift = after.begins - before.ends - 2.0
    earlier = [
        scrape.model_copy(update={"at": scrape.at + shift, "uid": f"{scrape.uid}-before"}) for scrape in before.scrapes
    ]
    return Recording((*earlier, *after.scrapes), after.events)


def enabled_at(moment: float) -> ProbeReader:
    """When the compression came is known from the rollout; its reading is dated by that moment."""

    async def since(request: ProbeRequest) -> Reading:
        fields = {"by": "the rollout", "hours": (request.at - moment) / 3600, "same_image": True, "changed": "fp8"}
        return Reading(name=request.name, fields=fields, at=moment, source="the test")

    return since


def compression_of_c(captures: Path) -> dict[str, Any]:
    """As the bot reads it from the flags and the start log of C."""
    words = (captures / QUANTISED / "flags.txt").read_text().split()
    flags = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at].startswith("--")}
    log = (captures / QUANTISED / "server.log").read_text()
    found = compression_of(Evidence(flags, {}, "vllm/vllm-openai:v0.32.0", "fp8", log))
    return {"kind": found.kind, "offloads": found.offloads, "evidence": "; ".join(found.seen)}


async def test_over_b_and_c_the_compression_works_as_designed(
    captures: Path, recorded: Callable[[str], Recording]
) -> None:
    before, after = recorded(PLAIN), recorded(QUANTISED)
    given = cluster_readings("kv-cache-oom")
    given = {name: given[name] for name in ("progress", "others", "node", "rotation", "limits", "restarts")}
    given |= {
        "method": compression_of_c(captures),
        "config": {"digest": "c", "image": "v0.32.0", "model": "tiny-llama"},
    }
    given |= {"engine_flags": {"max_num_seqs": 64, "version": "0.32.0"}, "start": {"backend": "CPU_ATTN"}}
    joined = one_after_the_other(before, after)
    found = await play(
        "kv-compression-no-savings", joined, after.begins - joined.begins + 50, given,
        {"ask_plain": "method", "by_design": "close"},
        probes={"compression_since": enabled_at(after.begins - 1.0)},
    )  # fmt: skip
    assert given["method"]["kind"] == "quantised_kv"
    tokens = found.run.findings.results["remeasure"]
    assert tokens["tokens"].value == pytest.approx(2 * float(str(tokens["tokens_before"].value)), rel=0.05)
    assert "by_design" in found.path
    assert found.proposed == ()


# --- Failed starts: each by its line, and each mitigation the right way -----------------------------------------------

BACK, NO_ROOM = "way_back", "no_room"
STARTS = {
    "unknown_flag_on_the_fly": ("bad_flag", BACK),
    "removed_flag_swap_space": ("bad_flag", BACK),
    "removed_flag_disable_log_requests": ("bad_flag", BACK),
    "kv_dtype_bad": ("bad_flag", BACK),
    "max_num_seqs_zero": ("bad_config", BACK),
    "batched_tokens_lt_seqs": ("bad_config", BACK),
    "gpu_mem_util_over_1": ("bad_config", BACK),
    "max_model_len_over_model": ("bad_config", BACK),
    "watermark_1": ("bad_config", BACK),
    "active_seqs_gt_seqs": ("bad_config", BACK),
    "block_size_8": ("model_len", NO_ROOM),
    "blocks_override_too_small": ("model_len", NO_ROOM),
    "kv_too_small_for_max_model_len": ("model_len", NO_ROOM),
    "F_failed_start_max_model_len_4096": ("model_len", NO_ROOM),
    "kv_bytes_negative": ("no_kv_room", NO_ROOM),
    "v0.11.0_omp_bind_unsupported": ("start_failed", "died"),
}
"""Every recorded start that failed: its class, and the state that has its cure."""
CRASHING = {
    "scene": {"crashed": 1, "ready": 0, "only_new": False, "steady_for": 5, "lived": 20, "serving": True},
    "restarts": {"count": 3, "oom": False, "crashed": True, "last_reason": "Error"},
    "rollout": {"happened": False, "matters": False, "by_bot": False, "summary": ""},
    "request_lengths": {"longest": 900, "above": 0, "requests": 90000},
    "hygiene": {"expandable": False, "expandable_fits": True, "gpus_per_replica": 1},
}  # fmt: skip


async def triage(captures: Path, case: str, *, memory: Mapping[str, float] | None = None, **answers: Any) -> Rehearsed:
    """`vllm-oom-triage` on a workload whose engine wrote this log before it ended."""
    words = last_words((captures / "startup_cases" / case / "server.log").read_text())
    reading = {"why": words.why, "line": words.line[:200], "oom": False, "host_oom": False, "died": True, "lines": 1}
    reading |= {"fits_tokens": words.fits_tokens} if words.fits_tokens is not None else {}
    written = Circumstances.model_validate({
        "given": cluster_readings("kv-cache-oom")
        | CRASHING
        | {"last_words": reading}
        | ({"memory": memory} if memory else {}),
        "answers": {"other_which": "hand_over", "unclear": "hand_over", "hand_over": "taken"} | answers,
        "changes": dict.fromkeys(("way_back_rollback", "no_room_larger_pool", "no_room_shorten"), "expired"),
    })  # fmt: skip
    clock, book = Clock(1_800_000_000.0), playbook("vllm-oom-triage")
    bundle, alert = bundle_of(book.name), alert_at(clock.now, case)
    met = AsWritten(written, book, clock)
    return await Rehearsal(opened("INC-1", alert.alert, TARGET, bundle), bundle, met, clock).play(alert)


def test_every_recorded_start_that_failed_is_looked_at(captures: Path) -> None:
    results = (captures / "startup_cases" / "RESULTS.txt").read_text().splitlines()
    failed = {line.partition(" |")[0] for line in results if "exit rc=" in line}
    assert failed <= STARTS.keys()


@pytest.mark.parametrize("case", STARTS)
async def test_a_failed_start_is_named_by_its_line(captures: Path, case: str) -> None:
    why, state = STARTS[case]
    found = await triage(captures, case)
    read = found.run.findings.results["class"]["last_words"]
    assert read.fields is not None
    assert read.fields["why"] == why
    assert found.path[found.path.index("class") + 1] == state


@pytest.mark.parametrize("case", [case for case, (_, state) in STARTS.items() if state == BACK])
async def test_a_flag_that_the_engine_refuses_is_rolled_back(captures: Path, case: str) -> None:
    (proposed,) = (await triage(captures, case)).proposed
    assert (proposed.state, proposed.verb, proposed.arguments) == ("way_back_rollback", "rollback", {"revision": 7})


@pytest.mark.parametrize("case", [case for case, (_, state) in STARTS.items() if state == NO_ROOM])
async def test_where_nothing_is_left_for_the_pool_the_utilisation_goes_up_and_never_down(
    captures: Path, case: str
) -> None:
    roomy = {"least_free": 8, "least_free_day": 8, "total": 80, "compute": 0.9}
    assert cluster_readings("kv-cache-oom")["limits"]["utilization"] == 0.9
    (proposed,) = (await triage(captures, case, memory=roomy)).proposed
    assert proposed.arguments["edits"] == [{"flag": "--gpu-memory-utilization", "direction": "raise", "value": 0.92}]


@pytest.mark.parametrize(
    ("case", "fits"), [("F_failed_start_max_model_len_4096", 4064), ("kv_too_small_for_max_model_len", 992)]
)
async def test_shorter_requests_are_as_long_as_the_engine_itself_says(captures: Path, case: str, fits: int) -> None:
    (proposed,) = (await triage(captures, case)).proposed
    assert proposed.arguments["edits"] == [{"flag": "--max-model-len", "direction": "lower", "value": fits}]


# --- H: why a pod is not simply deleted ------------------------------------------------------------------------------


def streams_of(captures: Path, case: str) -> tuple[int, int]:
    """How many long streams ran at the SIGTERM, and how many of them came to their end."""
    lines = (captures / "H_sigterm" / case / "client.jsonl").read_text().splitlines()
    ends = [event for event in map(json.loads, lines) if event["ev"] == "request_end" and event["max_tokens"] > 100]
    return len(ends), sum(event["err"] is None and "[DONE]" in (event["last"] or "") for event in ends)


@pytest.mark.fast
@pytest.mark.parametrize(
    ("case", "finished", "risk", "says"),
    [
        pytest.param("default_timeout_0", 0, "high", "cuts ~6 streams on 1 pod", id="the default"),
        pytest.param("shutdown_timeout_60", 6, "medium", "native drain", id="60 s to finish"),
    ],
)
def test_what_the_request_says_of_streams_is_what_a_sigterm_did_to_them(
    captures: Path, case: str, finished: int, risk: str, says: str
) -> None:
    assert streams_of(captures, case) == (6, finished)
    flags = (captures / "H_sigterm" / case / "flags.txt").read_text().split()
    pod_template = template(*flags)
    pod_template["spec"]["terminationGracePeriodSeconds"] = 120
    # The Service selects as the ReplicaSet does, which is how most are written: no label takes a pod out of rotation.
    seen = snapshot(workload=deployment(pod_template), services=(service(app="llm"),), load={"llm-2": load(running=6)})
    plan = planned("replace_replica", {"replica": "llm-2"}, seen)
    assert (plan.risk, says in weighed(plan, "drain")) == (risk, True), weighed(plan, "drain")
