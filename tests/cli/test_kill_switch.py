"""The kill switch from the command line: no Slack, the same state, and a name for the timeline."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from typer.testing import Result

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.store import RedisStore
from bot.cli.options import command_line_user
from bot.domain.incidents.event import Commanded
from bot.flow.keep_halts import KeepHalts
from bot.sandbox import valkey
from tests import builders
from tests.kit.commands import incident_bot

T = TypeVar("T")


@pytest.mark.fast
def test_the_command_line_user_is_a_name_or_the_number_of_a_user_without_one() -> None:
    def in_a_container() -> str:
        raise KeyError("getpwuid(): uid not found: 10001")

    assert command_line_user("ana") == "ana (command line)"
    assert command_line_user("", lambda: "ana") == "ana (command line)"
    assert command_line_user("", in_a_container) == f"user {os.getuid()} (command line)"


class Deployment:
    """A Redis with one open incident, and nothing else of a bot."""

    def __init__(self, url: str, tag: str) -> None:
        self._url, self._tag = url, tag
        # No other setting is needed: these commands work where nothing else does.
        self._environ = {"REDIS_URL": url, "INCIDENT_BOT_REDIS_TAG": tag}

    def says(self, *words: str) -> Result:
        return incident_bot(*words, **self._environ)

    def look(self, work: Callable[[RedisStore, RedisClaims], Awaitable[T]]) -> T:
        async def looking() -> T:
            connection = Connection.open(self._url, tag=self._tag)
            try:
                return await work(RedisStore(connection, owner="a test"), RedisClaims(connection))
            finally:
                await connection.close()

        return asyncio.run(looking())

    def commands(self) -> list[tuple[str, str, str]]:
        async def found(store: RedisStore, _claims: RedisClaims) -> list[tuple[str, str, str]]:
            inbox = await store.inbox("INC-1")
            return [(event.command, event.user, event.text) for event in inbox if isinstance(event, Commanded)]

        return self.look(found)

    def halts(self) -> dict[str, str]:
        async def found(_store: RedisStore, claims: RedisClaims) -> dict[str, str]:
            return dict(await claims.halts())

        return self.look(found)

    def serves(self) -> None:
        """One round of the bot that takes up the stored commands."""

        async def round_(store: RedisStore, claims: RedisClaims) -> None:
            await KeepHalts(store, claims, lambda incident: None, lambda: None).once()

        self.look(round_)


@pytest.fixture
def deployment(redis_server: valkey.Embedded, tag: str) -> Deployment:
    found = Deployment(redis_server.url, tag)

    async def opened(store: RedisStore, _claims: RedisClaims) -> None:
        await store.accept([builders.alert()], truncated=0)
        (entry,) = await store.intake(10)
        assert await store.route(entry, builders.run(), "opens", bundle=builders.bundle())

    found.look(opened)
    return found


def test_everything_is_halted_and_resumed_with_a_name_and_a_reason(deployment: Deployment) -> None:
    result = deployment.says("halt", "all", "--by", "ana", "--reason", "the rack burns")
    assert (result.exit_code, result.stderr) == (0, "")
    assert deployment.halts() == {"*": "ana (command line)"}
    deployment.serves()
    assert deployment.says("resume", "ALL", "--by", "ben", "--reason", "it is out").exit_code == 0
    assert deployment.halts() == {}
    deployment.serves()
    assert deployment.commands() == [
        ("halt", "ana (command line)", "the rack burns"),
        ("resume", "ben (command line)", "it is out"),
    ]


def test_one_incident_is_halted_and_resumed_by_the_user_of_this_machine(deployment: Deployment) -> None:
    assert deployment.says("halt", "inc-1").stdout.startswith("INC-1 is halted")
    who = f"{getpass.getuser()} (command line)"
    assert deployment.halts() == {"INC-1": who}
    assert deployment.says("resume", "INC-1").stdout == "INC-1 is resumed.\n"
    assert deployment.halts() == {}
    assert deployment.says("resume", "INC-1").stdout == "INC-1 was not halted.\n"
    assert [(word, by) for word, by, _ in deployment.commands()] == [("halt", who), ("resume", who), ("resume", who)]


def test_one_incident_does_not_go_on_while_everything_is_halted(deployment: Deployment) -> None:
    deployment.says("halt", "all", "--by", "ana")
    result = deployment.says("resume", "INC-1")
    assert result.exit_code == 1
    assert "incident-bot resume all" in result.stderr
    assert deployment.commands() == []


def test_an_incident_that_is_not_known_is_not_halted(deployment: Deployment) -> None:
    result = deployment.says("halt", "INC-77")
    assert (result.exit_code, deployment.halts()) == (1, {})
    assert "INC-77: not in this Redis" in result.stderr


def test_an_incident_that_is_closed_is_not_halted(deployment: Deployment) -> None:
    async def close(store: RedisStore, _claims: RedisClaims) -> None:
        run = builders.run(version=1, closed_at=1.8e9, ending="fixed")
        await store.commit(run, consumed=1, entries=(), effects=())

    deployment.look(close)
    result = deployment.says("halt", "INC-1")
    assert (result.exit_code, deployment.halts()) == (1, {})
    assert "INC-1 is closed (verified without a change by the bot)" in result.stderr


def test_without_redis_nothing_is_reported_as_done(unused_tcp_port: int) -> None:
    result = incident_bot("halt", "all", REDIS_URL=f"redis://127.0.0.1:{unused_tcp_port}/0")
    assert result.exit_code == 1
    assert "Redis did not answer" in result.stderr
    assert "Traceback" not in result.output
