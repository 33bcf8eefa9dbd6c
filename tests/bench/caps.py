"""`python -m tests.bench.caps`: whether the bot's cap ends a thrash and keeps the throughput, over generated fleets.

Prints how many fleets the proposal suits, beside the formula it replaces, and the fleets where it fails.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bot.domain.playbooks.expressions.functions import cap_from_lengths, cap_from_pool
from tests.bench.fleets import UNCAPPED, Fleet, Readings, fleet, possible_rate, readings, run
from tests.bench.paged_engine import quantile

THRASH = 0.1
"""Preemptions per finished request, as in settings.thrash_ratio."""
RECOVERED, KV_CEILING = 0.01, 0.9
"""What verification accepts, as settings.recovered_ratio and kv_ceiling."""
KV_TARGET, WORTH_RAISING, LOWER_BY = 0.9, 1.04, 0.85
"""As the settings kv_target and worth_raising of kv-cache-oom, and its `lower_cap`."""
CORRECTIONS = 5
"""Each is proposed on a canary, and the recommendation may be entered six times."""
KEPT = 0.9
STEPS = 10
STEP = 1.13

Formula = Callable[[Readings], int]


@dataclass(frozen=True)
class Outcome:
    """Of one cap: the worst replica's `thrash` and `usage` (p90), and the tokens/s of all replicas."""

    thrash: float
    usage: float
    tokens_per_second: float

    @property
    def is_recovered(self) -> bool:
        return self.thrash < RECOVERED and self.usage < KV_CEILING


@dataclass(frozen=True)
class Verdict:
    """One proposal.

    It has `kept` so much of the best throughput without thrash, `kept_verified` of the best that verification accepts,
    and `kept_of_any` of the best.
    """

    fleet: Fleet
    readings: Readings
    cap: int
    best_cap: int
    outcome: Outcome
    kept: float
    kept_verified: float
    kept_of_any: float

    @property
    def is_calm(self) -> bool:
        return self.outcome.thrash < THRASH

    @property
    def is_good(self) -> bool:
        return self.outcome.is_recovered and self.kept_verified >= KEPT


def from_lengths(read: Readings) -> int:
    """As the playbook should: never more than would be left of what runs now at the target usage."""
    spread = read.output_p95 / read.output_mean
    cap = cap_from_lengths(KV_TARGET, read.pool, read.prompt_mean, read.output_mean, spread, read.hit_share)
    return max(1, min(int(cap), int(read.running * KV_TARGET / read.usage)))


def from_pool(read: Readings) -> int:
    """As the playbook did."""
    mean = read.prompt_mean + read.output_mean
    return max(1, int(cap_from_pool(0.75 if read.prompt_p95 + read.output_p95 > 3 * mean else 0.9, read.pool, mean)))


FORMULAS: dict[str, Formula] = {"cap_from_lengths": from_lengths, "cap_from_pool": from_pool}


def corrected(each: Fleet, cap: int, rate: float) -> int:
    """As the playbook does: lowered while verification does not accept it, raised where that is worth a rollout.

    A raise is tried on a canary, so one that verification would not accept is not made, nor one to what failed before.
    """
    failed = math.inf
    for _ in range(CORRECTIONS):
        before = _outcome(each, cap, rate)
        full = cap * KV_TARGET / before.usage
        if not before.is_recovered:
            failed, following = min(failed, cap), max(1, min(int(full), int(LOWER_BY * cap)))
        else:
            following = max(cap + 1, int((cap + full) / 2))
            if full <= cap or following < WORTH_RAISING * cap or following >= failed:
                return cap
            if not _outcome(each, following, rate).is_recovered:
                return cap
        if following == cap:
            return cap
        cap = following
    return cap


def verdicts(each: Fleet, formulas: Iterable[Formula], *, corrects: bool = False) -> list[Verdict]:
    """One for each formula; none where the fleet does not thrash, so that the bot proposes nothing.

    `corrects`: judge the first formula's cap after the playbook's corrections.
    """
    rate = possible_rate(each)
    read = readings(each, run(each, UNCAPPED, each.loads()[0], rate))
    if read.thrash < THRASH:
        return []
    proposals = [formula(read) for formula in formulas]
    if corrects:
        proposals = [corrected(each, proposals[0], rate)]
    tried = {cap: _outcome(each, cap, rate) for cap in {*proposals, *_grid(proposals[0])}}
    calm = {cap: outcome for cap, outcome in tried.items() if outcome.thrash < THRASH}
    accepted = {cap: outcome for cap, outcome in tried.items() if outcome.is_recovered}
    best = max(calm or tried, key=lambda cap: tried[cap].tokens_per_second)
    best_accepted = max(accepted or tried, key=lambda cap: tried[cap].tokens_per_second)
    most = max(outcome.tokens_per_second for outcome in tried.values())
    return [
        Verdict(
            each,
            read,
            cap,
            best,
            tried[cap],
            tried[cap].tokens_per_second / tried[best].tokens_per_second,
            tried[cap].tokens_per_second / tried[best_accepted].tokens_per_second,
            tried[cap].tokens_per_second / most,
        )
        for cap in proposals
    ]


