"""The demo world: embedded Valkey, Kubernetes, fleet, Slack, alerting and the real bot, each in its own process.

The bot gets only URLs: it cannot distinguish this world from the real one.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.domain.kernel.durations import seconds
from bot.domain.kernel.errors import BotError
from bot.sandbox import surroundings, valkey
from bot.sandbox.alerting.rule import labels_of
from bot.sandbox.plain_http import http
from bot.sandbox.processes import Family
from bot.sandbox.scale import SIMULATED, TWO_CORES, Scale
from bot.sandbox.scenarios import THRASH, Deploy, Scenario

CHANNEL = "C0INC"
GROUP = "S0SERVING"
TOKEN = "xoxb-sandbox"  # noqa: S105 - what the Slack simulator accepts; it protects nothing
ROUTING_KEY = "sandbox0sandbox0sandbox0sandbox0"
READY_WITHIN_SECONDS = 120.0
MAX_FAILED_STARTS = 2

ALERT_WINDOW_SECONDS = 10.0
ALERT_AFTER_SECONDS = 9.0
"""As long as a window, so that the burst of a rising load is not taken for its level."""

WINDOWS = {
    "window": "10s",
    "length_window": "12s",
    "hang_window": "40s",
    "stall_window": "10s",
    "calm_for": "10s",
    "verify_within": "150s",
    "still_bad_for": "45s",
    "canary_for": "6s",
    "canary_within": "120s",
    "settle_for": "3s",
    "rollout_settles": "10s",
    "flap_for": "15s",
    "flap_within": "90s",
    "quiet_for": "4s",
    "listed_for": "4s",
    "drain_budget": "120s",
    "startup_budget": "180s",
    "ttft_target": "2s",
    "tpot_target": "1s",
    "short_window": "8s",
    "long_window": "12s",
    "slow_short": "10s",
    "slow_long": "15s",
}
"""The playbook's durations, shortened so that a run fits a coffee break; the demo says so.

