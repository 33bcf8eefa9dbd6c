"""`timeline verify`: detects an altered timeline by its chain, by the run's head, and by Slack."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.adapters.slack.client import web_client, web_session
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.domain.incidents.run import TimelineHead
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.timeline import GENESIS, Chained, Entry, chain
from bot.sandbox import valkey
from tests import builders
from tests.adapters.slack.conftest import CHANNEL, TOKEN
from tests.adapters.slack.runs import post, waiting
from tests.fakes.shown import MemoryPace, MemoryShownStore, MovableClock
from tests.kit.commands import incident_bot
from tests.kit.settings import ENOUGH
from tests.processes import Running, start

INCIDENT = "INC-7"


@pytest.fixture(scope="module")
def slack() -> Iterator[Running]:
    with start(
        "bot.sandbox.slack",
        "--port",
        "0",
        "--bot-url",
        "http://127.0.0.1:1",
        "--signing-secret",
        "s",
        "--rate-limits",
        "off",
        "--die-with-parent",
    ) as running:
        yield running


class World:
    """An incident whose second entry's hash was posted to Slack with a request."""

    def __init__(self, redis: valkey.Embedded, tag: str, slack: Running) -> None:
        self._redis, self._tag = redis.url, tag
        self.environ = ENOUGH | {
            "REDIS_URL": redis.url,
            "INCIDENT_BOT_REDIS_TAG": tag,
            "SLACK_BOT_TOKEN": TOKEN,
            "INCIDENT_BOT_SLACK_CHANNEL": CHANNEL,
            "INCIDENT_BOT_SLACK_BASE_URL": str(slack.ready["api_url"]),
        }

    async def happens(self) -> None:
        now = time.time()
        opened = Entry(kind="opened", at=now, text="opened", data={"incident": INCIDENT})
        first = chain([opened, entry(now, "entered")], head=GENESIS, length=0)
        ts = await self._posts(first[-1].hash)
        anchor = {"channel": CHANNEL, "ts": ts, "head": first[-1].hash}
        second = [Entry(kind="slack", at=now, text="posted", data=anchor), entry(now, "note")]
        self.timeline = [*first, *chain(second, head=first[-1].hash, length=2)]
        await self._stores(self.timeline)

    async def _posts(self, head: str) -> str:
        shown = waiting().with_(incident_id=INCIDENT, posts=(post("request", "request:R3", "R3", head=head),))
        async with web_session() as session:
            client = web_client(TOKEN, session, base_url=self.environ["INCIDENT_BOT_SLACK_BASE_URL"])
            place = Place(channel=CHANNEL, deployment=self._tag)
            store = MemoryShownStore()
            await SlackMessenger(client, store, MemoryPace(), MovableClock(time.time()), place).show(shown)
        return store.slots[INCIDENT]["request:R3"].ts

    async def _stores(self, entries: Sequence[Chained]) -> None:
        connection = Connection.open(self._redis, tag=self._tag)
        store = RedisStore(connection, owner="a test")
        await store.accept([builders.alert()], truncated=0)
        (waits,) = await store.intake(1)
        run = builders.run(incident_id=INCIDENT)
        assert await store.route(waits, run, "opens", bundle=builders.bundle())
        moved = run.with_(version=1, timeline=TimelineHead(hash=entries[-1].hash, length=len(entries)))
        await store.commit(moved, consumed=1, entries=entries, effects=())
        await connection.close()

    async def rewrites(self, entries: Sequence[Chained], *, head: bool) -> None:
        """As somebody with the password of Redis would: the whole timeline, and the run's head with it."""
        connection = Connection.open(self._redis, tag=self._tag)
        key = connection.key("timeline", INCIDENT)
        await connection.ask(connection.client.delete(key))
        await connection.ask(connection.client.rpush(key, *(each.model_dump_json() for each in entries)))
        if head:
            run = await RedisStore(connection, owner="a test").load(INCIDENT)
            assert run is not None
            forged = run.with_(timeline=TimelineHead(hash=entries[-1].hash, length=len(entries)))
            await connection.ask(connection.client.set(connection.key("run", INCIDENT), StoredForm().text(forged)))
        await connection.close()

    def export(self, folder: Path) -> Path:
        file = folder / "inc.json"
        result = incident_bot("export", INCIDENT, "--format", "json", "--out", file, **self.environ)
        assert result.exit_code == 0, result.output
        return file

    def verify(self, of: str | Path = INCIDENT, *options: str | Path, **changed: str) -> Result:
        return incident_bot("timeline", "verify", of, *options, **(self.environ | changed))


def entry(at: float, text: str) -> Entry:
    return Entry(kind="note", at=at, text=text)


def without_the_note(timeline: Sequence[Chained]) -> list[Chained]:
    return list(timeline[:-1])


def another_story(timeline: Sequence[Chained]) -> list[Chained]:
    """A chain that is consistent, beginning with an entry that says something else."""
    entries = [each.entry for each in timeline]
    return list(chain([entries[0].model_copy(update={"text": "all was well"}), *entries[1:]], head=GENESIS, length=0))


@pytest.fixture
def world(redis_server: valkey.Embedded, tag: str, slack: Running) -> World:
    httpx.post(f"{slack.url}/__sandbox__/reset").raise_for_status()
    made = World(redis_server, tag, slack)
    asyncio.run(made.happens())
    return made


