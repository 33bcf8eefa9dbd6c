"""The embedded server counts as started only once it answers."""

from __future__ import annotations

import socket

import pytest

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
