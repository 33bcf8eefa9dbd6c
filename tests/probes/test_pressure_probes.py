"""Room in the pool, a day's lengths, early signs, and replicas that stand still."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bot.domain.cluster.snapshot import ClusterSnapshot, Obj
from bot.domain.signals.scrape import Histogram, Scrape
from bot.domain.signals.signal import Reading
from tests.kit import probes
from tests.kit.probes import Samples, request
from tests.probes.clusters import OLD, OPENED, at, snapshot

pytestmark = pytest.mark.fast

DAY = 86400.0


async def ask(probe: str, *scrapes: Scrape, seen: ClusterSnapshot | None = None, **parameters: Any) -> Reading:
    asked = request(probe, seen or snapshot(OLD), at=OPENED, parameters=parameters, settings={"cut_share": 0.01})
    return await probes.ask(asked, history=Samples(*scrapes))


def scrapes(
    seconds: float,
    values: Callable[[float], dict[str, float]],
    histograms: Callable[[float], dict[str, Histogram]] = lambda _: {},
    *,
    every: float = 30.0,
    end: float = OPENED,
    replica: str = "llm-0",
) -> list[Scrape]:
    """One replica for so long, by the seconds since its first scrape."""
    steps = [every * step for step in range(int(seconds / every) + 1)]
    return [
        Scrape(replica=replica, at=end - seconds + past, ranks={"0": values(past)}, histograms={"0": histograms(past)})
        for past in steps
    ]


# --- room in the pool -------------------------------------------------------------------------------------------------


def lengths(past: float) -> dict[str, Histogram]:
    return {
        "request_prompt_tokens": Histogram(sum=past * 100, count=past),
        "request_generation_tokens": Histogram(sum=past * 540, count=past),
    }


def pool(_: float) -> dict[str, float]:
    return {"num_gpu_blocks": 129, "block_size": 32, "kv_cache_usage_perc": 0.5}


async def test_a_requests_blocks_show_how_many_more_fit() -> None:
    reading = await ask("kv_room", *scrapes(1800, pool, lengths))
    assert reading.fields["blocks_per_request"] == 20  # 640 tokens in blocks of 32
    assert reading.fields["free_blocks"] == pytest.approx(64)
    assert reading.fields["more_requests"] == 3
    assert reading.fields["concurrency"] == 6
    assert reading.fields["tail_waste"] == pytest.approx(31 / 2 / 640)


async def test_the_free_blocks_of_two_engines_hold_no_request_together() -> None:
    nearly_full = {"num_gpu_blocks": 129.0, "block_size": 32.0, "kv_cache_usage_perc": 1 - 15 / 128}
    names = ("llm-0", "llm-1", "llm-2")
    made = [each for name in names for each in scrapes(1800, lambda _: nearly_full, lengths, replica=name)]
    reading = await ask("kv_room", *made)
    assert reading.fields["free_blocks"] == pytest.approx(45)
    assert reading.fields["more_requests"] == 0


async def test_what_is_free_is_not_known_while_a_replica_does_not_answer() -> None:
    made = list(scrapes(1800, pool, lengths))
    silent = [Scrape(replica="llm-1", at=each.at, error="timeout", in_rotation=True) for each in made]
    reading = await ask("kv_room", *made, *silent)
    assert reading.fields["blocks_per_request"] == 20
    assert {reading.unknown_parts[part] for part in ("free_blocks", "more_requests")} == {"llm-1: timeout"}


async def test_a_token_of_a_model_with_sliding_windows_takes_more_blocks() -> None:
    reading = await ask("kv_room", *scrapes(1800, lambda at: pool(at) | {"kv_cache_size_tokens": 2064}, lengths))
    assert reading.fields["blocks_per_request"] == 40  # 129 blocks hold 2064 tokens, not 4128
    assert (reading.fields["more_requests"], reading.fields["concurrency"]) == (1, 3)


async def test_without_finished_requests_only_the_free_blocks_are_known() -> None:
    reading = await ask("kv_room", *scrapes(1800, pool))
    assert set(reading.fields) == {"free_blocks"}
    assert set(reading.unknown_parts) == {"blocks_per_request", "more_requests", "concurrency", "tail_waste"}


async def test_without_a_pool_on_any_page_there_is_no_arithmetic() -> None:
    assert (await ask("kv_room", *scrapes(1800, lambda _: {}, lengths))).unknown == "no pool is on any page"


# --- a day's lengths --------------------------------------------------------------------------------------------------


def seen_lengths(longer: float) -> Callable[[float], dict[str, Histogram]]:
    """Of each thousand requests so many have prompts between 1000 and 5000 tokens, all others fewer than 1000."""

    def made(past: float) -> dict[str, Histogram]:
        buckets = {"1000.0": past * (1000 - longer), "5000.0": past * 1000, "+Inf": past * 1000}
        answers = {"500.0": past * 1000, "+Inf": past * 1000}
        return {
            "request_prompt_tokens": Histogram(buckets=buckets, count=past * 1000),
            "request_params_max_tokens": Histogram(buckets=answers, count=past * 1000),
        }

    return made


async def test_a_day_of_requests_proves_a_length() -> None:
    reading = await ask("request_lengths", *scrapes(DAY, lambda _: {}, seen_lengths(0), every=1200))
    assert (reading.fields["longest"], reading.fields["above"]) == (1500, 0)


async def test_short_answers_prove_nothing_to_those_who_ask_for_long_ones() -> None:
    def answered(past: float) -> dict[str, Histogram]:
        found = seen_lengths(0)(past)
        asked = Histogram(buckets={"500.0": 0.0, "5000.0": past * 1000, "+Inf": past * 1000}, count=past * 1000)
        return found | {
            "request_generation_tokens": found["request_params_max_tokens"],
            "request_params_max_tokens": asked,
        }

    reading = await ask("request_lengths", *scrapes(DAY, lambda _: {}, answered, every=1200))
    assert reading.fields["longest"] == 6000


async def test_an_engine_that_does_not_say_what_was_asked_for_proves_no_length() -> None:
    def silent(past: float) -> dict[str, Histogram]:
        return {"request_prompt_tokens": seen_lengths(0)(past)["request_prompt_tokens"]}

    reading = await ask("request_lengths", *scrapes(DAY, lambda _: {}, silent, every=1200))
    assert reading.unknown == "no request_params_max_tokens on any page"


async def test_one_longer_prompt_is_enough_to_need_its_length() -> None:
    reading = await ask("request_lengths", *scrapes(DAY, lambda _: {}, seen_lengths(1), every=1200))
    assert reading.fields["longest"] == 5500


async def test_a_share_that_may_be_cut_is_reported_with_the_length() -> None:
    made = scrapes(DAY, lambda _: {}, seen_lengths(4), every=1200)
    reading = await ask("request_lengths", *made, share="settings.cut_share")
    assert reading.fields["longest"] == 1500
    assert reading.fields["above"] == pytest.approx(0.004)


async def test_an_hour_is_no_day() -> None:
    reading = await ask("request_lengths", *scrapes(3600, lambda _: {}, seen_lengths(0), every=60))
    assert reading.unknown == "only 60 min of 24 h of history of llm-0"


async def test_a_replica_that_does_not_answer_now_still_counts_with_its_day() -> None:
    """In a thrash it is the one that got the long requests."""
    short = scrapes(DAY, lambda _: {}, seen_lengths(0), every=1200)
    long = scrapes(DAY, lambda _: {}, seen_lengths(1000), every=1200, replica="llm-1")
    hung = [*long[:-1], Scrape(replica="llm-1", at=long[-1].at, error="/metrics did not answer within 2 s")]
    reading = await ask("request_lengths", *short, *hung)
    assert (reading.fields["longest"], reading.unknown) == (5500, "")


async def test_a_replica_that_never_answered_leaves_a_days_lengths_unknown() -> None:
    short = scrapes(DAY, lambda _: {}, seen_lengths(0), every=1200)
    silent = [scrape.model_copy(update={"replica": "llm-1", "error": "refused", "histograms": {}}) for scrape in short]
    reading = await ask("request_lengths", *short, *silent)
    assert reading.unknown == "llm-1: refused"


async def test_what_is_longer_than_every_bucket_is_not_known() -> None:
    def endless(past: float) -> dict[str, Histogram]:
        found = seen_lengths(0)(past)
        return found | {"request_prompt_tokens": Histogram(buckets={"1000.0": 0.0, "+Inf": past}, count=past)}

    reading = await ask("request_lengths", *scrapes(DAY, lambda _: {}, endless, every=1200))
    assert reading.unknown == "some requests are longer than the largest bucket"


async def test_replicas_with_other_buckets_are_counted_at_the_bounds_of_all() -> None:
    def shorter(past: float) -> dict[str, Histogram]:
        """Of a smaller model length, so without the bound of 5000; some prompts are longer than 1000 all the same."""
        found = seen_lengths(0)(past)
        return found | {
            "request_prompt_tokens": Histogram(
                buckets={"1000.0": past * 900, "2000.0": past * 1000, "+Inf": past * 1000}, count=past * 1000
            )
        }

    longer = scrapes(DAY, lambda _: {}, seen_lengths(1), every=1200)
    reading = await ask("request_lengths", *longer, *scrapes(DAY, lambda _: {}, shorter, every=1200, replica="llm-1"))
    assert (reading.fields["longest"], reading.fields["above"]) == (5500, 0)


# --- early signs ------------------------------------------------------------------------------------------------------


def day_then(now: Callable[[float], dict[str, float]]) -> list[Scrape]:
    """A calm day with 16 at once, then half an hour that differs."""

    def calm(past: float) -> dict[str, float]:
        return {"request_success": past * 2, "num_requests_running": 16, "num_requests_waiting": 0}

    base = 2 * (DAY - 1830)

    def later(past: float) -> dict[str, float]:
        return {"request_success": base + past * 2} | now(past)

    # The day is thin, so that its samples stay few; the last half hour is not.
    return [*scrapes(DAY - 1830, calm, every=30, end=OPENED - 1830), *scrapes(1800, later)]


async def test_early_signs_are_counted_together() -> None:
    def collapsed(past: float) -> dict[str, float]:
        return {"num_requests_running": 6, "num_requests_waiting": past / 20}

    reading = await ask("pressure_symptoms", *day_then(collapsed), seen=restarted(600))
    assert reading.fields == {"count": 3.0, "signs": "fewer run at once, the queue grows, restarts"}
    assert "not readable: latency doubled" in reading.detail


async def test_a_calm_day_has_no_sign() -> None:
    def calm(_: float) -> dict[str, float]:
        return {"num_requests_running": 16, "num_requests_waiting": 0}

    reading = await ask("pressure_symptoms", *day_then(calm), seen=restarted(7200))
    assert reading.fields == {"count": 0.0, "signs": "none"}


async def test_what_is_now_and_what_was_before_are_as_long_as_is_asked() -> None:
    def collapsed(past: float) -> dict[str, float]:
        return {"num_requests_running": 6, "num_requests_waiting": past / 20}

    # Of the last 600 s the half hour that differs is now and before, so nothing has collapsed since.
    reading = await ask("pressure_symptoms", *day_then(collapsed), seen=restarted(7200), over="5m", past="10m")
    assert reading.fields == {"count": 1.0, "signs": "the queue grows"}


async def test_a_time_in_which_nobody_came_yet_does_not_hide_that_fewer_run_at_once() -> None:
    """A fifth of the time before is empty: its mean is a fifth lower, its steady rate is not."""

    def collapsed(past: float) -> dict[str, float]:
        served = {"request_success": max(0.0, past - 66) * 10, "num_requests_waiting": 0.0}
        return served | {"num_requests_running": 0.0 if past < 66 else 26.0 if past < 300 else 8.0}

    pages = scrapes(600, collapsed, every=6)
    reading = await ask("pressure_symptoms", *pages, seen=restarted(7200), over="5m", past="10m")
    assert reading.fields == {"count": 1.0, "signs": "fewer run at once"}


async def test_the_restart_of_a_sidecar_is_no_early_sign() -> None:
    def calm(_: float) -> dict[str, float]:
        return {"num_requests_running": 16, "num_requests_waiting": 0}

    seen = restarted(600)
    sidecar = seen.pods[0]["status"]["containerStatuses"][0]
    seen.pods[0]["spec"] = {"containers": [{"name": "vllm"}, {"name": sidecar["name"]}]}
    reading = await ask("pressure_symptoms", *day_then(calm), seen=seen)
    assert reading.fields == {"count": 0.0, "signs": "none"}


async def test_a_window_of_early_signs_that_is_none_is_reported() -> None:
    assert (await ask("pressure_symptoms", past="soon")).unknown.startswith("'soon' is not a duration")


async def test_without_anything_readable_there_are_not_zero_signs() -> None:
    reading = await ask("pressure_symptoms", seen=snapshot(OLD, unreadable={"pods": "forbidden"}))
    assert reading.unknown == "no sign can be read"


async def test_unreadable_signs_are_listed_in_the_order_of_the_signs() -> None:
    reading = await ask("pressure_symptoms", seen=restarted(600))
    unread = "fewer run at once, latency doubled, the queue grows"
    assert reading.detail == f"restarts; not readable: {unread}"


def restarted(seconds: float) -> ClusterSnapshot:
    status: Obj = {"name": "c", "restartCount": 1, "lastState": {"terminated": {"finishedAt": at(OPENED - seconds)}}}
    owner = {"kind": "ReplicaSet", "uid": "rs-1", "controller": True}
    pod = {
        "metadata": {"name": "llm-0", "uid": "u", "ownerReferences": [owner]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }
    return snapshot(OLD, pods=(pod,))


# --- no progress ------------------------------------------------------------------------------------------------------


def stands_after(seconds: float) -> Callable[[float], dict[str, float]]:
    def values(past: float) -> dict[str, float]:
        done = min(past, seconds)
        return {
            "num_requests_running": 8,
            "num_requests_waiting": 4,
            "request_success": done,
            "generation_tokens": done * 100,
        }

    return values


def assert_polls(reading: Reading, **expected: Any) -> None:
    """Of one replica: with three bad polls it hangs."""
    names = expected["worst"] if expected["bad"] >= 3 else ""
    assert reading.fields == {**expected, "hung": int(bool(names)), "names": names}


@pytest.mark.parametrize(
    ("values", "bad"),
    [
        pytest.param(stands_after(300), 0, id="it-moves"),
        pytest.param(stands_after(180), 4, id="the-last-two-minutes-stand-still"),
        pytest.param(lambda past: stands_after(0)(past) | {"generation_tokens": past}, 0, id="one-long-answer"),
        pytest.param(
            lambda past: stands_after(0)(past) | {"num_requests_running": 0, "num_requests_waiting": 0}, 0, id="idle"
        ),
    ],
)
async def test_a_poll_is_bad_when_requests_are_there_and_nothing_moves(
    values: Callable[[float], dict[str, float]], bad: float
) -> None:
    reading = await ask("no_progress", *scrapes(300, values, every=5))
    assert_polls(reading, bad=bad, worst="llm-0", least=bad)


def long_prompts(past: float) -> dict[str, float]:
    """One request after the other: 90 s for its prompt, whose blocks fill the pool, and 5 s for its answer."""
    done, within = divmod(past, 95)
    return {
        "num_requests_running": 1,
        "num_requests_waiting": 0,
        "request_success": done,
        "generation_tokens": done * 200 + max(0.0, within - 90) * 40,
        "kv_cache_usage_perc": min(1.0, within / 90) / 2,
    }


async def test_an_engine_that_reads_a_long_prompt_does_not_hang() -> None:
    """Its tokens are counted at its end, and three requests finish in five minutes."""
    assert_polls(await ask("no_progress", *scrapes(300, long_prompts, every=5)), bad=0, worst="llm-0", least=0)


async def test_a_full_pool_that_stands_still_hangs() -> None:
    frozen = scrapes(300, lambda past: STANDS(past) | {"kv_cache_usage_perc": 0.97}, every=5)
    assert (await ask("no_progress", *frozen)).fields["bad"] == 10


async def test_polls_are_as_short_as_the_playbook_says() -> None:
    stands = scrapes(40, stands_after(20), every=2)
    assert (await ask("no_progress", *stands, over="40s")).fields["bad"] == 5
    assert (await ask("no_progress", *stands)).unknown == "fewer than half of the polls are there"


@pytest.mark.parametrize(("limit", "names"), [(None, "llm-0, llm-1, llm-2"), (5, "llm-0, llm-2")])
async def test_each_replica_that_hangs_is_counted_and_named(limit: float | None, names: str) -> None:
    since = {"llm-2": 0, "llm-0": 120, "llm-1": 180, "llm-3": 240}
    pages = [scrapes(300, stands_after(each), every=5, replica=name) for name, each in since.items()]
    given: dict[str, Any] = {} if limit is None else {"bad": limit}
    reading = await ask("no_progress", *(one for page in pages for one in page), **given)
    assert (reading.fields["hung"], reading.fields["names"]) == (names.count("llm"), names)


async def test_the_worst_replica_is_named() -> None:
    moves = scrapes(300, stands_after(300), every=5, replica="llm-1")
    reading = await ask("no_progress", *moves, *scrapes(300, stands_after(0), every=5))
    assert reading.fields["least"] == 0, "another one moves, so the fleet does not stand still"
    assert (reading.fields["worst"], reading.by_replica) == ("llm-0", {"llm-0": 10.0, "llm-1": 0.0})


async def test_too_few_polls_say_nothing() -> None:
    found: Sequence[Scrape] = scrapes(60, stands_after(0), every=5)
    assert (await ask("no_progress", *found)).unknown == "fewer than half of the polls are there"


STANDS, MOVES = stands_after(0), stands_after(DAY)


@pytest.mark.parametrize("counter", ["request_success", "generation_tokens"])
async def test_a_page_without_what_moves_does_not_say_that_nothing_moves(counter: str) -> None:
    def without(past: float) -> dict[str, float]:
        return {name: value for name, value in STANDS(past).items() if name != counter}

    reading = await ask("no_progress", *scrapes(300, without, every=5))
    assert reading.unknown == (
        "no num_requests_running, num_requests_waiting, request_success or generation_tokens on its page"
    )


async def test_one_counter_that_moves_is_progress_whatever_the_page_lacks() -> None:
    def tokens(past: float) -> dict[str, float]:
        return {name: value for name, value in MOVES(past).items() if name != "request_success"}

    assert (await ask("no_progress", *scrapes(300, tokens, every=5))).fields["bad"] == 0


def silent(replica: str, *, in_rotation: bool | None = None) -> list[Scrape]:
    return [
        Scrape(replica=replica, at=OPENED - past, in_rotation=in_rotation, error="timeout") for past in range(0, 300, 5)
    ]


async def test_a_fleet_of_which_most_is_not_readable_does_not_stand_still() -> None:
    one = scrapes(300, STANDS, every=5)
    reading = await ask("no_progress", *one, *silent("llm-1"), *silent("llm-2"), *silent("llm-3"))
    assert_polls(reading, bad=10, worst="llm-0")
    assert reading.unknown_parts == {"least": "3 of 4 replicas could not be read"}
    assert (await ask("no_progress", *one, *silent("llm-1"))).fields["least"] == 10, "half of it is enough"


async def test_a_replica_that_is_not_up_does_not_hide_that_all_others_stand_still() -> None:
    starting = [each for name in ("llm-1", "llm-2") for each in silent(name, in_rotation=False)]
    assert (await ask("no_progress", *scrapes(300, STANDS, every=5), *starting)).fields["least"] == 10


async def test_a_young_replica_that_moves_shows_that_not_the_whole_fleet_stands_still() -> None:
    young = scrapes(90, MOVES, every=5, replica="llm-1")
    reading = await ask("no_progress", *scrapes(300, STANDS, every=5), *young)
    assert_polls(reading, bad=10, worst="llm-0", least=0)
    assert reading.by_replica == {"llm-0": 10}


@pytest.mark.parametrize(
    ("second", "bad"),
    [
        pytest.param(STANDS, 10, id="hangs"),
        pytest.param(stands_after(180), 4, id="hangs-since-two-minutes"),
        pytest.param(MOVES, 0, id="moves"),
        pytest.param(lambda _: {"admission_rejections": 1}, 0, id="is-no-rank"),
    ],
)
async def test_a_replica_is_as_bad_as_its_worst_rank(second: Callable[[float], dict[str, float]], bad: float) -> None:
    pages = [
        one.model_copy(update={"ranks": {"0": MOVES(past), "1": second(past)}})
        for past, one in zip(range(0, 301, 5), scrapes(300, MOVES, every=5), strict=True)
    ]
    reading = await ask("no_progress", *pages)
    assert (reading.fields["bad"], reading.by_replica) == (bad, {"llm-0": bad})
    assert reading.fields["least"] == 0, "the first rank moves"


@pytest.mark.parametrize(("values", "bad"), [(STANDS, 10), (MOVES, 0), (stands_after(180), 4)])
async def test_a_sample_every_poll_is_enough(values: Callable[[float], dict[str, float]], bad: float) -> None:
    """A poll begins with the last sample before it, as its own is the only one in it."""
    pages = scrapes(330, lambda past: values(past - 30), every=30, end=OPENED - 12)
    assert_polls(await ask("no_progress", *pages), bad=bad, worst="llm-0", least=bad)


@pytest.mark.parametrize("late", [0, 12, 31, 48])
@pytest.mark.parametrize(("values", "least", "most"), [(STANDS, 9, 10), (MOVES, 0, 0), (stands_after(180), 2, 4)])
async def test_a_sample_a_minute_is_enough(
    values: Callable[[float], dict[str, float]], least: float, most: float, late: float
) -> None:
    """A poll without a sample of its own lies between two: who made no progress between them made none in it."""
    pages = scrapes(420, lambda past: values(past - 120), every=60, end=OPENED - late)
    assert least <= float((await ask("no_progress", *pages)).fields["bad"]) <= most


async def test_samples_rarer_than_that_say_nothing() -> None:
    pages = scrapes(720, STANDS, every=240, end=OPENED - 12)
    assert (await ask("no_progress", *pages)).unknown == "fewer than half of the polls are there"
