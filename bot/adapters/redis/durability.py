"""What this Redis really persists: the bot promises that nothing accepted is lost, and the server's settings decide it.

`judge` is pure; settings that a managed Redis hides are reported as such, never assumed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import RedisError, ResponseError

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.primary import client_of_node, fails_over
from bot.adapters.redis.store import RedisStore
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.finding import Finding, broken, fine, weak

ABOUT = "redis"
ASKED = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")


@dataclass(frozen=True)
class Server:
    """What the server reports about itself; `config` is None if it refuses to report it."""

    version: str
    role: str
    """Empty if it refuses to report it, and its replicas."""
    replicas: int
    config: Mapping[str, str] | None
    refusal: str = ""
    """Why it takes no writes."""


async def durability(connection: Connection, *, replicas_wanted: int) -> tuple[Finding, ...]:
    try:
        about = await _about(connection, "server")
        replication = await _about(connection, "replication")
        config = await _config(connection)
    except StorageUnavailableError as away:
        remedy = "Correct REDIS_URL, or start Redis; until then alerts are answered with 503."
        return (broken(ABOUT, f"{connection.address}: {away}", remedy),)
    server = Server(
        version=str(about.get("valkey_version") or about.get("redis_version") or "of unknown version"),
        role=str(replication.get("role", "")),
        replicas=int(replication.get("connected_slaves", 0)),
        config=config,
        refusal=await _refusal(connection),
    )
    found = judge(server, replicas_wanted=replicas_wanted)
    if not fails_over(connection.client):
        return found
    replicas = [each for name, each in replication.items() if name.startswith("slave") and isinstance(each, dict)]
    nodes = [(str(each["ip"]), int(each["port"])) for each in replicas]
    return (*found, *itertools.chain(*await asyncio.gather(*(_of_replica(connection, *node) for node in nodes))))


async def _of_replica(connection: Connection, host: str, port: int) -> tuple[Finding, ...]:
    """What the server at this address, which may be the next primary, persists less than it should."""
    replica = Connection(client_of_node(connection.client, host, port))
    who = f"the replica {replica.address}, the primary after a failover"
    try:
        kept = of_config(await _config(replica))
    except StorageUnavailableError as away:
        return (weak(ABOUT, f"{who}: {away}", "Run doctor where the replicas can be reached, such as in the cluster."),)
    finally:
        await replica.close()
    weaker = tuple(replace(each, what=f"{who}: {each.what}") for each in kept if each.grade != "fine")
    return weaker or (fine(ABOUT, f"{who}: persists as it should"),)


async def _about(connection: Connection, section: str) -> dict[str, Any]:
    """Empty if it is refused: to a user without the commands called dangerous, or by a proxy that has no INFO."""
    return await _answered(connection, connection.client.info(section)) or {}


async def _refusal(connection: Connection) -> str:
    """Writes as the readiness check does: a full server still answers what only reads."""
    try:
        await RedisStore(connection, owner=ABOUT).keep_time()
    except StorageUnavailableError as refused:
        return str(refused)
    return ""


async def _config(connection: Connection) -> dict[str, str] | None:
    """None if it is refused: managed services rename or forbid CONFIG."""
    found = await _answered(connection, connection.client.config_get(*ASKED))
    return None if found is None else {str(name): str(value) for name, value in found.items()}


async def _answered(connection: Connection, command: Any) -> dict[str, Any] | None:
    """The answer; None if it is refused. Raises `StorageUnavailableError` if there is none."""
    try:
        found: dict[str, Any] = await connection.answer_to(command)
    except ResponseError:
        return None
    except (RedisError, OSError, TimeoutError) as error:
        raise StorageUnavailableError(f"Redis did not answer: {error}") from error
    return found


def judge(server: Server, *, replicas_wanted: int) -> tuple[Finding, ...]:
    findings = [fine(ABOUT, f"answers, version {server.version}")]
    if server.role not in ("master", ""):
        what = f"its role is '{server.role}': it takes no writes"
        findings.append(broken(ABOUT, what, "Point REDIS_URL at the primary."))
    elif server.refusal:
        remedy = (
            "Raise maxmemory, free its disk, let its user write, or correct REDIS_URL; until then alerts are answered "
            "with 503."
        )
        findings.append(broken(ABOUT, f"it takes no writes: {server.refusal}", remedy))
    if not server.role:
        remedy = (
            "Let its user run INFO, or check at its provider: without it, lost writes are noticed only by missing data."
        )
        findings.append(weak(ABOUT, "does not say whether it is a primary, nor how many replicas it has", remedy))
    elif server.replicas < replicas_wanted:
        what = f"{server.replicas} replicas are connected and {replicas_wanted} must confirm: no change can begin"
        findings.append(broken(ABOUT, what, "Connect replicas, or lower redis_replicas."))
    return (*findings, *of_config(server.config))


def of_config(config: Mapping[str, str] | None) -> tuple[Finding, ...]:
    """`config`: None if the server does not report it."""
    if config is None:
        remedy = "Check at its provider: appendonly yes, appendfsync always, maxmemory-policy noeviction."
        return (weak(ABOUT, "does not let its settings be read", remedy),)
    return (_appending(config), _syncing(config), _evicting(config))


def _appending(config: Mapping[str, str]) -> Finding:
    value = config.get("appendonly", "unknown")
    if value == "yes":
        return fine(ABOUT, "appendonly is yes")
    what = f"appendonly is {value}: a restart loses what came after the last snapshot"
    return weak(ABOUT, what, "CONFIG SET appendonly yes, and write it into the server's configuration.")


def _syncing(config: Mapping[str, str]) -> Finding:
    value = config.get("appendfsync", "unknown")
    if value == "always":
        return fine(ABOUT, "appendfsync is always")
    what = f"appendfsync is {value}: a power cut may lose alerts that were answered with 200"
    return weak(ABOUT, what, "CONFIG SET appendfsync always, and write it into the server's configuration.")


def _evicting(config: Mapping[str, str]) -> Finding:
    policy, memory = config.get("maxmemory-policy", "unknown"), config.get("maxmemory", "unknown")
    if policy == "noeviction":
        return fine(ABOUT, "maxmemory-policy is noeviction")
    remedy = "CONFIG SET maxmemory-policy noeviction, and write it into the server's configuration."
    if memory == "0":
        return weak(ABOUT, f"maxmemory-policy is {policy}; no maxmemory is set, so nothing is evicted yet", remedy)
    if policy.startswith("volatile"):
        return weak(ABOUT, f"maxmemory-policy is {policy}: memory pressure deletes closed incidents", remedy)
    return broken(ABOUT, f"maxmemory-policy is {policy}: memory pressure deletes open incidents", remedy)
