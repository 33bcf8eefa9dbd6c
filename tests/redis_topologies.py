"""Real servers in the two arrangements that survive the loss of a machine: Sentinel, and a Redis Cluster."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from bot.sandbox import valkey
from bot.sandbox.leash import leash
from tests.waiting import until

SLOTS = 16_384
STARTS_WITHIN = 20.0
FAILS_OVER_WITHIN = 60.0


@dataclass
class Server:
    port: int
    bus: int
    """The port on which the nodes of a cluster speak with each other."""
    process: subprocess.Popen[bytes]
    log: Path

    def client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True, socket_timeout=5)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=10)


def _spawn(stack: contextlib.ExitStack, folder: Path, *arguments: str, mode: str = "", config: str = "") -> Server:
    port, bus = valkey.free_port(), valkey.free_port()
    own = folder / str(port)
    own.mkdir(parents=True)
    of_cluster = f"cluster-port {bus}\n" if "cluster-enabled" in config else ""
    (own / "server.conf").write_text(f"port {port}\nbind 127.0.0.1\ndir {own}\n{of_cluster}{config}")
    command = [str(valkey.server_program()), str(own / "server.conf"), *arguments, *([mode] if mode else [])]
    server_log = own / "server.log"
    with server_log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bot.sandbox.leash", *command],
            stdin=leash(), stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    server = Server(port, bus, process, server_log)
    stack.callback(server.kill)
    until(lambda: _answers(server), f"the server on port {port} answers", STARTS_WITHIN, seen=server_log.read_text)
    return server


def _answers(server: Server) -> bool:
    assert server.process.poll() is None, f"the server on port {server.port} ended: {server.log.read_text()}"
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", server.port)) == 0 and valkey.is_ready(probe)


@dataclass
class Watched:
    """A primary, a replica, and three Sentinels that watch them."""

    primary: Server
    replica: Server
    sentinels: Sequence[Server]

    @property
    def url(self) -> str:
        nodes = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{nodes}/bots/0"

    def named(self) -> int:
        """The port of the primary, as the first Sentinel knows it."""
        with self.sentinels[0].client() as client:
            found = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "bots")
        return int(found[1])


@contextlib.contextmanager
def watched_by_sentinels(folder: Path) -> Iterator[Watched]:
    with contextlib.ExitStack() as stack:
        primary = _spawn(stack, folder, config="save ''\n")
        replica = _spawn(stack, folder, config=f"save ''\nreplicaof 127.0.0.1 {primary.port}\n")
        watching = (
            f"sentinel monitor bots 127.0.0.1 {primary.port} 2\n"
            "sentinel down-after-milliseconds bots 1000\nsentinel failover-timeout bots 5000\n"
        )
        sentinels = [_spawn(stack, folder, mode="--sentinel", config=watching) for _ in range(3)]
        found = Watched(primary, replica, sentinels)
        until(lambda: _agree(found), "the Sentinels know each other and the replica", STARTS_WITHIN)
        yield found


def _agree(watched: Watched) -> bool:
    for sentinel in watched.sentinels:
        with sentinel.client() as client:
            state = client.sentinel_master("bots")
        if (state["num-other-sentinels"], state["num-slaves"]) != (2, 1):
            return False
    with watched.replica.client() as client:
        return bool(client.info("replication")["master_link_status"] == "up")


@dataclass
class RedisCluster:
    """Three primaries with a third of the slots each, and one replica of each."""

    primaries: Sequence[Server]
    replicas: Sequence[Server]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in self.primaries)

    @property
    def direct_urls(self) -> list[str]:
        return [f"redis://127.0.0.1:{each.port}/0" for each in self.primaries]

    def owner_of(self, key: str) -> Server:
        with self.primaries[0].client() as client:
            slot = int(client.execute_command("CLUSTER", "KEYSLOT", key))
        return self.primaries[slot * len(self.primaries) // SLOTS]

    def stop(self) -> None:
        """The servers end with their context."""


@contextlib.contextmanager
def cluster_of_three(folder: Path, *, replicas: bool) -> Iterator[RedisCluster]:
    config = "save ''\ncluster-enabled yes\ncluster-node-timeout 1000\ncluster-replica-validity-factor 0\n"
    with contextlib.ExitStack() as stack:
        primaries = [_spawn(stack, folder, config=config) for _ in range(3)]
        others = [_spawn(stack, folder, config=config) for _ in range(3 if replicas else 0)]
        for number, primary in enumerate(primaries):
            first, last = (-(-SLOTS * each // 3) for each in (number, number + 1))
            with primary.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last - 1)
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        every = [*primaries, *others]
        with primaries[0].client() as client:
            for server in every[1:]:
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, server.bus)
        until(lambda: all(_knows(each, len(every)) for each in every), "the nodes know each other", STARTS_WITHIN)
        for primary, replica in zip(primaries, others, strict=False):
            with primary.client() as of, replica.client() as client:
                client.execute_command("CLUSTER", "REPLICATE", of.execute_command("CLUSTER", "MYID"))
        until(lambda: all(_is_linked(each) for each in others), "the replicas follow", STARTS_WITHIN)
        yield RedisCluster(primaries, others)


def _knows(server: Server, count: int) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == count)


def _is_linked(server: Server) -> bool:
    with server.client() as client:
        found = client.info("replication")
    return bool(found["role"] == "slave" and found["master_link_status"] == "up")
