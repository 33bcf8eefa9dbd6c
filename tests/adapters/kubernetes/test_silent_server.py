"""An API server that stopped answering: reads fail at once, calls are put off, results of calls are still looked up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import Connection
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.reader import KubernetesReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.domain.kernel.errors import ClusterError
from bot.flow.circuit import OPENS_AFTER, Circuit
from tests.adapters.kubernetes.lab import LLM, TARGET, Lab, names
from tests.fakes.clocks import Steps


@pytest.fixture
def quick(lab: Lab) -> Lab:
    """The same cluster, with a client for which every question takes long."""
    client = KubernetesClient(Connection(url=lab.url), Circuit("the Kubernetes API", elapsed=Steps()))
    reader = KubernetesReader(client, cluster_wide_seconds=0.0)
    return replace(lab, client=client, reader=reader, writer=KubernetesWriter(client, reader))


async def silence(lab: Lab, path: str = LLM, match: str = "* *", **how: Any) -> None:
    """The server takes some questions and answers none in time."""
    await lab.fault(match, "delay", count=OPENS_AFTER, seconds=60.0)
    for _ in range(OPENS_AFTER):
        with pytest.raises(NoAnswerError):
            await lab.client.request("GET", path, deadline_seconds=0.1, **how)


async def test_reads_of_a_silent_server_fail_at_once_and_say_since_when(quick: Lab) -> None:
    async with quick.client:
        await silence(quick)
        with pytest.raises(ClusterError, match=r"the Kubernetes API has not answered since \d\d:\d\d UTC"):
            await quick.reader.snapshot(TARGET, incident_id="INC-42")


async def test_a_call_to_a_silent_server_is_put_off_and_nothing_is_sent(quick: Lab) -> None:
    async with quick.client:
        pod = sorted(names(await quick.snapshot()))[0]
        plan = await quick.plan("replace_replica", replica=pod)
        await silence(quick)
        sent = await quick.send(plan)
        assert (sent.result, "has not answered since" in sent.detail) == ("failed", True)
        assert sent.retry_after_seconds is not None
        assert await quick.mutations() == []


async def test_what_a_call_did_is_looked_up_even_while_the_circuit_is_open(quick: Lab) -> None:
    async with quick.client:
        plan = await quick.plan("scale", by=1)
        await silence(quick)
        assert await quick.writer.look(plan.calls[0], call_id="INC-42/R1/0") == "not_done"
        assert (await quick.reader.snapshot(TARGET, incident_id="INC-42")).workload is not None, "it has answered"


async def test_a_kubelet_that_does_not_give_a_log_does_not_make_the_api_server_silent(quick: Lab) -> None:
    async with quick.client:
        pod = sorted(names(await quick.snapshot()))[0]
        path = f"/api/v1/namespaces/serving/pods/{pod}/log"
        await silence(quick, path, "* pods/log", passed_on=True)
        assert (await quick.reader.snapshot(TARGET, incident_id="INC-42")).workload is not None
        assert await KubernetesPodLogs(quick.reader).read("serving", pod) is not None
