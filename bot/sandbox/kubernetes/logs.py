"""`pods/log`: checks what the pod object shows, then passes on the answer of its node's kubelet.

On a real cluster a kubelet refuses requests because of a container's state. Here these refusals are made from the pod's
status, so that every kubelet of the sandbox answers alike.
"""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from bot.sandbox.kubernetes import errors
from bot.sandbox.kubernetes.errors import bad_request
from bot.sandbox.kubernetes.resources import NODES
from bot.sandbox.kubernetes.store import Store, name_of, namespace_of
from bot.sandbox.plain_http import async_http

Obj = dict[str, Any]

PASSED_ON = ("previous", "tailLines", "sinceSeconds", "sinceTime", "timestamps", "limitBytes")
KUBELET_TIMEOUT_SECONDS = 10.0


def address(store: Store, pod: Obj, query: Mapping[str, str]) -> str | None:
    """The URL at the pod's kubelet; None while the pod has no node. Raises 400 as a real server does."""
    container = container_of(pod, query.get("container", ""))
    if not pod["spec"].get("nodeName"):
        return None
    _expect_started(pod, container, wants_previous=query.get("previous", "") in ("true", "1"))
    node = store.get(NODES, "", pod["spec"]["nodeName"])
    return f"{kubelet_url(node)}/containerLogs/{namespace_of(pod)}/{name_of(pod)}/{container}"


def kubelet_url(node: Obj) -> str:
    status = node.get("status", {})
    host = next((one["address"] for one in status.get("addresses", []) if one["type"] == "InternalIP"), None)
    port = status.get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")
    if host is None or not port:
        raise errors.internal(f"no preferred addresses found for node {name_of(node)}")
    return f"http://{host}:{port}"


async def fetch(url: str, query: Mapping[str, str]) -> Response:
    """The kubelet's answer, unchanged."""
    import httpx  # only logs need it

    passed = {key: query[key] for key in PASSED_ON if key in query}
    try:
        async with async_http(timeout=KUBELET_TIMEOUT_SECONDS) as client:
            answer = await client.get(url, params=passed)
    except httpx.HTTPError as error:
        raise errors.internal(f'Get "{url}": {error!r}') from None
    if answer.status_code >= 400:
        raise errors.ApiError(answer.status_code, "", answer.text.strip())
    return Response(answer.content, media_type="text/plain")


def container_of(pod: Obj, asked: str) -> str:
    spec = pod["spec"]
    names = [one["name"] for part in ("initContainers", "containers") for one in spec.get(part, [])]
    if asked:
        if asked not in names:
            raise bad_request(f"container {asked} is not valid for pod {name_of(pod)}")
        return asked
    plain = [one["name"] for one in spec["containers"]]
    if len(plain) > 1:
        raise bad_request(
            f"a container name must be specified for pod {name_of(pod)}, choose one of: [{' '.join(plain)}]"
        )
    return str(plain[0])


def _expect_started(pod: Obj, container: str, *, wants_previous: bool) -> None:
    where = f'container "{container}" in pod "{name_of(pod)}"'
    statuses = pod["status"].get("containerStatuses") or []
    status = next((one for one in statuses if one["name"] == container), None)
    if status is None:
        raise bad_request(f"{where} is waiting to start: ContainerCreating")
    ended_before = status.get("lastState", {}).get("terminated") is not None
    state = status.get("state", {})
    if wants_previous:
        if not ended_before:
            raise bad_request(f"previous terminated {where} not found")
        return
    if "waiting" in state and not ended_before:
        reason = state["waiting"].get("reason", "")
        shown = {
            "ErrImagePull": "image can't be pulled",
            "ImagePullBackOff": "trying and failing to pull image",
        }.get(reason, reason)
        raise bad_request(f"{where} is waiting to start: {shown}")
