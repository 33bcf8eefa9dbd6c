"""Queries a replica's GPUs from inside its container: one of the fixed queries over the exec WebSocket, nothing else.

Off unless `gpu.exec` is set. A GET that upgrades needs `get` on `pods/exec`, and from Kubernetes 1.35 on `create` too.
"""

from __future__ import annotations

import json
from typing import Any

import aiohttp

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.paths import path_of
from bot.domain.kernel.errors import ClusterError, SourceError
from bot.domain.kernel.redaction import redacted
from bot.domain.signals.gpu_query import GpuQuery

STDOUT, STDERR, STATUS = 1, 2, 3
"""Channels of `v4.channel.k8s.io`, the first byte of each frame."""
MAX_BYTES = 64 * 1024
"""Eight GPUs print less than two kB."""


class PodExec:
    """The `GpuShell` port."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def ask(self, namespace: str, pod: str, container: str, query: GpuQuery) -> str:
        program = query.command[0]
        try:
            path = path_of("Pod", namespace, pod, "exec")
            wanted = [("container", container), ("stdout", "true"), ("stderr", "true")]
            wanted += [("command", word) for word in query.command]
            async with self._client.websocket(path, wanted) as socket:
                output, status = await _received(socket, program)
        except aiohttp.WSServerHandshakeError as error:
            raise SourceError(f"{program} may not be run: HTTP {error.status}") from error
        except (aiohttp.ClientError, OSError, NotSentError, ClusterError) as error:
            raise SourceError(f"{program} could not be run: {error or type(error).__name__}") from error
        return _answer(program, output, status)


async def _received(socket: aiohttp.ClientWebSocketResponse, program: str) -> tuple[str, dict[str, Any]]:
    """Everything from both outputs, and the status that ends it."""
    output = bytearray()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == STATUS and data:
            return output.decode("utf-8", errors="replace"), _status(data)
        if channel in (STDOUT, STDERR):
            output += data
        if len(output) > MAX_BYTES:
            raise SourceError(f"{program} printed more than {MAX_BYTES >> 10} kB")
    raise SourceError(f"{program} was cut off before it ended")


def _status(data: bytes) -> dict[str, Any]:
    try:
        status = json.loads(data)
    except ValueError as error:
        raise SourceError("the API server's status of it is not JSON") from error
    return status if isinstance(status, dict) else {}


def _answer(program: str, output: str, status: dict[str, Any]) -> str:
    """A program that ran and failed has given its reason, which the caller judges; one that never ran has not."""
    if status.get("status") == "Success" or (status.get("reason") == "NonZeroExitCode" and output.strip()):
        return output
    reason = redacted(str(status.get("message") or "failed without a reason"))
    raise SourceError(f"{program}: {reason[:200]}")
