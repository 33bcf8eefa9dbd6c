"""The engine's rules, each on the smallest pool that shows it."""

from __future__ import annotations

import pytest

from bot.sandbox.fleet.compaction import Compaction
from bot.sandbox.fleet.engine import Engine, EngineLimits, Pace
from bot.sandbox.fleet.workload import Load
from tests.sandbox.fleet.closed_loop import ClosedLoop

pytestmark = pytest.mark.fast

STEP = Pace(step_seconds=1.0, per_sequence_seconds=0.0, per_prefill_token_seconds=0.0)


def engine(**limits: object) -> Engine:
    """Blocks of 10 tokens, no shared prefix, one second a step."""
    small = {"blocks": 11, "block_size": 10, "max_num_seqs": 8, "prefix_caching": False, **limits}
    return Engine(EngineLimits(**small), STEP)  # type: ignore[arg-type]  # tests name the fields they change


def test_one_block_of_the_pool_is_never_usable() -> None:
    pool = engine(blocks=11)
    pool.submit(100, 5, now=0)
    pool.advance(1)
    assert (len(pool.running), pool.usage) == (1, 1.0)


def test_a_prompt_that_does_not_fit_waits_and_holds_up_those_behind_it() -> None:
    pool = engine()
    for prompt in (60, 50, 10):
        pool.submit(prompt, 5, now=0)
    pool.advance(1)
    assert (len(pool.running), len(pool.waiting)) == (1, 2)


def test_a_running_sequence_gains_one_token_a_step_and_a_block_when_it_needs_one() -> None:
    pool = engine()
    sequence = pool.submit(10, 30, now=0)
    assert sequence is not None
    pool.advance(1)
    assert (sequence.generated, sequence.blocks) == (1, 1)
    pool.advance(2)
    assert (sequence.generated, sequence.blocks) == (2, 2)


def test_a_finished_sequence_frees_its_blocks_and_reports_its_length() -> None:
    pool = engine()
    pool.submit(10, 5, now=0)
    (finished,) = pool.advance(10)
    assert (finished.finished_reason, finished.generated) == ("length", 5)
    assert (pool.used_blocks, pool.measured.finished["length"]) == (0, 1)


def test_the_last_admitted_sequence_is_preempted_and_waits_first_in_line() -> None:
    pool = engine(blocks=5)
    first, second, third = (pool.submit(20, 60, now=0) for _ in range(3))
    pool.advance(2)
    assert pool.running == [first]
    assert list(pool.waiting) == [second, third]
    assert second is not None
    assert (second.blocks, second.preemptions) == (0, 1)


def test_a_preemption_is_counted_only_when_the_victim_has_produced_a_token_again() -> None:
    pool = engine(blocks=5)
    pool.submit(20, 15, now=0)
    pool.submit(20, 15, now=0)
    pool.advance(4)
    assert (len(pool.running), pool.measured.preemptions) == (1, 0)
    pool.advance(17)
    assert pool.measured.preemptions == 1


def test_a_sequence_is_cut_back_to_its_budget_and_its_blocks_are_free_again() -> None:
    pool = engine(compaction=Compaction(budget_tokens=20, every_tokens=10))
    sequence = pool.submit(10, 70, now=0)
    assert sequence is not None
    most = 0
    for second in range(1, 70):
        pool.advance(second)
        most = max(most, pool.used_blocks)
    assert (sequence.tokens, sequence.cached_tokens, most) == (79, 29, 3)
    assert {(one.tokens_before, one.tokens_after, one.blocks_freed) for one in pool.take_passes()} == {(30, 20, 1)}
    assert pool.take_passes() == []


def test_a_preempted_sequence_computes_what_was_evicted_again() -> None:
    pool = engine(blocks=7, compaction=Compaction(budget_tokens=20, every_tokens=10))
    pool.submit(10, 30, now=0)
    victim = pool.submit(10, 40, now=0)
    assert victim is not None
    pool.advance(25)
    pool.resize(4)
    assert (victim.evicted, victim.blocks, list(pool.waiting)) == (0, 0, [victim])


def test_with_offloading_a_preempted_sequence_loads_its_whole_blocks_and_is_preempted_as_before() -> None:
    per_token = Pace(step_seconds=1.0, per_sequence_seconds=0.0, per_prefill_token_seconds=1.0)

    def ends(*, offloads: bool) -> tuple[float, int]:
        pool = engine(blocks=5, offloads=offloads)
        pool.pace = per_token
        pool.submit(20, 15, now=0)
        victim = pool.submit(20, 15, now=0)
        assert victim is not None
        while victim.finished_reason is None:
            pool.advance(pool.clock + 1)
        return pool.clock, victim.preemptions

    (computed, often), (loaded, as_often) = ends(offloads=False), ends(offloads=True)
    assert (computed - loaded, as_often) == (20, often)


def test_a_preempted_sequence_keeps_its_tokens_and_recomputes_them_on_resume() -> None:
    pool = engine(blocks=5)
    pool.submit(20, 15, now=0)
    victim = pool.submit(20, 15, now=0)
    assert victim is not None
    pool.advance(4)
    kept = victim.generated
    finished = pool.advance(60)
    assert kept > 0
    assert victim in finished
    assert pool.measured.prompt_tokens == 40  # V1 counts a prompt once, however often it is recomputed