def test_an_untouched_timeline_is_verified(world: World, tmp_path: Path) -> None:
    for result in (world.verify(), world.verify(world.export(tmp_path))):
        assert result.exit_code == 0, result.output
        assert "1 posted head confirms entries 1 to 2; the 2 after them have no head in Slack yet" in result.stdout
        assert result.stdout.endswith("verified\n")


@pytest.mark.parametrize("altered", [without_the_note, another_story])
def test_a_timeline_that_the_run_does_not_end_in_does_not_match(
    world: World, altered: Callable[[Sequence[Chained]], list[Chained]]
) -> None:
    asyncio.run(world.rewrites(altered(world.timeline), head=False))
    result = world.verify()
    assert result.exit_code == 1, result.output
    assert "✔ chain" in result.stdout
    assert "✖ store" in result.stdout


def test_a_forged_chain_with_a_forged_head_is_found_by_what_stands_in_slack(world: World) -> None:
    asyncio.run(world.rewrites(another_story(world.timeline), head=True))
    result = world.verify()
    assert result.exit_code == 1, result.output
    assert "✔ store" in result.stdout
    assert "✖ Slack  no entry has the head that is in Slack: request:R3 (" in result.stdout


def test_a_forged_timeline_that_hides_its_channel_is_found_in_the_channel_of_its_target(
    world: World, tmp_path: Path
) -> None:
    hidden = [each.entry for each in world.timeline if each.entry.kind != "slack"]
    forged = [hidden[0].model_copy(update={"text": "all was well"}), *hidden[1:]]
    asyncio.run(world.rewrites(list(chain(forged, head=GENESIS, length=0)), head=True))
    file = tmp_path / "settings.yaml"
    file.write_text(f"overrides: [{{target: serving/*, channel: {CHANNEL}}}]\n")
    result = world.verify(INCIDENT, "--settings", file, INCIDENT_BOT_SLACK_CHANNEL="C0GEN")
    assert result.exit_code == 1, result.output
    assert "✖ Slack  no entry has the head that is in Slack: request:R3 (" in result.stdout


def test_an_altered_file_does_not_match(world: World, tmp_path: Path) -> None:
    file = world.export(tmp_path)
    file.write_text(file.read_text().replace('"text": "opened"', '"text": "closed"'))
    result = world.verify(file)
    assert result.exit_code == 1
    assert "✖ chain  broken at entry 1" in result.stdout


def test_without_slack_or_redis_the_rest_is_checked_and_the_output_says_so(world: World, tmp_path: Path) -> None:
    file = world.export(tmp_path)
    away = world.verify(file, INCIDENT_BOT_SLACK_BASE_URL="http://127.0.0.1:1/", REDIS_URL="redis://127.0.0.1:1/0")
    assert away.exit_code == 2
    assert "✔ chain" in away.stdout
    assert "? store  not compared: Redis did not answer" in away.stdout
    assert "? Slack  not compared: reading the heads" in away.stdout
    unset = incident_bot("timeline", "verify", file)
    assert unset.exit_code == 2
    assert "? Slack  not compared: the settings are not complete" in unset.stdout


def test_with_the_settings_of_redis_alone_all_but_slack_is_checked(world: World, tmp_path: Path) -> None:
    only_redis = {name: world.environ[name] for name in ("REDIS_URL", "INCIDENT_BOT_REDIS_TAG")}
    for of in (INCIDENT, world.export(tmp_path)):
        result = incident_bot("timeline", "verify", of, **only_redis)
        assert result.exit_code == 2
        assert "✔ chain" in result.stdout
        assert "✔ store" in result.stdout
        assert "? Slack  not compared: the settings are not complete" in result.stdout


@pytest.mark.parametrize(
    ("of", "message"),
    [("no-such.json", "no-such.json"), ("INC-9", "INC-9"), ("no-such", "'no-such' is not an incident such as INC-7")],
)
def test_what_is_not_there_could_not_be_checked(world: World, of: str, message: str) -> None:
    result = world.verify(of)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(message)
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("forged", "named"),
    [
        pytest.param({"ending": "fixed"}, "ending", id="how it ended"),
        pytest.param({"decisions": [], "applied": []}, "decisions", id="who decided"),
        pytest.param({"entries": 99}, "entries", id="how many entries"),
    ],
)
def test_a_file_whose_report_says_more_than_its_entries_does_not_match(
    world: World, tmp_path: Path, forged: dict[str, Any], named: str
) -> None:
    file = world.export(tmp_path)
    data = json.loads(file.read_text())
    if "decisions" in forged:
        decided = {"at": 1.0, "who": "U0VICTIM", "what": "approved R9", "granted": True}
        forged = {"decisions": [decided]}
    data["report"] |= forged
    file.write_text(json.dumps(data))
    result = world.verify(file)
    assert result.exit_code == 1
    assert f"its entries do not say so: {named}" in result.stdout


def test_a_file_without_its_last_entry_does_not_match(world: World, tmp_path: Path) -> None:
    file = world.export(tmp_path)
    data = json.loads(file.read_text())
    data["timeline"] = data["timeline"][:-1]
    file.write_text(json.dumps(data))
    assert world.verify(file).exit_code == 1
