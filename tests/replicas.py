"""Replicas of the bot behind one address, as a Kubernetes Service, its probes and the kubelet have them.

A connection to the address goes to one of the ready replicas. A replica that was asked to end gets no new connection.
One that is killed or frozen gets them until its probe fails, and the client sees that.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tests.processes import Running, start

PROBE_EVERY_SECONDS = 1.0
PROBE_SECONDS = 1.0
FAILURES = 2
"""How many failed probes in a row take a replica out of the Service."""
STARTS_WITHIN_SECONDS = 120.0


@dataclass
class Replica:
    number: int
    running: Running
    failures: int = 0
    is_old: bool = False
    """It runs earlier code."""
    ends: bool = False
    """It was asked to end."""

    @property
    def is_ready(self) -> bool:
        return not self.ends and self.failures < FAILURES

    @property
    def port(self) -> int:
        return int(urlsplit(self.running.url).port or 0)

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.running.process.pid, which)

    def probe(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PROBE_SECONDS)
        try:
            connection.request("GET", "/readyz")
            is_well = connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            is_well = False
        finally:
            connection.close()
        self.failures = 0 if is_well else self.failures + 1


@dataclass
class Replicas:
    """`environment`: the bot's settings. `cwd`: the folder with the code of the replicas that are started next."""

    environment: Mapping[str, str]
    port: int = 0
    cwd: Path | None = None
    members: list[Replica] = field(default_factory=list)
    _turn: Iterator[int] = field(default_factory=itertools.count)
    _threads: list[threading.Thread] = field(default_factory=list)
    _listens: threading.Event = field(default_factory=threading.Event)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # --- what the kubelet and people do ------------------------------------------------------------------------------

    def start(self, count: int) -> None:
        with ThreadPoolExecutor(count) as at_once:
            self.members += at_once.map(self._started, range(len(self.members), len(self.members) + count))

    def kill(self, number: int) -> None:
        """SIGKILL, as the out-of-memory killer would; the kubelet starts it again."""
        self.members[number].running.kill()
        self.members[number] = self._started(number)

    def replace(self, number: int) -> None:
        """SIGTERM, and a new process once it has ended."""
        self.members[number].ends = True
        self.members[number].running.stop(timeout_seconds=STARTS_WITHIN_SECONDS)
        self.members[number] = self._started(number)

    def upgrade(self) -> None:
        """Replaces the next replica that runs earlier code by one of the present code."""
        self.cwd = None
        self.replace(next(member.number for member in self.members if member.is_old))

    @contextlib.contextmanager
    def frozen(self, number: int) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end: its leases lapse meanwhile, and it goes on where it stood."""
        self.members[number].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.members[number].signal(signal.SIGCONT)

    def _started(self, number: int) -> Replica:
        settings = {**os.environ, **self.environment, "INCIDENT_BOT_HTTP_PORT": "0"}
        settings["INCIDENT_BOT_HTTP_PUBLIC_URL"] = self.url
        running = start("bot", "serve", env=settings, deadline_seconds=STARTS_WITHIN_SECONDS, cwd=self.cwd)
        return Replica(number, running, is_old=self.cwd is not None)

    # --- what the Service does ---------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._threads = [
            threading.Thread(target=asyncio.run, args=(self._serve(),)),
            threading.Thread(target=self._probe),
        ]
        for thread in self._threads:
            thread.start()
        self._listens.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for member in self.members:
            # A frozen process ends too.
            member.running.kill()
        for thread in self._threads:
            thread.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._listens.set()
        await asyncio.to_thread(self._over.wait)
        server.close()

    def _probe(self) -> None:
        while not self._over.wait(PROBE_EVERY_SECONDS):
            for member in list(self.members):
                member.probe()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [member for member in self.members if member.is_ready]
        try:
            if not ready:
                raise ConnectionRefusedError
            chosen = ready[next(self._turn) % len(ready)]
            upstream = await asyncio.open_connection("127.0.0.1", chosen.port)
        except OSError:
            writer.transport.abort()
            return
        # Cancelled only when the Service ends; asyncio's server would log that.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    except ConnectionError:
        sink.transport.abort()
    finally:
        sink.close()
