"""The actions of the fleet's clients, and their counters."""

from __future__ import annotations

import pytest

from bot.sandbox.fleet.engine import EngineLimits, Sequence
from bot.sandbox.fleet.workload import Load, Workload
from tests.sandbox.fleet.closed_loop import ClosedLoop, Replica

pytestmark = pytest.mark.fast

LIMITS = EngineLimits(max_num_seqs=64)


def test_workers_come_in_over_the_ramp_and_leave_after_their_request() -> None:
    loop = ClosedLoop(LIMITS)
    loop.load(Load(workers=20, ramp_seconds=10))
    loop.run(5.0)
    assert loop.workload.workers == pytest.approx(10, abs=1)
    loop.run(10.0)
    assert loop.workload.workers == 20
    loop.load(Load(workers=0))
    loop.run(30.0)
    assert (loop.workload.workers, loop.replicas[0].engine.in_flight) == (0, 0)
    assert loop.workload.seen.failed == 0


def test_the_workers_of_a_ramp_ask_as_often_as_later_on() -> None:
    loop = ClosedLoop(*[LIMITS] * 4)
    loop.load(Load(workers=60, ramp_seconds=1, pause_seconds=20, output_tokens=(8, 8)))
    asked = []
    for _ in range(6):
        before = loop.workload.seen.sent
        loop.run(10.0)
        asked.append(loop.workload.seen.sent - before)
    assert asked == [pytest.approx(30, abs=12)] * 6


def test_a_burst_comes_once_when_the_ramp_is_over() -> None:
    workload, replicas = Workload(seed=1), [Replica("a", LIMITS), Replica("b", LIMITS)]
    workload.change(Load(burst=40, ramp_seconds=2), now=0)
    workload.tick(1.9, replicas)
    assert workload.seen.sent == 0
    workload.tick(2.0, replicas)
    workload.tick(9.0, replicas)
    assert [replica.engine.in_flight for replica in replicas] == [20, 20]


def test_requests_go_to_the_replica_with_the_fewest_outstanding() -> None:
    loop = ClosedLoop(*[LIMITS] * 4)
    loop.load(Load(workers=40, pause_seconds=0))
    loop.run(20.0)
    in_flight = loop.workload.seen.in_flight
    assert max(in_flight.values()) - min(in_flight.values()) <= 1


def test_open_loop_arrivals_keep_their_rate_whatever_the_replicas_do() -> None:
    loop = ClosedLoop(LIMITS)
    loop.load(Load(arrivals_per_second=8.0))
    loop.run(60.0)
    assert loop.workload.seen.sent == pytest.approx(480, rel=0.2)
    assert loop.replicas[0].engine.in_flight > 100


def test_a_shed_request_is_no_failure_and_is_tried_again() -> None:
    loop = ClosedLoop(EngineLimits(max_num_seqs=64, max_num_queued_reqs=8))
    loop.load(Load(workers=48))
    loop.run(60.0)
    seen = loop.workload.seen
    assert seen.shed > 50
    assert seen.finished > 50
    assert seen.failed == 0


def test_a_replica_that_sheds_does_not_draw_the_requests_of_the_others() -> None:
    loop = ClosedLoop(LIMITS, EngineLimits(max_num_seqs=64, max_num_queued_reqs=2))
    loop.load(Load(workers=30))
    loop.run(30.0)
    sheds, others = loop.replicas[1], loop.replicas[0]
    assert sheds.engine.measured.rejected > 50
    assert loop.workload.seen.shed == 0
    assert others.engine.measured.finished_requests > 2 * sheds.engine.measured.finished_requests


class Late(Replica):
    """A real replica: it sheds a request after it was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(name, LIMITS)
        self.got: list[Sequence] = []

    def send(self, prompt_tokens: int, max_tokens: int, now: float) -> Sequence | str:
        self.got.append(Sequence(prompt_tokens, max_tokens, now))
        return self.got[-1]

    def shed_all(self, workload: Workload, now: float) -> None:
        shed, self.got = self.got, []
        for sequence in shed:
            sequence.finished_reason = "shed"
            workload.ended(sequence, now)


def test_a_request_that_is_shed_late_goes_to_another_replica_once() -> None:
    workload, first, second = Workload(seed=1), Late("a"), Late("b")
    workload.change(Load(workers=1, pause_seconds=0), now=0)
    workload.tick(0.0, [first])
    first.shed_all(workload, 1.0)
    workload.tick(1.0, [first, second])
    assert len(second.got) == 1
    second.shed_all(workload, 2.0)
    workload.tick(2.0, [first, second])
    assert (first.got, second.got) == ([], [])
    assert (workload.seen.sent, workload.seen.shed, workload.seen.failed, workload.workers) == (1, 1, 0, 1)
    assert sum(workload.seen.in_flight.values()) == 0


def test_a_request_that_is_shed_late_by_the_only_replica_is_shed() -> None:
    workload, only = Workload(seed=1), Late("a")
    workload.change(Load(workers=1, pause_seconds=0), now=0)
    workload.tick(0.0, [only])
    only.shed_all(workload, 1.0)
    workload.tick(1.0, [only])
    assert (workload.seen.shed, workload.workers, only.got) == (1, 1, [])


def test_an_empty_rotation_refuses_and_workers_come_back_when_there_is_one_again() -> None:
    workload = Workload(seed=1)
    workload.change(Load(workers=5), now=0)
    workload.tick(0.0, [])
    workload.tick(1.0, [])
    assert (workload.seen.refused, workload.workers) == (5, 5)
    replica = Replica("a", LIMITS)
    workload.tick(5.0, [replica])
    assert replica.engine.in_flight == 5


def test_a_stream_that_ends_before_its_last_token_is_counted_as_cut() -> None:
    workload, replica = Workload(seed=1), Replica("a", LIMITS)
    workload.change(Load(workers=3), now=0)
    workload.tick(0.0, [replica])
    workload.tick(1.0, [replica])
    for sequence in list(replica.engine.waiting):
        sequence.finished_reason = "cut"
        workload.ended(sequence, 2.0)
    assert (workload.seen.cut, workload.seen.failed, workload.seen.finished) == (3, 3, 0)
    assert workload.seen.in_flight["a"] == 0
