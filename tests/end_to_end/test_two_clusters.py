"""Two clusters with a workload of one name: each incident reads and changes its own, and none waits for the other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bot.cli.doctor import examine
from bot.domain.incidents.run import Run
from bot.domain.kernel.finding import Grade
from bot.sandbox import demo, valkey
from bot.sandbox.approver import USER
from bot.sandbox.processes import Family
from bot.sandbox.scale import SIMULATED
from bot.settings import load_settings
from tests.end_to_end.stage import Json, Stage, alert, as_body, webhook
from tests.waiting import until

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]
EAST, WEST = "INC-1", "INC-2"
PLAYBOOK = """
language: 1
playbook: one-more
title: It needs another replica
opens_on: ['alertname="VllmKVCacheThrash"']
signals: {room: {probe: capacity}}
start: grow
states:
  grow: {change: scale, with: {by: 1}, still: room.free_gpus > 0, why: It is too small., done: over}
  over: {end: fixed, say: It is larger.}
"""
SETTINGS = """
clusters:
  - {{name: east, kubernetes: {{url: "{east}"}}, sampling: {{through: proxy}}}}
  - {{name: west, kubernetes: {{url: "{west}"}}, sampling: {{through: proxy, workloads: [serving/llm]}}}}
"""
OF_ONE_CLUSTER = (
    "INCIDENT_BOT_KUBERNETES_URL",
    "INCIDENT_BOT_CLUSTER",
    "INCIDENT_BOT_OVERRIDES",
    "INCIDENT_BOT_SAMPLING_WORKLOADS",
    "INCIDENT_BOT_SAMPLING_EVERY",
)


@dataclass(frozen=True)
class Two:
    stage: Stage
    urls: dict[str, str]
    pids: dict[str, int]
    environment: dict[str, str]

    def replicas(self, cluster: str) -> int:
        found = httpx.get(f"{self.urls[cluster]}/apis/apps/v1/namespaces/serving/deployments/llm", timeout=10)
        return int(found.raise_for_status().json()["spec"]["replicas"])

    def changes(self, cluster: str) -> list[str]:
        """Paths of the requests that changed it; the bot's permissions and dry runs change nothing."""
        journal: list[Json] = httpx.get(f"{self.urls[cluster]}/__sandbox__/mutations", timeout=10).json()
        reviews = "selfsubjectaccessreviews"
        return [each["path"] for each in journal if not each["dryRun"] and reviews not in each["path"]]

    def request(self, incident: str) -> Json | None:
        """The message of the incident's open request."""
        run = self.stage.run(incident)
        asked = run.open_request if run else None
        where = f"in {run.target.cluster}" if run else ""
        return self.stage.message(f"{asked.plan.title} {where}") if asked else None

    def approve(self, incident: str) -> None:
        message = until(lambda: self.request(incident), f"{incident} asks", 60, seen=self.stage.describe)
        assert self.stage.press(USER, message, "approve")["ok"]

    def unmatched(self) -> dict[str, str]:
        """The `cluster` label of each alert that opened nothing, with the reason."""
        return {each.labels.get("cluster", ""): reason for each, reason in self.stage.unmatched()}

    def closed(self, incident: str) -> Run:
        return until(lambda: self.stage.closed_run(incident), f"{incident} is closed", 60, seen=self.stage.describe)

    @contextlib.contextmanager
    def frozen(self, cluster: str) -> Iterator[None]:
        """Its API server accepts connections and answers nothing."""
        os.kill(self.pids[cluster], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pids[cluster], signal.SIGCONT)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    with contextlib.ExitStack() as cleanup:
        family, redis = Family(tmp_path), valkey.start(tmp_path / "redis")
        cleanup.callback(redis.stop)
        cleanup.callback(family.stop)
        port, secret, token = valkey.free_port(), "signed", "from-alertmanager"
        bot_url = f"http://127.0.0.1:{port}"
        ready = {
            name: family.start(
                f"kubernetes-{name}", "bot.sandbox.kubernetes", "--seed-world", "demo", "--with-kubelet",
                "--die-with-parent",
            )
            for name in ("east", "west")
        }  # fmt: skip
        urls = {name: str(each["url"]) for name, each in ready.items()}
        slack = family.start(
            "slack", "bot.sandbox.slack", "--port", "0", "--bot-url", bot_url, "--signing-secret", secret,
            "--rate-limits", "real", "--die-with-parent",
        )["url"]  # fmt: skip
        environment = demo.bot_environment(
            redis_url=redis.url, port=port, slack_url=slack, secret=secret, kubernetes_url="", alert_token=token,
            windows={},
        )  # fmt: skip
        for name in OF_ONE_CLUSTER:
            del environment[name]
        (tmp_path / "playbooks").mkdir()
        (tmp_path / "playbooks/one-more.yaml").write_text(PLAYBOOK)
        (tmp_path / "settings.yaml").write_text(SETTINGS.format(**urls))
        environment["INCIDENT_BOT_PLAYBOOKS"] = str(tmp_path / "playbooks")
        environment["INCIDENT_BOT_SETTINGS"] = str(tmp_path / "settings.yaml")
        world = demo.World(family, redis, bot_url, slack, urls["east"], "", "", tmp_path, environment, {}, SIMULATED)
        world.start_bot()
        stage = cleanup.enter_context(contextlib.closing(Stage(world)))
        yield Two(stage, urls, {name: int(each["pid"]) for name, each in ready.items()}, environment)


def graded(two: Two) -> dict[str, set[Grade]]:
    """What the doctor says of each cluster."""
    findings = asyncio.run(examine(load_settings(two.environment)))
    clusters = ("kubernetes/east", "kubernetes/west")
    return {name: {each.grade for each in findings if each.about == name} for name in clusters}


def test_a_change_is_made_in_the_cluster_of_its_alert_while_the_other_is_silent(two: Two) -> None:
    stage = two.stage
    stage.post(as_body(webhook(alert(cluster="east"), alert(cluster="north"), alert())))
    until(lambda: two.request(EAST), "the incident of east asks", 60, seen=stage.describe)
    assert two.unmatched() == {
        "north": "it is about cluster 'north', and this bot works on 'east', 'west'",
        "": "it has no `cluster` label, and this bot works on 'east', 'west': "
        "set `cluster` in the external_labels of each Prometheus",
    }
    stage.post(as_body(webhook(alert(cluster="west"))))
    until(lambda: two.request(WEST), "the incident of west asks", 60, seen=stage.describe)
    assert {str(run.target) for name in (EAST, WEST) if (run := stage.run(name))} == {
        "east/serving/llm",
        "west/serving/llm",
    }
    assert stage.message("east/serving/llm")
    assert graded(two) == {"kubernetes/east": {"fine"}, "kubernetes/west": {"fine"}}

    with two.frozen("west"):
        two.approve(EAST)
        assert two.closed(EAST).ending == "fixed"
        silent = graded(two)
        assert (silent["kubernetes/east"], silent["kubernetes/west"]) == ({"fine"}, {"broken"})
    assert (two.replicas("east"), two.replicas("west")) == (5, 4)
    changed = two.changes("east")
    assert changed
    assert two.changes("west") == []

    until(lambda: stage.state(WEST) == "grow" and two.request(WEST), "west still asks", 60, seen=stage.describe)
    two.approve(WEST)
    assert two.closed(WEST).ending == "fixed"
    assert (two.replicas("east"), two.replicas("west")) == (5, 5)
    assert two.changes("east") == changed
