"""The persistence settings of Redis are read from the server itself, and weaker ones are reported."""

import pytest

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.durability import Server, durability, judge
from bot.domain.kernel.finding import Grade

KEEPS = {"appendonly": "yes", "appendfsync": "always", "maxmemory": "0", "maxmemory-policy": "noeviction"}


def grades(replicas_wanted: int = 0, *, config: dict[str, str] | None = None, **changes: str | int) -> list[Grade]:
    server = Server(version="9.1", role=str(changes.get("role", "master")), replicas=0, config=KEEPS | (config or {}))
    return [finding.grade for finding in judge(server, replicas_wanted=replicas_wanted)]


@pytest.mark.fast
def test_a_redis_that_keeps_everything_is_fine() -> None:
    assert set(grades()) == {"fine"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("config", "grade"),
    [
        pytest.param({"appendonly": "no"}, "weak", id="snapshots-only"),
        pytest.param({"appendfsync": "everysec"}, "weak", id="a-second-may-be-lost"),
        pytest.param({"maxmemory-policy": "allkeys-lru"}, "weak", id="evicts-but-has-no-limit"),
        pytest.param({"maxmemory-policy": "allkeys-lru", "maxmemory": "1000000"}, "broken", id="evicts-open-incidents"),
        pytest.param({"maxmemory-policy": "volatile-ttl", "maxmemory": "1"}, "weak", id="evicts-closed-incidents"),
    ],
)
def test_a_weaker_setting_is_graded(config: dict[str, str], grade: Grade) -> None:
    assert sorted(set(grades(config=config)) - {"fine"}) == [grade]


@pytest.mark.fast
def test_a_replica_takes_no_writes() -> None:
    assert "broken" in grades(role="slave")


@pytest.mark.fast
def test_replicas_that_must_confirm_must_be_there() -> None:
    assert "broken" in grades(1)


@pytest.mark.fast
def test_settings_that_cannot_be_read_are_not_assumed() -> None:
    (_answers, hidden) = judge(Server(version="7", role="master", replicas=0, config=None), replicas_wanted=0)
    assert hidden.grade == "weak"
    assert "appendfsync always" in hidden.remedy


async def test_a_real_server_reports_its_settings(connection: Connection) -> None:
    findings = await durability(connection, replicas_wanted=0)
    assert findings[0].what.startswith("answers, version ")
    assert len(findings) == 4


async def test_a_server_that_is_away_is_broken() -> None:
    away = Connection.open("redis://127.0.0.1:1/0")
    (finding,) = await durability(away, replicas_wanted=0)
    assert finding.grade == "broken"
    assert "REDIS_URL" in finding.remedy
    await away.close()