def test_the_cap_on_running_sequences_is_the_smaller_of_the_two_flags() -> None:
    pool = engine(max_num_seqs=4, max_num_active_seqs=2)
    for _ in range(5):
        pool.submit(5, 3, now=0)
    pool.advance(1)
    assert (len(pool.running), len(pool.waiting)) == (2, 3)


def test_the_watermark_keeps_blocks_free_at_admission_but_not_from_a_lone_sequence() -> None:
    pool = engine(watermark=0.5)
    for prompt in (40, 30):
        pool.submit(prompt, 5, now=0)
    pool.advance(1)
    assert (len(pool.running), len(pool.waiting)) == (1, 1)
    alone = engine(watermark=0.5)
    alone.submit(95, 5, now=0)
    alone.advance(1)
    assert len(alone.running) == 1


def test_a_full_queue_sheds_and_counts_the_request() -> None:
    pool = engine(max_num_queued_reqs=2)
    answers = [pool.submit(5, 3, now=0) for _ in range(3)]
    assert answers[2] is None
    assert (pool.in_flight, pool.measured.rejected) == (2, 1)


def test_outputs_stop_at_the_longest_model_length() -> None:
    pool = engine(max_model_len=30)
    sequence = pool.submit(25, 100, now=0)
    assert sequence is not None
    assert sequence.max_tokens == 5


def test_shared_prefix_blocks_are_held_once_and_hit_after_the_first_prompt() -> None:
    pool = Engine(EngineLimits(blocks=128, block_size=32), STEP)
    pool.submit(96, 50, now=0)
    pool.advance(1)
    pool.submit(96, 50, now=1)
    pool.advance(2)
    shared, first_of_98_tokens, second_of_96_tokens = 1, 3, 2
    assert pool.used_blocks == shared + first_of_98_tokens + second_of_96_tokens
    assert (pool.measured.prompt_tokens, pool.measured.cached_prompt_tokens) == (192, 32)


def test_an_aborted_sequence_leaves_at_once_and_counts_as_abort() -> None:
    pool = engine()
    sequence = pool.submit(20, 50, now=0)
    assert sequence is not None
    pool.advance(1)
    pool.abort(sequence)
    assert (pool.used_blocks, pool.in_flight, pool.measured.finished["abort"]) == (0, 0, 1)


def test_a_smaller_pool_preempts_what_no_longer_fits() -> None:
    pool = engine()
    for _ in range(4):
        pool.submit(20, 50, now=0)
    pool.advance(1)
    pool.resize(6)
    assert (len(pool.running), len(pool.waiting)) == (2, 2)
    assert pool.usage <= 1.0


def test_a_slow_engine_makes_fewer_tokens_in_the_same_time() -> None:
    usual, slow = (Engine(EngineLimits(), Pace(slowdown=factor)) for factor in (1.0, 4.0))
    for pool in (usual, slow):
        pool.submit(96, 1000, now=0)
        pool.advance(1.0)
    ratio = usual.measured.generation_tokens / slow.measured.generation_tokens
    assert ratio == pytest.approx(4, rel=0.02)


def test_an_idle_engine_shows_an_empty_pool() -> None:
    pool = engine()
    pool.advance(5)
    assert (pool.usage, pool.clock) == (0.0, 5)


def test_each_finished_request_is_in_every_request_histogram_once() -> None:
    loop = ClosedLoop(EngineLimits(max_num_seqs=64))
    loop.load(Load(workers=48))
    loop.run(60.0)
    measured = loop.replicas[0].engine.measured
    per_request = {
        name: histogram.count
        for name, histogram in measured.histograms.items()
        if name.startswith("vllm:request_") or name == "vllm:e2e_request_latency_seconds"
    }
    assert set(per_request.values()) == {measured.finished_requests}


def test_every_generated_token_is_a_first_token_or_has_a_gap_before_it() -> None:
    loop = ClosedLoop(EngineLimits(max_num_seqs=64))
    loop.load(Load(workers=48))
    loop.run(60.0)
    measured = loop.replicas[0].engine.measured
    first = measured.histograms["vllm:time_to_first_token_seconds"].count
    gaps = measured.histograms["vllm:inter_token_latency_seconds"].count
    steps = measured.histograms["vllm:iteration_tokens_total"]
    assert first + gaps == measured.generation_tokens
    assert steps.sum == measured.generation_tokens + measured.prompt_tokens


def test_striding_gives_the_same_state_as_single_steps() -> None:
    strided, stepped = engine(blocks=30), engine(blocks=30)
    for pool in (strided, stepped):
        for prompt in (25, 13, 38, 7):
            pool.submit(prompt, 40, now=0)
    strided.advance(30)
    for second in range(1, 31):
        stepped.advance(second)
    assert [s.generated for s in strided.running] == [s.generated for s in stepped.running]
    assert strided.used_blocks == stepped.used_blocks
    assert strided.measured.generation_tokens == stepped.measured.generation_tokens


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        loop = ClosedLoop(EngineLimits(max_num_seqs=64), seed=3)
        loop.load(Load(workers=30))
        histories.append(loop.run(40.0))
    assert histories[0] == histories[1]
