"""A cluster simulator and a fleet in their own processes, and the calls that the tests make to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx
from prometheus_client.parser import text_string_to_metric_families

from bot.sandbox.plain_http import http
from tests.processes import Running, running

SERVING = "/api/v1/namespaces/serving/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/serving/deployments/llm"
MERGE = {"Content-Type": "application/merge-patch+json"}

T = TypeVar("T")
Json = dict[str, Any]


def eventually(what: str, look: Callable[[], T | None], deadline_seconds: float = 20.0) -> T:
    """Look again and again until it finds something; fail with `what` when the deadline passes."""
    pause = threading.Event()
    for _ in range(int(deadline_seconds / 0.05)):
        found = look()
        if found:
            return found
        pause.wait(0.05)
    raise AssertionError(f"not within {deadline_seconds} s: {what}")


class World:
    """The demo world: a Deployment `llm` of four replicas in `serving`."""

    def __init__(self, cluster: Running, fleet: Running, http: httpx.Client) -> None:
        self.fleet = fleet
        self.cluster_url = cluster.url
        self._http = http

    # The cluster

    def get(self, path: str, **query: str) -> Json:
        answer = self._http.get(self.cluster_url + path, params=query)
        answer.raise_for_status()
        parsed: Json = answer.json()
        return parsed

    def merge(self, path: str, body: Json) -> None:
        self._http.patch(self.cluster_url + path, json=body, headers=MERGE).raise_for_status()

    def create(self, path: str, body: Json) -> None:
        self._http.post(self.cluster_url + path, json=body).raise_for_status()

    def delete_pod(self, name: str, **options: int) -> None:
        self._http.request("DELETE", f"{self.cluster_url}{SERVING}/{name}", json=options).raise_for_status()

    def pods(self) -> list[Json]:
        return list(self.get(SERVING)["items"])

    def pod(self, name: str) -> Json | None:
        return next((one for one in self.pods() if one["metadata"]["name"] == name), None)

    def container(self, name: str) -> Json:
        pod = self.pod(name)
        assert pod is not None, f"{name} is gone"
        statuses = pod["status"].get("containerStatuses") or [{}]
        return dict(statuses[0])

    def log(self, name: str, **query: str) -> str:
        answer = self._http.get(f"{self.cluster_url}{SERVING}/{name}/log", params=query)
        answer.raise_for_status()
        return answer.text

    def events(self, name: str) -> list[Json]:
        """The events of a pod."""
        query = f"fieldSelector=involvedObject.name={name}"
        return list(self.get(f"{SERVING.removesuffix('/pods')}/events?{query}")["items"])

    def set_args(self, change: Callable[[list[str]], list[str]]) -> None:
        """Edit the vllm container's args in the Deployment's template, as a rollout does."""
        template = self.get(DEPLOYMENT)["spec"]["template"]
        container = template["spec"]["containers"][0]
        container["args"] = change(list(container["args"]))
        self.merge(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [container]}}}})

    # The fleet

    def load(self) -> Json:
        parsed: Json = self._http.get(f"{self.fleet.url}/__sandbox__/load").json()
        return parsed

    def set_load(self, **load: Any) -> None:
        self.post("/__sandbox__/load", load).raise_for_status()

    def post(self, path: str, body: Json) -> httpx.Response:
        return self._http.post(self.fleet.url + path, json=body)

    def fault(self, pod: str, **fault: Any) -> None:
        self.post(f"/__sandbox__/replicas/{pod}/fault", fault).raise_for_status()

    def replicas(self) -> dict[str, Json]:
        return {one["pod"]: one for one in self.load()["replicas"]}

    def in_rotation(self) -> list[str]:
        return [name for name, one in self.replicas().items() if one["in_rotation"]]

    def wait_for_rotation(self, count: int = 4) -> list[str]:
        def look() -> list[str] | None:
            names = self.in_rotation()
            return names if len(names) == count else None

        return eventually(f"{count} replicas in rotation", look)

    # A replica

    def ask(self, pod: str, path: str, **options: Any) -> httpx.Response:
        address = self.replicas()[pod]["address"]
        method = "POST" if "json" in options else "GET"
        return self._http.request(method, f"http://{address}:8000{path}", **options)

    def begin_and_leave(self, pod: str, body: Json) -> None:
        """Open a completion stream, read its first token, and hang up."""
        url = f"http://{self.replicas()[pod]['address']}:8000/v1/completions"
        with self._http.stream("POST", url, json=body) as answer:
            next(answer.iter_lines())

    def fetch(self, url: str) -> str:
        return self._http.get(url).text

    def metric(self, pod: str, name: str) -> float:
        text = self.ask(pod, "/metrics").text
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return sum(s.value for s in samples if s.name == name)


@contextmanager
def demo_world(*fleet_options: str) -> Iterator[World]:
    with (
        running("bot.sandbox.kubernetes", "--port", "0", "--seed-world", "demo", "--die-with-parent") as cluster,
        running(
            *("bot.sandbox.fleet", "--api", cluster.url, "--port", "0", "--die-with-parent"),
            *("--startup-seconds", "0.4", "--time-scale", "0.1", *fleet_options),
        ) as fleet,
    ):
        world = World(cluster, fleet, http())
        world.wait_for_rotation()
        yield world
