"""Data loss is detected, no number repeats, and every firing alert is in an open incident again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis.asyncio as aioredis
from structlog.testing import capture_logs

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.epoch import RedisEpoch
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.stored_form import FORMS, StoredForm
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.epoch import numbers_begin_at
from bot.domain.kernel.errors import MessengerError, SourceError, StorageUnavailableError
from bot.domain.playbooks.library import Library
from bot.flow.keep_epoch import KeepEpoch
from bot.flow.route_alerts import RouteAlerts
from bot.sandbox import valkey
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.restrictions import restrictions
from tests.flow.scenes import drill_playbook
from tests.redis_server import VirtualTime

pytestmark = pytest.mark.fast
TARGET = builders.TARGET.key
AFTER_LOSS = "INC-2701150800001"
"""The first incident after a loss on 2027-01-15 at 08:00, where these tests begin."""


@dataclass
class Outside:
    """Slack and Alertmanager, as far as it asks them; what is None does not answer."""

    newest_card: int | None = 0
    fires: Sequence[Alert] | None = ()
    hears: bool = True
    odd: Exception | None = None
    by_subject: dict[str, str] = field(default_factory=dict)

    async def old_cards(self) -> int | None:
        return self.newest_card

    async def firing(self) -> Sequence[Alert]:
        if self.odd is not None:
            raise self.odd
        if self.fires is None:
            raise SourceError("Alertmanager: ConnectError")
        return self.fires

    async def announce(self, about: str, text: str) -> None:
        if not self.hears:
            raise MessengerError("not_in_channel", lasting=False)
        self.by_subject.setdefault(about, text)

    @property
    def announced(self) -> list[str]:
        return list(self.by_subject.values())


class Process:
    """As much of one bot as opens incidents."""

    def __init__(self, connection: Connection, outside: Outside, time: VirtualTime) -> None:
        epochs = RedisEpoch(connection)
        self.connection = connection
        self.store = RedisStore(connection, owner="one", next_number=epochs.next_number)
        library = Library({"drill": drill_playbook()})
        cluster = MemoryCluster(time.now)
        clusters = {"test": cluster}
        self.route = RouteAlerts(
            self.store, self.store, library, clusters, restrictions=restrictions(), wake=lambda *_: None
        )
        self.epoch = KeepEpoch(
            epochs, time,
            old_cards=outside.old_cards, firing=outside, knows=self.route.knows, accept=self.accept,
            notify_once=outside.announce,
        )  # fmt: skip

    async def accept(self, alerts: Sequence[Alert]) -> None:
        await self.store.accept(alerts, truncated=0)

    async def hears(self, *alerts: Alert) -> Sequence[str]:
        """The open incidents once these alerts have come in."""
        await self.accept(alerts)
        await self.route()
        return await self.store.open_incidents()


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def bot(redis: Connection, outside: Outside, time: VirtualTime) -> Process:
    return Process(redis, outside, time)


@pytest.fixture
def other(client: aioredis.Redis, tag: str, outside: Outside, time: VirtualTime) -> Process:
    return Process(Connection(client, tag=tag, clock=time.prelude), outside, time)


async def empty(bot: Process, time: VirtualTime) -> None:
    await bot.connection.client.flushall()
    await time.start()


async def test_a_first_start_begins_with_number_one_and_says_nothing(bot: Process, outside: Outside) -> None:
    await bot.epoch.once()
    assert await bot.hears(builders.alert()) == ["INC-1"]
    assert (outside.announced, bot.epoch.notices()) == ([], {})


async def test_data_from_before_there_were_epochs_goes_on_counting(bot: Process, outside: Outside) -> None:
    await bot.connection.client.set(bot.connection.key("counter"), 41)
    outside.newest_card = 41
    await bot.epoch.once()
    assert await bot.hears(builders.alert()) == ["INC-42"]
    assert bot.epoch.notices() == {}


async def test_no_incident_opens_before_it_is_known_which_epoch_this_is(bot: Process) -> None:
    with pytest.raises(StorageUnavailableError):
        await bot.hears(builders.alert())
    assert len(await bot.store.intake(10)) == 1


@pytest.mark.parametrize(
    ("newest_card", "says"),
    [pytest.param(41, "Redis lost the bot's data.", id="cards"), pytest.param(None, "Either", id="slack is silent")],
)
async def test_an_empty_start_that_may_be_a_loss_numbers_far_above_and_says_so(
    bot: Process, outside: Outside, newest_card: int | None, says: str
) -> None:
    outside.newest_card = newest_card
    await bot.epoch.once()
    assert await bot.hears(builders.alert()) == [AFTER_LOSS]
    await bot.epoch.recover()
    (announced,) = outside.announced
    assert says in announced
    assert f"The next incident is {AFTER_LOSS}" in announced
    assert list(bot.epoch.notices()) == ["redis"]


async def test_redis_emptied_under_a_running_bot_is_noticed_before_any_number_comes_twice(
    bot: Process, outside: Outside, time: VirtualTime
) -> None:
    await bot.epoch.once()
    assert await bot.hears(builders.alert()) == ["INC-1"]
    await empty(bot, time)
    with pytest.raises(StorageUnavailableError):
        await bot.hears(builders.alert(fingerprint="f2", deployment="other"))
    await bot.epoch.once()
    outside.fires = [builders.alert(), builders.alert(fingerprint="f2", deployment="other")]
    await bot.epoch.recover()
    await bot.route()
    assert list(await bot.store.open_incidents()) == [AFTER_LOSS, "INC-2701150800002"]
    assert len(outside.announced) == 1
    assert "noticed at 2027-01-15 08:00 UTC" in bot.epoch.notices()["redis"]


async def test_it_is_reported_for_a_day_by_every_process(bot: Process, other: Process, time: VirtualTime) -> None:
    await bot.epoch.once()
    await empty(bot, time)
    await bot.epoch.once()
    await other.epoch.once()
    assert list(other.epoch.notices()) == ["redis"]
    await time.advance(24 * 3600)
    assert (bot.epoch.notices(), other.epoch.notices()) == ({}, {})


async def test_two_processes_that_notice_it_begin_one_epoch_and_notify_people_once(
    bot: Process, other: Process, outside: Outside, time: VirtualTime
) -> None:
    for process in (bot, other):
        await process.epoch.once()
    await empty(bot, time)
    for process in (bot, other):
        await process.epoch.once()
        await process.epoch.recover()
    assert len(outside.announced) == 1
    assert [await process.store.next_incident_id() for process in (bot, other)] == [AFTER_LOSS, "INC-2701150800002"]


async def test_a_second_loss_in_the_same_minute_numbers_above_the_first(bot: Process, time: VirtualTime) -> None:
    await bot.epoch.once()
    for _ in range(2):
        await empty(bot, time)
        await bot.epoch.once()
    assert await bot.store.next_incident_id() == "INC-2701150801001"
    assert numbers_begin_at(time.now(), 7) == 2701150800000


async def test_what_fires_is_reopened_though_slack_is_away_and_people_are_notified_later(
    bot: Process, outside: Outside, time: VirtualTime
) -> None:
    await bot.epoch.once()
    await empty(bot, time)
    await bot.epoch.once()
    outside.fires, outside.hears = [builders.alert()], False
    with pytest.raises(MessengerError):
        await bot.epoch.recover()
    await bot.route()
    assert len(await bot.store.open_incidents()) == 1
    outside.hears, outside.fires = True, None
    with pytest.raises(SourceError):
        await bot.epoch.recover()
    assert len(outside.announced) == 1


async def test_what_an_incident_has_received_is_not_opened_again_even_when_it_is_closed(
    bot: Process, outside: Outside, time: VirtualTime
) -> None:
    await bot.epoch.once()
    await bot.hears(builders.alert())
    run = await bot.store.load("INC-1")
    assert run is not None
    alert = builders.alert()
    closed = run.with_(version=1, closed_at=time.now(), ending="fixed", alerts={alert.fingerprint: alert})
    await bot.store.commit(closed, consumed=1, entries=(), effects=())
    await time.advance(7200)
    elsewhere = builders.alert(fingerprint="f3", cluster="east")
    outside.fires = [alert, elsewhere, builders.alert(fingerprint="f4", alertname="DiskFull")]
    await bot.epoch.recover()
    assert await bot.store.intake(10) == []
    outside.fires = [builders.alert(starts_at=builders.START + 7000)]
    await bot.epoch.recover()
    await bot.route()
    assert await bot.store.open_incident(TARGET) == "INC-2"


async def test_an_incident_of_a_newer_version_keeps_no_lost_alert_from_its_incident(
    bot: Process, outside: Outside
) -> None:
    await bot.epoch.once()
    mine, lost = builders.alert(), builders.alert(fingerprint="f9", deployment="other")
    assert await bot.hears(mine) == ["INC-1"]
    run = await bot.store.load("INC-1")
    assert run is not None
    newer = StoredForm(max(FORMS) + 1).text(run)
    await bot.connection.client.set(bot.connection.key("run", "INC-1"), newer)
    outside.fires = [mine, lost]
    await bot.epoch.recover()
    assert [entry.alert.fingerprint for entry in await bot.store.intake(10)] == ["f9"]


async def test_a_redis_that_does_not_let_us_ask_about_its_server_is_no_fault(
    redis_server: valkey.Embedded, client: aioredis.Redis, tag: str, outside: Outside, time: VirtualTime
) -> None:
    await client.acl_setuser("narrow", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info"])
    narrow = aioredis.from_url(redis_server.url, username="narrow", password="any", decode_responses=True)
    async with narrow:
        bot = Process(Connection(narrow, tag=tag, clock=time.prelude), outside, time)
        await bot.epoch.once()
        assert await bot.hears(builders.alert()) == ["INC-1"]
    await client.acl_deluser("narrow")


async def test_a_recovery_that_fails_as_none_should_is_tried_again(bot: Process, outside: Outside) -> None:
    outside.newest_card = 41
    await bot.epoch.once()
    outside.odd = KeyError("labels")
    with capture_logs() as logs:
        task = asyncio.create_task(bot.epoch.forever())
        while not logs:  # noqa: ASYNC110 - nothing else says that it came to an end
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()
    assert [entry["event"] for entry in logs] == ["recovery.failed"]


# --- a failover -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def replica(
    redis_server: valkey.Embedded, client: aioredis.Redis, tmp_path: Path
) -> AsyncIterator[aioredis.Redis]:
    """Another server that has everything until it is cut off."""
    await client.config_set("repl-diskless-sync-delay", 0)
    server = valkey.start(tmp_path / "replica")
    async with aioredis.from_url(server.url, decode_responses=True) as second:
        await second.replicaof("127.0.0.1", redis_server.port)
        yield second
    # Told to end, it would first write down what it got from the other.
    server.kill()


async def caught_up(client: aioredis.Redis) -> None:
    async with asyncio.timeout(60):
        while await client.wait(1, 1000) < 1:
            pass


async def test_after_a_failover_lost_incidents_come_back_with_numbers_that_nobody_has_seen(
    bot: Process, outside: Outside, time: VirtualTime, replica: aioredis.Redis
) -> None:
    await bot.epoch.once()
    assert await bot.hears(builders.alert()) == ["INC-1"]
    await bot.epoch.once()
    await caught_up(bot.connection.client)
    await replica.replicaof("no", "one")
    lost = builders.alert(fingerprint="f2", deployment="other")
    assert list(await bot.hears(lost)) == ["INC-1", "INC-2"]
    bot.connection.client = replica
    outside.fires = [builders.alert(), lost]
    await bot.epoch.once()
    await bot.epoch.recover()
    await bot.route()
    assert list(await bot.store.open_incidents()) == ["INC-1", "INC-102"]
    assert (outside.announced, bot.epoch.notices()) == ([], {})


async def test_a_counter_that_is_lower_than_it_was_goes_on_above_it(bot: Process) -> None:
    await bot.epoch.once()
    for _ in range(3):
        await bot.store.next_incident_id()
    await bot.epoch.once()
    await bot.connection.client.set(bot.connection.key("counter"), 1)
    await bot.epoch.once()
    assert await bot.store.next_incident_id() == "INC-104"


async def test_a_restarted_server_has_lost_nothing_so_numbers_go_on(
    outside: Outside, time: VirtualTime, tag: str, tmp_path: Path
) -> None:
    server = valkey.start(tmp_path)
    async with aioredis.from_url(server.url, decode_responses=True) as before:
        bot = Process(Connection(before, tag=tag), outside, time)
        await bot.epoch.once()
        assert await bot.hears(builders.alert()) == ["INC-1"]
        await bot.epoch.once()
    server.kill()
    server.restart()
    async with aioredis.from_url(server.url, decode_responses=True) as after:
        bot.connection.client = after
        await bot.epoch.once()
        assert await bot.store.next_incident_id() == "INC-2"
    server.stop()
