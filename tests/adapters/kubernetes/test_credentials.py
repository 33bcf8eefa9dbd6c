"""Rotating credentials: an exec plugin's, a token file's, and the message when the server refuses all of them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import certifi
import httpx
import pytest

from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.credentials import Connection, NotSentError
from bot.adapters.kubernetes.doctor import access
from bot.adapters.kubernetes.pod_exec import PodExec
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import SourceError
from bot.domain.signals.gpu_query import GpuQuery
from tests.processes import start

NODES = "/api/v1/nodes"
ANY = ""
"""Expected by the API, every token will do: then no 401 makes the bot load credentials again."""
START = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)
PLUGIN = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
with open(folder / "runs", "a") as runs:
    runs.write("x")
if not (folder / "token").exists():
    sys.exit("the cloud does not know you")
status = json.loads((folder / "token").read_text())
answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
print(json.dumps(answer))
"""


@dataclass
class Cluster:
    """The sandbox's API, which takes one token at a time, and a plugin that hands out a prepared token."""

    url: str
    folder: Path
    door: httpx.AsyncClient
    now: datetime = field(default=START)

    async def expect(self, token: str) -> None:
        (await self.door.put("/__sandbox__/token", content=token)).raise_for_status()

    def hand_out(self, token: str, *, minutes: float | None = 60) -> None:
        expires = {} if minutes is None else {"expirationTimestamp": f"{self.now + timedelta(minutes=minutes):%FT%TZ}"}
        (self.folder / "token").write_text(json.dumps({"token": token} | expires), encoding="utf-8")

    def seconds(self) -> float:
        return self.now.timestamp()

    @property
    def runs(self) -> int:
        return len((self.folder / "runs").read_text())

    def client(self, user: Obj | None = None) -> KubernetesClient:
        script = self.folder / "plugin.py"
        script.write_text(PLUGIN, encoding="utf-8")
        plugin = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(script), str(self.folder)],
            "interactiveMode": "Never",
        }
        config: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "bot", "user": user or {"exec": plugin}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "bot"}}],
        }
        path = self.folder / "config"
        path.write_text(json.dumps(config), encoding="utf-8")
        return KubernetesClient(Connection(kubeconfig=str(path)), now=self.seconds)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    with start("bot.sandbox.kubernetes", "--seed-world", "demo", "--die-with-parent") as running:
        async with httpx.AsyncClient(base_url=running.url) as door:
            yield Cluster(running.url, tmp_path, door)


async def test_an_exec_plugin_is_run_again_when_its_token_expires(cluster: Cluster) -> None:
    cluster.hand_out("first")
    await cluster.expect("first")
    async with cluster.client() as client:
        assert (await client.request("GET", NODES)).is_ok
        cluster.now += timedelta(minutes=59)
        assert ((await client.request("GET", NODES)).status, cluster.runs) == (200, 1)
        cluster.hand_out("second")
        await cluster.expect(ANY)
        cluster.now += timedelta(minutes=2)
        assert ((await client.request("GET", NODES)).status, cluster.runs) == (200, 2)
        await cluster.expect("second")
        assert ((await client.request("GET", NODES)).status, cluster.runs) == (200, 2)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_401_loads_credentials_again_and_sends_the_request_once_more(cluster: Cluster, method: str) -> None:
    cluster.hand_out("first", minutes=None)
    await cluster.expect("first")
    async with cluster.client() as client:
        assert (await client.request("GET", NODES)).is_ok
        cluster.hand_out("second", minutes=None)
        await cluster.expect("second")
        cluster.now += timedelta(minutes=1)
        body = {"metadata": {"name": "made"}} if method == "POST" else None
        path = "/api/v1/namespaces" if body else NODES
        assert (await client.request(method, path, body=body)).is_ok
        assert cluster.runs == 2
        assert await client.trouble() == ""


async def test_a_token_file_is_read_again_every_minute(cluster: Cluster) -> None:
    file = cluster.folder / "rotated"
    file.write_text("first\n", encoding="utf-8")
    await cluster.expect("first")
    async with cluster.client({"tokenFile": str(file)}) as client:
        assert (await client.request("GET", NODES)).is_ok
        file.write_text("second\n", encoding="utf-8")
        cluster.now += timedelta(seconds=61)
        assert (await client.request("GET", NODES)).status == 401
        cluster.now += timedelta(seconds=11)
        await cluster.expect("second")
        assert (await client.request("GET", NODES)).is_ok