Those that limit a wait are many times the usual time: on a busy machine the work takes longer, and must not time out.
"""


@dataclass
class World:
    family: Family
    redis: valkey.Embedded
    bot_url: str
    slack_url: str
    kubernetes_url: str
    fleet_url: str
    alertmanager_url: str
    """Empty without alerting."""
    folder: Path
    bot_environment: dict[str, str]
    windows: Mapping[str, str]
    scale: Scale
    settings: Path | None = None
    """The bot's settings file, for what no variable can hold."""

    @property
    def redis_url(self) -> str:
        return self.redis.url

    def refuse_ended(self) -> None:
        """Raises `BotError` if a process of this world ended by itself."""
        self.redis.refuse_ended()
        self.family.refuse_ended()

    def start_bot(self) -> None:
        """Starts the bot, or starts it again after a crash."""
        settings = ("--settings", str(self.settings)) if self.settings else ()
        self.family.start("bot", "bot", "serve", *settings, env=self.bot_environment)

    def prepare(self, scenario: Scenario) -> None:
        """Creates what was deployed long before the trouble, and the load of a healthy day."""
        if scenario.selector:
            url = f"{self.kubernetes_url}/api/v1/namespaces/serving/services/llm"
            body = [{"op": "replace", "path": "/spec/selector", "value": dict(scenario.selector)}]
            headers = {"Content-Type": "application/json-patch+json"}
            http().patch(url, json=body, headers=headers).raise_for_status()
        for path, obj in scenario.created:
            http().post(f"{self.kubernetes_url}{path}", json=dict(obj)).raise_for_status()
        if scenario.router != "service":
            url = f"{self.kubernetes_url}/api/v1/namespaces/serving/services/llm"
            http().delete(url).raise_for_status()
        if scenario.gpus_of_others:
            surroundings.hold_gpus(self.kubernetes_url, scenario.gpus_of_others)
        if scenario.quota:
            surroundings.limit(self.kubernetes_url, scenario.quota)
        if scenario.deployed_before:
            self._roll_out(Deploy(scenario.deployed_before))
            self.wait_until_replicas_serve()
        if scenario.kept_by:
            surroundings.put_under(self.kubernetes_url, scenario.kept_by)
        if scenario.in_repository:
            surroundings.publish(self.kubernetes_url, self.alertmanager_url)
        self.load(scenario.healthy_load)

    def cause_trouble(self, scenario: Scenario) -> None:
        if self.scale is not SIMULATED and scenario.fault:
            # While one of few engines starts again, its clients would make the others thrash.
            self.load({})
        for pod in self._hit(scenario) if scenario.fault else ():
            self._post(f"replicas/{pod}/fault", scenario.fault)
        if self.scale is not SIMULATED:
            self._wait_for_rotation()
        if scenario.gpu:
            node, gpu = self._gpu_of(self._victim())
            self._post(f"nodes/{node}/gpu", {"gpu": gpu, **scenario.gpu})
        if scenario.deploy:
            self._roll_out(scenario.deploy)
        self.load(self.scale.trouble(scenario))

    def raise_alert(self, alertname: str) -> None:
        """Posts an alert, as a more sensitive monitor than the rules of `bot.sandbox.alerting` would."""
        alert = {"labels": labels_of(alertname), "annotations": {"summary": f"{alertname} on llm"}}
        http().post(f"{self.alertmanager_url}/api/v2/alerts", json=[alert]).raise_for_status()

    def commit(self, patch: str) -> None:
        """Puts the patch into git, as a person does; Argo CD then syncs it."""
        surroundings.commit(self.kubernetes_url, patch)

    def _roll_out(self, deploy: Deploy) -> None:
        """Rolls out as a deploy pipeline would: it does not know the bot."""
        container = http().get(self._deployment).raise_for_status().json()["spec"]["template"]["spec"]["containers"][0]
        kept = [word for word in container["args"] if word.partition("=")[0] not in deploy.flags]
        values = {
            "args": [*kept, *deploy.words],
            "image": deploy.image or container["image"],
            "env": [{"name": name, "value": value} for name, value in deploy.env.items()],
        }
        where = "/spec/template/spec/containers/0"
        http().patch(
            self._deployment,
            params={"fieldManager": "deploy-pipeline"},
            json=[{"op": "add", "path": f"{where}/{name}", "value": value} for name, value in values.items()],
            headers={"Content-Type": "application/json-patch+json"},
        ).raise_for_status()

    @property
    def _deployment(self) -> str:
        return f"{self.kubernetes_url}/apis/apps/v1/namespaces/serving/deployments/llm"

    def _hit(self, scenario: Scenario) -> list[str]:
        """The replicas that have the fault."""
        nodes = self._pods()
        match scenario.hits:
            case "all":
                return list(nodes)
            case "node":
                fullest = Counter(nodes.values()).most_common(1)[0][0]
                return [pod for pod, node in nodes.items() if node == fullest]
            case "one":
                return [self._victim()]

    def _pods(self) -> dict[str, str]:
        """The node of each replica, by its name."""
        where = f"{self.kubernetes_url}/api/v1/namespaces/serving/pods"
        pods = http().get(where, params={"labelSelector": "app=llm"}).json()["items"]
        present = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        return dict(sorted((str(pod["metadata"]["name"]), str(pod["spec"].get("nodeName", ""))) for pod in present))

    def _victim(self) -> str:
        return next(iter(self._pods()))

    def _gpu_of(self, pod: str) -> tuple[str, int]:
        """The node and the index of the GPU that this pod holds."""
        nodes = http().get(f"{self.fleet_url}/__sandbox__/nodes").json()
        return next((name, gpu["gpu"]) for name, node in nodes.items() for gpu in node["gpus"] if gpu["pod"] == pod)

    def load(self, written: Mapping[str, Any]) -> None:
        """The load of a scenario, for as many replicas as this world has."""
        self._post("load", self.scale.load(written))

    def _post(self, path: str, body: dict[str, Any]) -> None:
        http().post(f"{self.fleet_url}/__sandbox__/{path}", json=body).raise_for_status()

    def _wait_for_rotation(self) -> None:
        """A real engine may have to start again to get its fault; the trouble begins when it serves with it."""

        def all_serve() -> bool:
            found = http().get(f"{self.fleet_url}/__sandbox__/load").raise_for_status().json()["replicas"]
            return sum(bool(replica["in_rotation"]) for replica in found) == self.scale.replicas

        self._until(all_serve)

    def wait_until_replicas_serve(self) -> None:
        """Raises `BotError` if the fleet is not up within its time."""

        def all_ready() -> bool:
            found = http().get(self._deployment).json()
            status, generation = found.get("status", {}), found["metadata"]["generation"]
            counts = [status.get(name, 0) for name in ("readyReplicas", "updatedReplicas", "replicas")]
            return counts == [self.scale.replicas] * 3 and bool(status.get("observedGeneration") == generation)

        self._until(all_ready)

    def _until(self, is_so: Callable[[], bool]) -> None:
        within = self.scale.limit(READY_WITHIN_SECONDS)
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if is_so():
                return
            self._refuse_a_crash_loop()
            time.sleep(0.2)
        raise BotError(f"the fleet was not ready within {within:.0f} s: is this machine very busy?")

    def _refuse_a_crash_loop(self) -> None:
        """An engine that cannot start at all is the installation's fault: its log says which, not the clock."""
        where = f"{self.kubernetes_url}/api/v1/namespaces/serving/pods"
        for pod in http().get(where, params={"labelSelector": "app=llm"}).json()["items"]:
            name, statuses = pod["metadata"]["name"], pod.get("status", {}).get("containerStatuses") or []
            if any(status["restartCount"] >= MAX_FAILED_STARTS for status in statuses):
                log = http().get(f"{where}/{name}/log", params={"previous": "true", "tailLines": "20"}).text
                raise BotError(f"the engine of {name} does not start; the last lines of its log:\n{log}")


