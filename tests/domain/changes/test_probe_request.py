"""probe_request: only on a replica that serves no users, and the state of its blocks afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.changes.catalogue import RESULTS
from bot.domain.changes.generation import Blocks, Generation, blocks_in, generation_reading
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.signals.scrape import ReplicaLoad, Scrape
from tests.domain.changes.snapshots import NOW, declined, endpoint_slice, load, planned, pod, snapshot
from tests.domain.changes.test_replicas import isolated_world

pytestmark = pytest.mark.fast
ASK = {"replica": "llm-2", "max_tokens": 4096.0}


def test_one_bounded_request_goes_to_the_pod_that_was_shown() -> None:
    plan = planned("probe_request", ASK, isolated_world(load={"llm-2": load()}))
    (call,) = plan.calls
    assert (call.method, call.target.uid, call.stamped) == ("generate", "llm-2-uid", False)
    assert call.body == {"max_tokens": 4096, "within_seconds": 900.0}
    assert (call.undo, bool(call.no_undo), plan.risk) == ((), True, "low")


def spared(**parts: Any) -> ClusterSnapshot:
    canary = pod(7, serving="out-of-rotation")
    canary["metadata"]["labels"] |= {"incident-bot/canary": "inc-42"}
    canary["metadata"]["annotations"] = {"incident-bot/rotation-label": "serving=active"}
    return snapshot(pods=(pod(1), canary), **parts)


def test_the_canary_can_be_named_without_knowing_its_pod() -> None:
    plan = planned("probe_request", ASK | {"replica": "canary"}, spared(endpoint_slices=(endpoint_slice(pod(1)),)))
    assert plan.choices["replica"] == "llm-7"
    assert "canary" not in plan.choices


def test_a_probe_of_the_incidents_canary_names_it() -> None:
    own = spared(endpoint_slices=(endpoint_slice(pod(1)),), canary={"metadata": {"name": "llm-canary-inc-42"}})
    assert planned("probe_request", ASK | {"replica": "canary"}, own).choices["canary"] == "llm-canary-inc-42"
    assert "canary" not in planned("probe_request", ASK | {"replica": "llm-7"}, own).choices


@pytest.mark.parametrize(
    ("arguments", "seen", "outcome", "reason"),
    [
        pytest.param(ASK, snapshot(), "impossible", "a probe would compete with users", id="in-rotation"),
        pytest.param(
            ASK, snapshot(endpoint_slices=()), "impossible", "not taken out of rotation by the bot", id="of-no-service"
        ),
        pytest.param(
            ASK, isolated_world(load={"llm-2": load(running=2)}), "impossible", "2 requests are still on", id="busy"
        ),
        pytest.param(ASK | {"replica": "llm-9"}, snapshot(), "impossible", "does not exist any more", id="gone"),
        pytest.param(ASK | {"replica": "canary"}, snapshot(), "impossible", "there is no canary", id="no-canary"),
        pytest.param({"max_tokens": 64.0}, snapshot(), "impossible", "no replica given", id="none"),
        pytest.param(ASK | {"max_tokens": "many"}, isolated_world(), "impossible", "max_tokens is a number", id="text"),
        pytest.param(
            ASK | {"within_minutes": 600.0}, isolated_world(), "impossible", "from 1 to 60, not 600.0", id="too-long"
        ),
        pytest.param(
            ASK, isolated_world(unreadable={"endpoint_slices": "403"}), "unknown", "endpoint slices: 403", id="unknown"
        ),
    ],
)
def test_a_probe_that_cannot_be_sent_says_why(
    arguments: dict[str, Any], seen: ClusterSnapshot, outcome: str, reason: str
) -> None:
    result = declined("probe_request", arguments, seen)
    assert (result.outcome, reason in result.reason) == (outcome, True), result.reason


@pytest.mark.parametrize(
    ("loads", "grade", "text"),
    [
        pytest.param({"llm-2": load(running=0)}, "fine", "no other request is on llm-2", id="empty"),
        pytest.param({}, "warning", "is not known: nothing is sent unless it is seen empty", id="unread"),
    ],
)
def test_a_replica_that_cannot_be_read_is_not_shown_as_empty(
    loads: dict[str, ReplicaLoad], grade: str, text: str
) -> None:
    (company,) = planned("probe_request", ASK, isolated_world(load=loads)).circumstances
    assert (company.grade, text in company.text) == (grade, True)


IDLE = Blocks(used=0.0, size=16.0, requests=0.0)


def running(used: float | None, requests: float = 1.0) -> Blocks:
    return Blocks(used=used, size=16.0, requests=requests)


@pytest.mark.parametrize(
    ("before", "during", "used", "reclaim"),
    [
        pytest.param(IDLE, [running(100.0), running(256.0)], 256.0, 0.0, id="every-block-is-kept"),
        pytest.param(IDLE, [running(64.0), running(128.0), running(60.0)], 128.0, 0.5, id="the-peak-counts"),
        pytest.param(running(6.0, 0.0), [running(70.0)], 64.0, 0.75, id="what-was-in-use-before-is-not-its-own"),
        pytest.param(IDLE, [running(None), running(256.0)], 256.0, 0.0, id="one-look-missed"),
    ],
)
def test_the_share_reclaimed_is_what_the_tokens_did_not_take(
    before: Blocks, during: list[Blocks], used: float, reclaim: float
) -> None:
    reading = generation_reading(Generation(4096, is_finished=True), before, during, at=NOW)
    assert reading.fields == {
        "finished": True, "error": "", "tokens": 4096.0, "expected_blocks": 256.0, "used_blocks": used,
        "reclaim": reclaim,
    }  # fmt: skip


UNREAD = Blocks(None, None, None)
WHOLE = Generation(4096, is_finished=True)


@pytest.mark.parametrize(
    ("done", "before", "during", "missing", "reason"),
    [
        pytest.param(
            WHOLE, UNREAD, [running(9.0)], {"expected_blocks", "used_blocks", "reclaim"}, "before", id="blind"
        ),
        pytest.param(WHOLE, IDLE, [], {"used_blocks", "reclaim"}, "while it ran", id="never-seen"),
        pytest.param(WHOLE, IDLE, [running(9.0, 2.0)], {"used_blocks", "reclaim"}, "other requests", id="not-alone"),
        pytest.param(
            Generation(None, is_finished=False, error="connection lost"), IDLE, [running(9.0)],
            {"tokens", "expected_blocks", "reclaim"}, "connection lost", id="broken",
        ),
        pytest.param(
            Generation(40, is_finished=False, error="it ended early"), IDLE, [running(9.0)],
            {"reclaim"}, "did not finish", id="short",
        ),
    ],
)  # fmt: skip
def test_what_was_not_seen_is_unknown_and_never_a_share(
    done: Generation, before: Blocks, during: list[Blocks], missing: set[str], reason: str
) -> None:
    reading = generation_reading(done, before, during, at=NOW)
    assert reading.unknown_parts.keys() == missing
    assert reason in "; ".join(reading.unknown_parts.values())
    assert reading.fields.keys() | missing == RESULTS["probe_request"].keys()


def test_blocks_are_counted_over_all_ranks_without_the_null_block() -> None:
    rank = {
        "kv_cache_usage_perc": 0.5, "num_gpu_blocks": 101.0, "block_size": 16.0, "num_requests_running": 1.0,
        "num_requests_waiting": 0.0,
    }  # fmt: skip
    assert blocks_in(Scrape(replica="a", at=NOW, ranks={"0": rank, "1": rank})) == Blocks(100.0, 16.0, 2.0)
    half = {"kv_cache_usage_perc": 0.5}
    assert blocks_in(Scrape(replica="a", at=NOW, ranks={"0": rank, "1": half})) == Blocks(None, 16.0, None)
    assert blocks_in(Scrape(replica="a", at=NOW, error="timeout")) == UNREAD