async def test_when_nothing_helps_the_refusal_is_reported_and_the_plugin_is_not_run_for_every_request(
    cluster: Cluster,
) -> None:
    cluster.hand_out("first", minutes=None)
    await cluster.expect("first")
    async with cluster.client() as client:
        assert (await client.request("GET", NODES)).is_ok
        await cluster.expect("of somebody else")
        (cluster.folder / "token").unlink()
        cluster.now += timedelta(minutes=1)
        answers = [await client.request("GET", NODES) for _ in range(5)]
        assert {answer.status for answer in answers} == {401}
        assert answers[0].message == "401 Unauthorized: the API server does not accept the bot's credentials"
        assert cluster.runs == 2
        assert f"the exec plugin {sys.executable} of" in await client.trouble()
        cluster.hand_out("of somebody else", minutes=None)
        cluster.now += timedelta(minutes=1)
        assert await client.trouble() == ""


async def test_without_credentials_from_the_start_the_plugin_is_named(cluster: Cluster) -> None:
    async with cluster.client() as client:
        with pytest.raises(NotSentError, match=r"the exec plugin .* gave no credentials"):
            await client.request("GET", NODES)
        cluster.hand_out("first")
        await cluster.expect("first")
        cluster.now += timedelta(seconds=11)
        assert (await client.request("GET", NODES)).is_ok


async def test_a_command_in_a_pod_is_asked_for_again_with_new_credentials(cluster: Cluster) -> None:
    cluster.hand_out("first", minutes=None)
    await cluster.expect("first")
    async with cluster.client() as client:
        assert (await client.request("GET", NODES)).is_ok
        cluster.hand_out("second", minutes=None)
        await cluster.expect("second")
        cluster.now += timedelta(minutes=1)
        query = next(iter(GpuQuery))
        with pytest.raises(SourceError) as refused:
            await PodExec(client).ask("serving", "gone", "vllm", query)
        assert ("401" in str(refused.value), cluster.runs) == (False, 2)


async def test_one_403_is_no_verdict_and_a_minute_of_nothing_else_is(cluster: Cluster) -> None:
    cluster.hand_out("first", minutes=None)
    deny = [{"match": "list nodes", "kind": "403", "count": 3}]
    (await cluster.door.post("/__sandbox__/faults", json=deny)).raise_for_status()
    async with cluster.client() as client:
        assert (await client.request("GET", NODES)).status == 403
        assert await client.trouble() == ""
        cluster.now += timedelta(seconds=40)
        assert (await client.request("GET", "/version")).is_ok
        assert (await client.request("GET", NODES)).status == 403
        assert await client.trouble() == ""
        cluster.now += timedelta(seconds=40)
        assert (await client.request("GET", NODES)).status == 403
        assert "403 Forbidden to everything for 1 min" in await client.trouble()
        assert (await client.request("GET", NODES)).is_ok
        assert await client.trouble() == ""


async def test_a_server_that_nobody_asked_lately_is_asked(cluster: Cluster) -> None:
    cluster.hand_out("first", minutes=None)
    await cluster.expect("of somebody else")
    async with cluster.client() as client:
        assert "401 Unauthorized" in await client.trouble()


async def test_the_doctor_says_that_the_credentials_are_not_accepted(cluster: Cluster) -> None:
    cluster.hand_out("first", minutes=None)
    await cluster.expect("of somebody else")
    async with cluster.client() as client:
        (finding,) = await access(client, verbs=["scale"])
    assert finding.grade == "broken"
    assert "401 Unauthorized: the API server does not accept the bot's credentials" in finding.what


@pytest.mark.parametrize("content", ["-----BEGIN CERTIFICATE-----\nnot one\n-----END CERTIFICATE-----\n", None])
async def test_a_certificate_that_cannot_be_read_is_named_and_ends_nothing(
    cluster: Cluster, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    connection = Connection(url=cluster.url, token="t", ca_file=str(file))
    async with KubernetesClient(connection, now=cluster.seconds) as client:
        with pytest.raises(NotSentError, match=r"certificate .*ca\.crt"):
            await client.open()
        assert "ca.crt" in await client.trouble()
        file.write_text(certifi.contents(), encoding="utf-8")
        await cluster.expect("t")
        cluster.now += timedelta(seconds=61)
        assert (await client.request("GET", NODES)).is_ok