@contextlib.contextmanager
def world(  # noqa: PLR0913 - what may differ between the worlds of tests and of the demo
    *,
    settings: Mapping[str, str] | None = None,
    rate_limits: str = "real",
    slack_port: int = 0,
    startup_seconds: float = 3.0,
    with_alerting: bool = True,
    start_bot: bool = True,
    scenario: Scenario = THRASH,
    vllm: Path | None = None,
) -> Iterator[World]:
    """Starts everything; stops everything that was started, however the block ends.

    `vllm`: the command that runs real engines on the CPU in place of simulated ones, in a smaller and slower world.
    """
    scale = TWO_CORES if vllm else SIMULATED
    windows = scale.windows({**WINDOWS, **scenario.windows}) | dict(settings or {})
    with contextlib.ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="incident-bot-")))
        family = Family(folder)
        redis = valkey.start(folder / "redis")
        cleanup.callback(redis.stop)
        cleanup.callback(family.stop)
        bot_port = valkey.free_port()
        bot_url = f"http://127.0.0.1:{bot_port}"
        secret, alert_token = secrets.token_hex(16), secrets.token_hex(16)
        kubernetes = family.start(
            "kubernetes", "bot.sandbox.kubernetes", "--seed-world", scale.seed_world, "--engine-image", scenario.image,
            "--die-with-parent", *(["--node-group", scenario.node_group] if scenario.node_group else []),
        )["url"]  # fmt: skip
        fleet = family.start(
            "fleet", "bot.sandbox.fleet", "--api", kubernetes, "--startup-seconds", str(startup_seconds),
            "--time-scale", "0.3", "--die-with-parent", *(("--vllm", str(vllm)) if vllm else ()),
            *(["--prefill-seconds", str(scenario.prefill_seconds)] if scenario.prefill_seconds else []),
            *(["--pods", "app=llm,serving=active"] if scenario.router == "pods" else []),
        )["url"]  # fmt: skip
        slack = family.start(
            "slack", "bot.sandbox.slack", "--port", str(slack_port), "--bot-url", bot_url, "--signing-secret", secret,
            "--rate-limits", rate_limits, "--die-with-parent",
        )["url"]  # fmt: skip
        alertmanager = ""
        if with_alerting:
            alertmanager = family.start(
                "alerting", "bot.sandbox.alerting", "--api", kubernetes, "--bot-url", bot_url,
                "--token", alert_token, "--rule", scenario.rule or "none",
                "--window-seconds", str(scale.seconds(ALERT_WINDOW_SECONDS)),
                "--for-seconds", str(scale.seconds(ALERT_AFTER_SECONDS)),
                "--ttft-target", str(scale.seconds(seconds(scenario.windows.get("ttft_target", "500ms")))),
                "--die-with-parent",
            )["url"]  # fmt: skip
        environment = bot_environment(
            redis_url=redis.url, port=bot_port, slack_url=slack, secret=secret, kubernetes_url=kubernetes,
            alert_token=alert_token, alertmanager_url=alertmanager,
            windows=windows,
        )  # fmt: skip
        kept = None
        if scenario.in_repository:
            kept = surroundings.kept_in_settings(folder)
            environment |= {"INCIDENT_BOT_GITHUB_URL": alertmanager, "INCIDENT_BOT_GITHUB_TOKEN": alert_token}
        made = World(
            family, redis, bot_url, slack, kubernetes, fleet, alertmanager, folder, environment, windows, scale, kept
        )
        made.wait_until_replicas_serve()
        if start_bot:
            made.start_bot()
        yield made


def pager_of(url: str) -> dict[str, str]:
    """The settings of a pager for who is on call: the alerting process has one beside Alertmanager's API."""
    return {"INCIDENT_BOT_PAGING_PAGERDUTY_URL": url, "INCIDENT_BOT_APPROVALS_TEAMS_SERVING_PAGERDUTY": ROUTING_KEY}


def bot_environment(  # noqa: PLR0913 - one argument for each URL or secret of this world
    *,
    redis_url: str,
    port: int,
    slack_url: str,
    secret: str,
    kubernetes_url: str,
    alert_token: str,
    alertmanager_url: str = "",
    windows: Mapping[str, str],
) -> dict[str, str]:
    """The settings of a real deployment, with this world's URLs."""
    return {
        "REDIS_URL": redis_url,
        "SLACK_BOT_TOKEN": TOKEN,
        "SLACK_SIGNING_SECRET": secret,
        "INCIDENT_BOT_SLACK_CHANNEL": CHANNEL,
        "INCIDENT_BOT_SLACK_BASE_URL": f"{slack_url}/api/",
        "INCIDENT_BOT_KUBERNETES_URL": kubernetes_url,
        "INCIDENT_BOT_CLUSTER": "sandbox",
        "INCIDENT_BOT_HTTP_PORT": str(port),
        "INCIDENT_BOT_HTTP_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": alert_token,
        "INCIDENT_BOT_ALERTMANAGER_URL": alertmanager_url,
        "INCIDENT_BOT_APPROVALS_USER_GROUP": GROUP,
        **(pager_of(alertmanager_url) if alertmanager_url else {}),
        "INCIDENT_BOT_OVERRIDES": ",".join(f"{name}={value}" for name, value in windows.items()),
        "INCIDENT_BOT_SAMPLING_WORKLOADS": "serving/llm",
        "INCIDENT_BOT_SAMPLING_EVERY": "2s",
        "INCIDENT_BOT_LOG_FORMAT": "console",
    }