def _grid(around: int) -> set[int]:
    return {max(1, round(around * STEP**step)) for step in range(-STEPS, STEPS + 1)}


def _outcome(each: Fleet, cap: int, rate: float) -> Outcome:
    runs = [run(each, cap, load, rate) for load in each.loads()]
    return Outcome(
        thrash=max(each.thrash for each in runs),
        usage=max(quantile(each.usage, 0.9) for each in runs),
        tokens_per_second=sum(each.tokens_per_second for each in runs),
    )


def table(judged: Sequence[Verdict]) -> str:
    def share(holds: Callable[[Verdict], bool]) -> str:
        return f"{sum(map(holds, judged)) / len(judged):6.1%}"

    def spread(of: Callable[[Verdict], float]) -> str:
        values = sorted(map(of, judged))
        return "  ".join(f"{values[round(part * (len(values) - 1))]:.2f}" for part in (0, 0.05, 0.1, 0.5, 0.9, 0.95, 1))

    return "\n".join(
        (
            f"  no thrash                            {share(lambda each: each.is_calm)}",
            f"  ≥ 90 % of the best cap without       {share(lambda each: each.kept >= KEPT)}",
            f"  verification accepts it              {share(lambda each: each.outcome.is_recovered)}",
            f"  ≥ 90 % of the best that it accepts   {share(lambda each: each.kept_verified >= KEPT)}",
            f"  both                                 {share(lambda each: each.is_good)}",
            f"  ≥ 90 % of the best, thrash or not    {share(lambda each: each.kept_of_any >= KEPT)}",
            f"  p90 usage ≤ 0.9 on the worst replica {share(lambda each: each.outcome.usage <= KV_TARGET)}",
            "  min, p5, p10, p50, p90, p95, max of:",
            f"  preemptions per finished request     {spread(lambda each: each.outcome.thrash)}",
            f"  kept of the best cap without thrash  {spread(lambda each: each.kept)}",
            f"  kept of the best, thrash or not      {spread(lambda each: each.kept_of_any)}",
            f"  p90 usage                            {spread(lambda each: each.outcome.usage)}",
        )
    )


def line(verdict: Verdict) -> str:
    each, shape, outcome = verdict.fleet, verdict.fleet.shape, verdict.outcome
    return (
        f"  seed {each.seed:5}: cap {verdict.cap:4} (best {verdict.best_cap:4}), thrash {outcome.thrash:.2f}, "
        f"usage {outcome.usage:.2f}, kept {verdict.kept:.2f}; pool {each.hardware.pool}, "
        f"prompt {shape.prompt:.0f} ± {shape.prompt_spread:.0%}, "
        f"output {shape.output:.0f} ± {shape.output_spread:.0%}, "
        f"{shape.longer:.0%} are {shape.times:.0f} × as long, prefix {each.prefixes.share:.0%} of "
        f"{each.prefixes.groups} groups, load {each.load:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.caps", description=__doc__)
    parser.add_argument("--fleets", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--worst", type=int, default=8, help="so many fleets of each kind of failure")
    chosen = parser.parse_args(arguments)
    judged = [verdicts(fleet(chosen.first + number), FORMULAS.values()) for number in range(chosen.fleets)]
    judged = [each for each in judged if each]
    after = [
        verdict
        for number in range(chosen.fleets)
        for verdict in verdicts(fleet(chosen.first + number), [from_lengths], corrects=True)
    ]
    print(f"{len(judged)} of {chosen.fleets} fleets thrash without a cap")
    for number, name in enumerate(FORMULAS):
        each = [pair[number] for pair in judged]
        print(f"{name}\n{table(each)}")
        if not number:
            print("  most thrash:", *map(line, sorted(each, key=lambda v: -v.outcome.thrash)[: chosen.worst]), sep="\n")
            print("  least kept:", *map(line, sorted(each, key=lambda v: v.kept)[: chosen.worst]), sep="\n")
    print(f"cap_from_lengths, corrected under load\n{table(after)}")
    print("  least kept:", *map(line, sorted(after, key=lambda v: v.kept)[: chosen.worst]), sep="\n")


if __name__ == "__main__":
    main()
