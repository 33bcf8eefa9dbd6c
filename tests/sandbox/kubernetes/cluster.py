"""The contract tests' requests to a cluster, through the official client, and how they wait for an answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import pytest
from kubernetes.aio import client, config
from kubernetes.aio.client.exceptions import ApiException

Obj = dict[str, Any]
Found = TypeVar("Found")

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

BAD_IMAGE = "registry.invalid/bad:none"
PAUSE = "registry.k8s.io/pause:3.9"


async def eventually(
    description: str, probe: Callable[[], Awaitable[Found | None]], deadline_seconds: float = 60.0
) -> Found:
    """The first answer that is neither None nor False; fails with the description after the deadline."""
    last: object = None
    try:
        async with asyncio.timeout(deadline_seconds):
            while True:
                found = await probe()
                if found is not None and found is not False:
                    return found
                last = found
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not within {deadline_seconds} s: {description} (last: {last!r})") from None


@contextlib.asynccontextmanager
async def refused(code: int) -> AsyncIterator[Refusal]:
    """The block must be refused with this code; the `Status` body is there to be read afterwards."""
    refusal = Refusal()
    with pytest.raises(ApiException) as raised:
        yield refusal
    assert raised.value.status == code, raised.value.body
    refusal.body = json.loads(raised.value.body or "{}")
    refusal.headers = dict(raised.value.headers or {})


class Refusal:
    def __init__(self) -> None:
        self.body: Obj = {}
        self.headers: dict[str, str] = {}

    @property
    def causes(self) -> list[Obj]:
        causes: list[Obj] = self.body.get("details", {}).get("causes", [])
        return causes


@dataclass(frozen=True)
class Cluster:
    """One namespace of one cluster; objects go in and come out as plain JSON."""

    api: client.ApiClient
    namespace: str
    image: str
    is_stand_in: bool

    @property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(self.api)

    @property
    def apps(self) -> client.AppsV1Api:
        return client.AppsV1Api(self.api)

    @property
    def policy(self) -> client.PolicyV1Api:
        return client.PolicyV1Api(self.api)

    @property
    def url(self) -> str:
        return str(self.api.configuration.host)

    async def sandbox(self, method: str, path: str, body: Any = None) -> Any:
        """The stand-in's own routes."""
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.request(method, f"{self.url}/__sandbox__/{path}", json=body)
            answer.raise_for_status()
            return answer.json()

    async def custom_path(self, group: str, plural: str) -> str:
        """Skips the test on a cluster that does not have the kind."""
        _, _, groups = await self.raw("GET", "/apis")
        if group.partition("/")[0] not in {one["name"] for one in groups["groups"]}:
            pytest.skip(f"no CustomResourceDefinitions of {group} are installed")
        return f"/apis/{group}/namespaces/{self.namespace}/{plural}"

    # --- objects

    def plain(self, model: Any) -> Obj:
        sanitize: Callable[[Any], Obj] = self.api.sanitize_for_serialization
        return sanitize(model)

    def deployment_body(self, name: str = "web", replicas: int = 2, **pod_spec: Any) -> Obj:
        labels = {"app": name, "tier": "active"}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": labels}, "spec": self.pod_spec(**pod_spec)},
            },
        }

    def pod_spec(self, **extra: Any) -> Obj:
        main = {"name": "main", "image": self.image, "env": [{"name": "MODE", "value": "slow"}]}
        return {"containers": [main], "terminationGracePeriodSeconds": 1, **extra}

    async def create_deployment(self, body: Obj | None = None, *, settled: bool = True) -> Obj:
        made: Any = self.deployment_body() if body is None else body
        created = self.plain(await self.apps.create_namespaced_deployment(self.namespace, made))
        return await self.settled(created["metadata"]["name"]) if settled else created

    async def deployment(self, name: str = "web") -> Obj:
        return self.plain(await self.apps.read_namespaced_deployment(name, self.namespace))

    async def patch_deployment(self, patch: Any, kind: str = STRATEGIC, name: str = "web", **options: Any) -> Obj:
        return self.plain(
            await self.apps.patch_namespaced_deployment(name, self.namespace, patch, _content_type=kind, **options)
        )

    async def settled(self, name: str = "web") -> Obj:
        """Updated = available = wanted, as seen at the current generation, and nothing else left."""

        async def look() -> Obj | None:
            obj = await self.deployment(name)
            status, wanted = obj.get("status", {}), obj["spec"]["replicas"]
            counts = {status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
            seen = status.get("observedGeneration", 0) >= obj["metadata"]["generation"]
            pods = await self.pods(f"app={name}")
            return obj if seen and counts == {wanted} and len(pods) == wanted else None

        return await eventually(f"deployment {name} has settled", look)

    async def replica_sets(self, selector: str = "app=web") -> list[Obj]:
        found = await self.apps.list_namespaced_replica_set(self.namespace, label_selector=selector)
        return [self.plain(one) for one in found.items]

    async def pods(self, selector: str = "app=web") -> list[Obj]:
        found = await self.core.list_namespaced_pod(self.namespace, label_selector=selector)
        return [self.plain(one) for one in found.items]

    async def pod(self, name: str) -> Obj | None:
        try:
            return self.plain(await self.core.read_namespaced_pod(name, self.namespace))
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    async def create_pod(self, name: str = "lone", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
        metadata = {"name": name, "labels": labels or {"app": name}}
        body: Any = {"metadata": metadata, "spec": self.pod_spec(**spec)}
        return self.plain(await self.core.create_namespaced_pod(self.namespace, body))

    async def running_pod(self, name: str = "lone", labels: dict[str, str] | None = None) -> Obj:
        await self.create_pod(name, labels)
        return await self.pod_where(f"{name} is ready", name, is_ready)

    async def pod_where(self, description: str, name: str, holds: Callable[[Obj], bool]) -> Obj:
        async def look() -> Obj | None:
            pod = await self.pod(name)
            return pod if pod is not None and holds(pod) else None

        return await eventually(description, look)

    async def gone(self, name: str) -> None:
        async def look() -> bool:
            return await self.pod(name) is None

        await eventually(f"pod {name} is gone", look)

    async def create_budget(self, name: str = "budget", app: str = "web", **spec: Any) -> Obj:
        body: Any = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": app}}, **spec}}
        await self.policy.create_namespaced_pod_disruption_budget(self.namespace, body)
        return await self.budget_where("the controller has seen the budget", lambda _: True, name)

    async def budget_where(self, description: str, holds: Callable[[Obj], bool], name: str = "budget") -> Obj:
        async def look() -> Obj | None:
            read = await self.policy.read_namespaced_pod_disruption_budget(name, self.namespace)
            budget = self.plain(read)
            status = budget.get("status", {})
            seen = status.get("observedGeneration", 0) >= budget["metadata"]["generation"]
            return budget if seen and holds(status) else None

        return await eventually(description, look)

    async def evict(self, name: str, *, uid: str | None = None, dry_run: str | None = None) -> tuple[int, Obj]:
        """The code and the body: it is a `Status`, which the client's own type would hide."""
        body: Obj = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        if uid is not None:
            body["deleteOptions"] = {"preconditions": {"uid": uid}}
        _, status, raw = await self.raw(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction",
            body,
            {"dryRun": dry_run} if dry_run else {},
        )
        return status, raw

    async def raw(
        self, method: str, path: str, body: Any = None, query: dict[str, str] | None = None, *, kind: str = ""
    ) -> tuple[dict[str, str], int, Obj]:
        """Headers, code and body of a request, through the client's own connection; raises when refused."""
        serialized = await self.api.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json"} | ({"Content-Type": kind} if kind else {}),
            body=body,
            auth_settings=["BearerToken"],
        )
        response = await self.api.call_api(*serialized)
        read: Callable[[], Awaitable[bytes]] = response.read
        content = await read()
        if response.status >= 400:
            raise ApiException(http_resp=response)
        return dict(response.headers), response.status, json.loads(content)


def is_ready(pod: Obj) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def waiting_reason(pod: Obj) -> str:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return str(statuses[0]["state"].get("waiting", {}).get("reason", "")) if statuses else ""


def condition(obj: Obj, kind: str) -> Obj:
    conditions: list[Obj] = obj.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), {})


@contextlib.asynccontextmanager
async def connect(
    url: str | None, *, kubeconfig: str | None = None, image: str = PAUSE, token: str = ""
) -> AsyncIterator[Cluster]:
    """A connected client and a namespace of its own, which is deleted at the end."""
    settings = client.Configuration()
    if url is not None:
        settings.host = url
    else:
        load: Callable[..., Awaitable[None]] = config.load_kube_config
        await load(config_file=kubeconfig, client_configuration=settings)
    if token:
        settings.api_key["BearerToken"] = f"Bearer {token}"
    async with client.ApiClient(settings) as api:
        core = client.CoreV1Api(api)
        name = f"contract-{secrets.token_hex(4)}"
        namespace: Any = {"metadata": {"name": name}}
        await core.create_namespace(namespace)
        try:
            yield Cluster(api, name, image, is_stand_in=url is not None)
        finally:
            await core.delete_namespace(name)
