"""The embedded server counts as started only once it answers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bot.domain.kernel.errors import BotError
from bot.sandbox import valkey

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        pytest.param(b"+PONG\r\n", True, id="ready"),
        pytest.param(b"-LOADING Valkey is loading the dataset in memory\r\n", False, id="loading"),
        pytest.param(b"", False, id="busy-and-silent"),
    ],
)
def test_a_server_is_ready_when_it_answers_and_a_silent_one_is_asked_again(answer: bytes, wanted: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.01)
        theirs.sendall(answer)
        assert valkey.is_ready(ours) is wanted


def test_a_port_for_a_server_is_below_those_of_outgoing_connections_and_given_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outgoing = tmp_path / "ip_local_port_range"
    outgoing.write_text("50000\t60999\n")
    monkeypatch.setattr(valkey, "OUTGOING_PORTS", outgoing)
    port = valkey.free_port()
    assert 40_000 <= port < 50_000
    outgoing.write_text(f"{port + 1}\t60999\n")
    monkeypatch.setattr(valkey, "PORTS_FOR_SERVERS", 1)
    with pytest.raises(valkey.NoServerError, match=f"no port of 127.0.0.1 from {port} to {port} is free"):
        valkey.free_port()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_server_that_ended_by_itself_is_named_with_its_last_output(tmp_path: Path) -> None:
    server = valkey.start(tmp_path)
    server.refuse_ended()
    (tmp_path / "server.log").write_text("Can't persist AOF: No space left on device\n")
    server.kill()
    with pytest.raises(BotError, match=r"Valkey exited unexpectedly.*\n.*No space left on device"):
        server.refuse_ended()
