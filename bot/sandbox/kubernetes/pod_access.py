"""Requests that go through the API server into a pod: pages by `pods/proxy`, commands by the `pods/exec` WebSocket.

The kubelet answers commands, and the sandbox's kubelets support only one, which reads GPUs.
"""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.websockets import WebSocket

from bot.sandbox.kubernetes import errors, logs
from bot.sandbox.kubernetes.access import Access
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.requests import Target, parse_target
from bot.sandbox.kubernetes.resources import NODES, PODS
from bot.sandbox.kubernetes.store import Store, name_of, namespace_of
from bot.sandbox.plain_http import async_http

Obj = dict[str, Any]

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, STATUS = 1, 2, 3
TIMEOUT_SECONDS = 10.0


# --- pods/proxy -------------------------------------------------------------------------------------------------------


async def page(store: Store, target: Target, query: QueryParams) -> Response:
    """The pod's answer, unchanged; `name:port` as the object's name, port 80 without one."""
    name, _, port = target.name.partition(":")
    pod = store.get(PODS, target.namespace, name)
    address = pod["status"].get("podIP")
    if not address:
        raise errors.bad_request("address not allowed")
    import httpx  # only these two need it

    url = f"http://{address}:{port or 80}/{target.rest}"
    try:
        async with async_http(timeout=TIMEOUT_SECONDS) as client:
            answer = await client.get(url, params=dict(query))
    except httpx.HTTPError as error:
        raise ApiError(503, "ServiceUnavailable", f"error trying to reach service: {error}") from None
    kind = answer.headers.get("content-type", "text/plain")
    return Response(answer.content, answer.status_code, {"content-type": kind})


# --- pods/exec --------------------------------------------------------------------------------------------------------


class Server(Protocol):
    """The parts of the API server that this needs."""

    @property
    def store(self) -> Store: ...

    @property
    def access(self) -> Access: ...


class ExecEndpoint:
    """The ASGI application of every WebSocket: exec, or a refusal before the upgrade."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        try:
            url = self._checked(socket)
            protocol = next((one for one in PROTOCOLS if one in socket.scope["subprotocols"]), None)
            if protocol is None:
                raise errors.bad_request("unable to upgrade: no protocol in common")
            command = socket.query_params.getlist("command")
        except ApiError as error:
            text = json.dumps(error.body)
            await socket.send_denial_response(Response(text, error.code, media_type="application/json"))
            return
        await socket.accept(subprotocol=protocol)
        for channel in (STDOUT, STDERR, STATUS):
            # An empty frame signals that the channel is open.
            await socket.send_bytes(bytes([channel]))
        await _run(socket, url, command)
        await socket.close()

    def _checked(self, socket: WebSocket) -> str:
        """The kubelet where it runs. Raises as for any request: token, permission, object, container."""
        access, agent = self._server.access, socket.headers.get("user-agent", "")
        access.expect_known(socket.headers.get("authorization", ""), agent)
        target = parse_target(socket.url.path)
        if target.resource is not PODS or target.subresource != "exec":
            raise errors.no_such_path()
        # From 1.35 on an upgrade by GET also needs `create`.
        for method in ("GET", "POST"):
            access.expect_allowed(target.attributes(method, socket.query_params), target.resource, agent)
        pod = self._server.store.get(PODS, target.namespace, target.name)
        container = logs.container_of(pod, socket.query_params.get("container", ""))
        statuses = {one["name"]: one for one in pod["status"].get("containerStatuses") or []}
        if "running" not in statuses.get(container, {}).get("state", {}):
            raise errors.internal(f'container not found ("{container}")')
        node = self._server.store.get(NODES, "", pod["spec"]["nodeName"])
        return f"{logs.kubelet_url(node)}/exec/{namespace_of(pod)}/{name_of(pod)}/{container}"


async def _run(socket: WebSocket, url: str, command: Sequence[str]) -> None:
    import httpx  # as above

    try:
        async with async_http(timeout=TIMEOUT_SECONDS) as client:
            answer = await client.get(url, params={"command": list(command)})
    except httpx.HTTPError as error:
        await _end(socket, _failure("InternalError", f"error sending request: {error!r}"))
        return
    if answer.status_code != 200:
        await _end(socket, _failure("InternalError", answer.text))
        return
    ran = answer.json()
    for channel, text in ((STDOUT, ran["stdout"]), (STDERR, ran["stderr"])):
        if text:
            await socket.send_bytes(bytes([channel]) + text.encode())
    await _end(socket, _exited(ran["exit_code"]))


async def _end(socket: WebSocket, status: Obj) -> None:
    await socket.send_bytes(bytes([STATUS]) + json.dumps(status).encode())


def _exited(code: int) -> Obj:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    failed = _failure("NonZeroExitCode", f"command terminated with non-zero exit code: exit status {code}")
    return {**failed, "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]}}


def _failure(reason: str, message: str) -> Obj:
    return {"metadata": {}, "status": "Failure", "reason": reason, "message": message}
