"""The scraper over real sockets: an answer becomes values, a failure becomes a reason."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from bot.adapters.pod_pages import AddressPages
from bot.adapters.vllm.scraper import VllmScraper
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.scrape import Scrape
from bot.flow.parse_in_turn import LARGE_CHARACTERS, ParseInTurn
from bot.flow.ports.cluster import Replica
from bot.flow.ports.readings import PodPage
from tests.adapters.vllm.many_servers import Page, many_servers
from tests.kit.loop_turns import ReadyPages, turns_of_the_loop_while


@pytest.fixture
async def pages() -> AsyncIterator[dict[str, str]]:
    """A fake replica: `page` is what it answers (`hangs`: nothing until the test is over), `port` where it listens."""
    served: dict[str, str] = {}
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        text = served["page"]
        if text == "hangs":
            await over.wait()
        if text == "503":
            raise web.HTTPServiceUnavailable
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served["port"] = str(runner.addresses[0][1])
    yield served
    over.set()
    await runner.cleanup()


async def scrape(pages: dict[str, str], *, deadline: float = 2.0) -> tuple[str, dict[str, dict[str, float]]]:
    replica = Replica(name="llm-0", uid="u0", address="127.0.0.1", port=int(pages["port"]), role="canary")
    async with AddressPages() as own:
        (found,) = await VllmScraper(own, lambda: 7.0, deadline=deadline).scrape([replica])
    assert (found.replica, found.uid, found.role, found.at) == ("llm-0", "u0", "canary", 7.0)
    return found.error, found.ranks


async def test_a_page_becomes_values(pages: dict[str, str], captures: Path) -> None:
    pages["page"] = (captures / "A_thrash_then_lower_max_num_seqs/scrapes/0060.prom").read_text()
    error, ranks = await scrape(pages)
    assert error == ""
    assert ranks["0"]["num_preemptions"] == 975


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        pytest.param("hangs", "did not answer within 0.2 s", id="hangs"),
        pytest.param("503", "/metrics answered HTTP 503", id="error"),
        pytest.param("<!doctype html>\n<title>Sign in</title>", "a web page, not metrics", id="html"),
        pytest.param("process_start_time_seconds 1.0\n", "no vLLM metrics", id="log-stats-disabled"),
        pytest.param(
            'sglang:num_running_reqs{model_name="m"} 3.0\n', "SGLang's metrics, and the bot reads", id="sglang"
        ),
        pytest.param("# HELP tgi_queue_size Queue\ntgi_queue_size 0\n", "TGI's metrics, and the bot reads", id="tgi"),
        pytest.param('nv_inference_count{model="m"} 3\n', "Triton's metrics, and the bot reads", id="triton"),
        pytest.param("trtllm_request_success_total 3\n", "TensorRT-LLM's metrics, and the bot reads", id="trtllm"),
        pytest.param("vllm:num_requests_running{ 1.0\n", "not in the text format", id="broken"),
    ],
)
async def test_what_gives_no_values_gives_a_reason(pages: dict[str, str], page: str, reason: str) -> None:
    pages["page"] = page
    error, ranks = await scrape(pages, deadline=0.2)
    assert reason in error
    assert ranks == {}


async def test_a_refused_connection_does_not_hide_the_others(pages: dict[str, str]) -> None:
    pages["page"] = "vllm:num_requests_running 4.0\n"
    gone = Replica(name="gone", uid="u1", address="127.0.0.1", port=1)
    there = Replica(name="there", uid="u2", address="127.0.0.1", port=int(pages["port"]))
    async with AddressPages() as own:
        first, second = await VllmScraper(own, lambda: 7.0).scrape([gone, there])
    assert first.error.startswith("/metrics: ")
    assert second.ranks == {"0": {"num_requests_running": 4.0}}


def running(number: int) -> str:
    return f"vllm:num_requests_running {number}.0\n"


async def test_a_fleet_of_two_hundred_is_read_whole_and_nobody_gets_anothers_numbers() -> None:
    async with many_servers(200, running) as replicas, AddressPages() as own:
        found = await VllmScraper(own, lambda: 7.0, deadline=30.0).scrape(replicas)
    assert [scrape.error for scrape in found if scrape.error] == []
    assert [scrape.replica for scrape in found] == [replica.name for replica in replicas]
    assert [scrape.ranks["0"]["num_requests_running"] for scrape in found] == [float(n) for n in range(200)]


async def test_replicas_that_hang_cost_the_others_nothing() -> None:
    pages: Page = lambda number: None if number < 50 else running(number)  # noqa: E731 - one line says it
    async with many_servers(100, pages) as replicas, AddressPages() as own:
        found = await VllmScraper(own, lambda: 7.0, deadline=3.0).scrape(replicas)
    assert {scrape.error for scrape in found[:50]} == {"/metrics did not answer within 3 s"}
    assert [scrape.ranks["0"]["num_requests_running"] for scrape in found[50:]] == [float(n) for n in range(50, 100)]


async def test_pages_that_arrive_together_are_parsed_one_in_each_turn_of_the_loop() -> None:
    replicas = [Replica(name=f"llm-{number}", uid="u", address="127.0.0.1") for number in range(50)]
    scraper = VllmScraper(ReadyPages(running(4)), lambda: 7.0)
    assert await turns_of_the_loop_while(scraper.scrape(replicas)) >= len(replicas)


async def test_a_large_page_is_parsed_off_the_loop() -> None:
    text = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 4.0\n' for rank in range(20_000))
    parsed_aside: list[str] = []

    async def aside(read: Callable[[str], object], page: str) -> object:
        parsed_aside.append(page)
        return await asyncio.to_thread(read, page)

    scraper = VllmScraper(ReadyPages(text), lambda: 7.0, aside=aside)
    (found,) = await scraper.scrape([Replica(name="llm-0", uid="u", address="127.0.0.1")])
    assert (parsed_aside, len(found.ranks)) == ([text], 20_000)


async def test_small_pages_do_not_wait_for_a_large_one() -> None:
    """One engine with a huge page, of any tenant, must not make the others unreadable."""
    is_small_done = asyncio.Event()

    async def aside(read: Callable[[str], object], page: str) -> object:
        await is_small_done.wait()
        return read(page)

    parsed = ParseInTurn(aside)
    large = asyncio.ensure_future(parsed(len, "x" * LARGE_CHARACTERS))
    async with asyncio.timeout(5):
        await asyncio.sleep(0)
        assert await parsed(len, "small") == len("small")
        is_small_done.set()
        assert await large == LARGE_CHARACTERS


async def test_a_small_page_needs_no_thread() -> None:
    async def aside(read: Callable[[str], object], page: str) -> object:
        raise AssertionError("a thread costs more than this page")

    scraper = VllmScraper(ReadyPages(running(4)), lambda: 7.0, aside=aside)
    (found,) = await scraper.scrape([Replica(name="llm-0", uid="u", address="127.0.0.1")])
    assert found.ranks == {"0": {"num_requests_running": 4.0}}


class GroupPages:
    """The pages of a leader and of its worker, by address."""

    def __init__(self, **pages: str) -> None:
        self._pages = pages

    async def read(self, page: PodPage) -> str:
        if (text := self._pages[page.address]) == "503":
            raise SourceError("/metrics answered HTTP 503")
        return text


def engine(rank: int, running: int) -> str:
    return f'vllm:num_requests_running{{engine="{rank}"}} {running}\n'


async def scrape_of_group(leader: str, worker: str) -> Scrape:
    replica = Replica(name="llm-0", uid="u0", address="leader", workers=(("llm-0-1", "worker"),))
    (found,) = await VllmScraper(GroupPages(leader=leader, worker=worker), lambda: 7.0).scrape([replica])
    return found


async def test_a_replica_has_the_engines_of_all_pods_of_its_group_that_serve() -> None:
    found = await scrape_of_group(engine(0, 3), engine(8, 5))
    assert (found.replica, found.error) == ("llm-0", "")
    assert {rank: values["num_requests_running"] for rank, values in found.ranks.items()} == {"0": 3, "8": 5}


async def test_a_worker_that_cannot_be_read_hides_no_load_behind_its_leader() -> None:
    found = await scrape_of_group(engine(0, 0), "503")
    assert (found.replica, found.error, found.ranks) == ("llm-0", "llm-0-1: /metrics answered HTTP 503", {})


async def test_what_has_more_pages_than_are_read_is_a_failed_scrape() -> None:
    replica = Replica(name="llm-0", uid="u0", address="leader", unread="each engine has a page")
    (found,) = await VllmScraper(GroupPages(leader=engine(0, 3)), lambda: 7.0).scrape([replica])
    assert (found.error, found.ranks) == ("each engine has a page", {})
