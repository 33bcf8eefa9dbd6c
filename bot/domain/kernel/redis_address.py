"""The address of the storage: one server, the primary that Redis Sentinel names, or a Redis Cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["server", "sentinel", "cluster"]
SCHEMES = (
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"
)  # fmt: skip
DEFAULT_PORTS: dict[Kind, int] = {"server": 6379, "sentinel": 26379, "cluster": 6379}


@dataclass(frozen=True)
class RedisAddress:
    kind: Kind
    url: str
    """As given. A server's address is used as it is, without a user name where there is a `password_file`."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Host and port of the Sentinels, or of some nodes of the cluster: one that answers is enough."""
    service: str = ""
    """The name under which the Sentinels know the primary."""
    database: int = 0
    username: str = ""
    password: str = ""
    password_file: str = ""
    """The file that holds the password, in place of one in the address; read for each connection."""
    sentinel_username: str = ""
    sentinel_password: str = ""
    is_encrypted: bool = False

    def __str__(self) -> str:
        """What may be shown: no passwords."""
        nodes = ", ".join(f"{host}:{port}" for host, port in self.nodes)
        return f"{self.service} of the Sentinels {nodes}" if self.kind == "sentinel" else f"the cluster of {nodes}"


def redis_address(text: str) -> RedisAddress:
    """Parses `redis://`, `rediss://` and `unix://` URLs as redis-py does, and two more kinds.

    `redis+sentinel://[user:password@]host[:port],host[:port]/service[/database][?sentinel_password=...]` and
    `redis+cluster://[user:password@]host[:port],host[:port]`; both also begin with `rediss+` for TLS. In each of them,
    `?password_file=/path` may be in place of the password.
    Raises `ValueError`, without the address in its text: it may contain a password.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError("is not a Redis address")
    # Split by hand: `urlsplit` refuses several hosts of which one is an IPv6 address.
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    parts = urlsplit("//" + rest.removeprefix(authority))
    login, _, hosts = authority.rpartition("@")
    named, _, secret = login.partition(":")
    query = parse_qs(parts.query)
    username = unquote(named) or query.get("username", [""])[0]
    password = unquote(secret) or query.get("password", [""])[0]
    password_file = query.get("password_file", [""])[-1]
    if password and password_file:
        raise ValueError("has a password and a password_file; keep one")
    if "+" not in scheme:
        _check_server(scheme, text)
        if not password_file:
            return RedisAddress("server", text)
        return RedisAddress("server", _without_login(text), username=username, password_file=password_file)
    kind: Kind = "sentinel" if scheme.endswith("sentinel") else "cluster"
    service, database = _path(kind, parts.path)
    return RedisAddress(
        kind,
        text,
        nodes=tuple(_node(host, DEFAULT_PORTS[kind]) for host in hosts.split(",")),
        service=service,
        database=database,
        username=username,
        password=password,
        password_file=password_file,
        sentinel_username=query.get("sentinel_username", [""])[-1],
        sentinel_password=query.get("sentinel_password", [""])[-1],
        is_encrypted=scheme.startswith("rediss"),
    )


def _check_server(scheme: str, text: str) -> None:
    """Raises `ValueError` where redis-py would fail later, and quote what may be a part of the password."""
    try:
        found = urlsplit(text)
        is_cut = found.port is not None and not found.hostname
    except ValueError:
        is_cut = True
    if is_cut and scheme != "unix":
        raise ValueError(
            "has a host or a port that is not valid; in a password, / is written %2F, ? is %3F, # is %23 and [ is %5B"
        )


def _without_login(text: str) -> str:
    """The address without its user name and `password_file`: redis-py gets both from the reader of the file."""
    anonymous, _, query = re.sub("//[^/?#]*@", "//", text, count=1).partition("?")
    kept = [each for each in query.split("&") if each.partition("=")[0] not in ("username", "password_file")]
    return "?".join(filter(None, (anonymous, "&".join(kept))))


def _path(kind: Kind, path: str) -> tuple[str, int]:
    names = [unquote(part) for part in path.split("/") if part]
    if kind == "cluster":
        if names not in ([], ["0"]):
            raise ValueError("names a database, and a Redis Cluster has only database 0")
        return "", 0
    if not 1 <= len(names) <= 2:
        raise ValueError("does not name the primary that the Sentinels watch")
    if len(names) == 2 and not names[1].isdecimal():
        raise ValueError("has a database that is not a number")
    return names[0], int(names[1]) if len(names) == 2 else 0


def _node(text: str, default_port: int) -> tuple[str, int]:
    try:
        found = urlsplit(f"//{text}")
        port = found.port or default_port
    except ValueError as error:
        raise ValueError("has a host or a port that is not valid") from error
    if not found.hostname:
        raise ValueError("names no host")
    return found.hostname, port
