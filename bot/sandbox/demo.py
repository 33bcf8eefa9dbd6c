"""The demo world: embedded Valkey, Kubernetes, fleet, Slack, alerting and the real bot, each a process of its own.

The bot gets nothing but URLs: it cannot tell this world from the real one.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bot.domain.errors import BotError
from bot.domain.playbook.durations import seconds
from bot.sandbox import valkey
from bot.sandbox.processes import Family

CHANNEL = "C0INC"
GROUP = "S0SERVING"
TOKEN = "xoxb-sandbox"  # noqa: S105 - what the Slack stand-in accepts; it protects nothing
READY_WITHIN_SECONDS = 40.0

ALERT_AFTER_SECONDS = 9.0
"""As long as a window, so that the burst of a rising load is not taken for its level."""

WINDOWS = {
    "window": "10s",
    "length_window": "12s",
    "stall_window": "10s",
    "calm_for": "10s",
    "verify_within": "60s",
    "spare_for": "6s",
    "spare_within": "40s",
    "settle_for": "3s",
    "rollout_settles": "10s",
    "flap_for": "15s",
    "flap_within": "45s",
    "quiet_for": "4s",
    "listed_for": "4s",
    "drain_budget": "60s",
    "startup_budget": "90s",
    "ttft_target": "2s",
    "tpot_target": "1s",
    "short_window": "8s",
    "long_window": "12s",
    "slow_short": "10s",
    "slow_long": "15s",
}
"""The playbook's durations, shortened so that a run fits a coffee break; the demo says so."""


@dataclass(frozen=True)
class Scenario:
    """What goes wrong in the fleet, and for whom to press what when nobody is there."""

    name: str
    what: str
    healthy_load: dict[str, Any]
    trouble_load: dict[str, Any]
    fault: dict[str, Any] = field(default_factory=dict)
    """A fault of one replica; empty for none."""
    rollout: Mapping[str, str] = field(default_factory=dict)
    """Flags that somebody's deploy sets; empty for no deploy."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Text of a question to the label of the choice that the scripted approver presses."""
    filled: Mapping[str, str] = field(default_factory=dict)
    """What that approver writes into the fields of forms."""
    rule: str = "thrash"
    """What alerting watches; empty where no alert opens the incident."""
    opened_by: str = ""
    """The command that opens it by hand; empty where an alert does."""
    gpu: dict[str, Any] = field(default_factory=dict)
    """Trouble of the GPU that one replica holds; empty for none."""
    windows: Mapping[str, str] = field(default_factory=dict)
    """Settings beside `WINDOWS`."""
    healthy_seconds: float = 6.0
    """How long all is well first: what is compared with the time before needs that time."""
    verified_by: str = "verify_calm"
    """The watch that has to have held; empty where readings alone decide the end."""
    endings: tuple[str, ...] = ("fixed", "accepted_degraded")
    """How the incident may end."""


THRASH = Scenario(
    name="thrash",
    what="load rises, and all four replicas preempt requests instead of finishing them",
    healthy_load={"workers": 12},
    trouble_load={"workers": 160, "ramp_seconds": 2},
    answers={"requests wait longer": "Accept it for now"},
)
ONE_BAD_REPLICA = Scenario(
    name="one-bad-replica",
    what="one replica has lost most of its KV pool and thrashes at a normal share of the requests",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    fault={"kind": "small_pool", "blocks": 32},
    answers={"requests wait longer": "Accept it for now"},
)
GPU_FAULT = Scenario(
    name="gpu-fault",
    what="the GPU of one replica falls off the bus (XID 79); in the end a person finds the hardware well",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    rule="xid",
    gpu={"full_csv": True, "xid": 79},
    answers={"Who took it?": "It was a false alarm"},
    verified_by="recovered",
    endings=("not_applicable",),
)
HOT_NODE = Scenario(
    name="hot-node",
    what="the GPUs that replicas hold on one node are too hot under load",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    rule="heat",
    gpu={"full_csv": True, "hot_under_load": 91.0},
    windows={"cool_for": "6s", "cool_within": "60s", "back_for": "6s", "back_within": "60s"},
    verified_by="again",
)
SLO_BREACH = Scenario(
    name="slo-breach",
    what="more requests come than fit the batches, so first tokens wait in the queue",
    healthy_load={"workers": 40, "prompt_tokens": [8, 12], "output_tokens": [40, 50], "pause_seconds": 0},
    trouble_load={"workers": 316, "prompt_tokens": [8, 12], "output_tokens": [40, 50], "pause_seconds": 0},
    rule="slo",
    answers={"Replicas were added": "Yes: scale back"},  # too early: it gets worse, and that is taken back
    windows={
        "verify_within": "25s",
        "ttft_target": "100ms",
    },
)
CRASH_LOOP = Scenario(
    name="crash-loop",
    what="a deploy halves the KV pool; one request of full length no longer fits, so the new replica cannot start",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    rollout={"--num-gpu-blocks-override": "60"},
    rule="crash",
    answers={"Which one was good?": "Roll back to"},
    filled={"revision": "1"},
    windows={"no_crash_for": "12s", "stays_within": "60s", "stable_for": "5m"},
)
FP8_AS_DESIGNED = Scenario(
    name="fp8-as-designed",
    what="a deploy turns on fp8 KV, the pool holds twice the tokens, and somebody only sees that device memory is flat",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    rollout={"--kv-cache-dtype": "fp8", "--num-gpu-blocks-override": "256"},
    rule="",
    opened_by="open kv-compression-no-savings serving/llm",
    filled={"method": "quantised", "read_gauge": "device"},
    windows={"before_window": "6s", "past": "40s"},
    healthy_seconds=12.0,
    verified_by="",
)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (THRASH, ONE_BAD_REPLICA, GPU_FAULT, HOT_NODE, SLO_BREACH, CRASH_LOOP, FP8_AS_DESIGNED)
}


@dataclass
class World:
    family: Family
    redis: valkey.Embedded
    bot_url: str
    slack_url: str
    kubernetes_url: str
    fleet_url: str
    folder: Path
    bot_environment: dict[str, str]

    @property
    def redis_url(self) -> str:
        return self.redis.url

    def start_bot(self) -> None:
        """Start the bot, or start it again after a crash."""
        self.family.start("bot", "bot", "serve", env=self.bot_environment)

    def cause_trouble(self, scenario: Scenario) -> None:
        if scenario.fault:
            self._tell(f"replicas/{self._victim()}/fault", scenario.fault)
        if scenario.gpu:
            node, gpu = self._gpu_of(self._victim())
            self._tell(f"nodes/{node}/gpu", {"gpu": gpu, **scenario.gpu})
        if scenario.rollout:
            self._roll_out(scenario.rollout)
        self._tell("load", scenario.trouble_load)

    def _roll_out(self, flags: Mapping[str, str]) -> None:
        """As a deploy pipeline would: it knows nothing of the bot."""
        url = f"{self.kubernetes_url}/apis/apps/v1/namespaces/serving/deployments/llm"
        container = httpx.get(url).raise_for_status().json()["spec"]["template"]["spec"]["containers"][0]
        kept = [word for word in container["args"] if word.partition("=")[0] not in flags]
        args = [*kept, *(f"{flag}={value}" for flag, value in flags.items())]
        httpx.patch(
            url,
            params={"fieldManager": "deploy-pipeline"},
            json=[{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}],
            headers={"Content-Type": "application/json-patch+json"},
        ).raise_for_status()

    def _victim(self) -> str:
        pods = httpx.get(
            f"{self.kubernetes_url}/api/v1/namespaces/serving/pods", params={"labelSelector": "app=llm"}
        ).json()["items"]
        return min(str(pod["metadata"]["name"]) for pod in pods)

    def _gpu_of(self, pod: str) -> tuple[str, int]:
        """The node and the index of the GPU that this pod holds."""
        nodes = httpx.get(f"{self.fleet_url}/__sandbox__/nodes", timeout=5).json()
        return next((name, gpu["gpu"]) for name, node in nodes.items() for gpu in node["gpus"] if gpu["pod"] == pod)

    def load(self, wanted: dict[str, Any]) -> None:
        self._tell("load", wanted)

    def _tell(self, path: str, body: dict[str, Any]) -> None:
        httpx.post(f"{self.fleet_url}/__sandbox__/{path}", json=body, timeout=5).raise_for_status()

    def wait_until_replicas_serve(self, wanted: int = 4) -> None:
        """Raise `BotError` when the fleet is not up within its time."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while time.monotonic() < deadline:
            found = httpx.get(f"{self.kubernetes_url}/apis/apps/v1/namespaces/serving/deployments/llm").json()
            if found.get("status", {}).get("readyReplicas", 0) >= wanted:
                return
            time.sleep(0.2)
        raise BotError(f"the simulated fleet was not ready within {READY_WITHIN_SECONDS:.0f} s")


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
) -> Iterator[World]:
    """Start everything; stop everything that was started, however the block ends."""
    with contextlib.ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="incident-bot-")))
        family = Family(folder)
        redis = valkey.start(folder / "redis")
        cleanup.callback(redis.stop)
        cleanup.callback(family.stop)
        bot_port = valkey.free_port()
        bot_url = f"http://127.0.0.1:{bot_port}"
        secret, alert_token = secrets.token_hex(16), secrets.token_hex(16)
        kubernetes = family.start("kubernetes", "bot.sandbox.kubernetes", "--seed-world", "demo", "--die-with-parent")[
            "url"
        ]
        fleet = family.start(
            "fleet", "bot.sandbox.fleet", "--api", kubernetes, "--startup-seconds", str(startup_seconds),
            "--time-scale", "0.3", "--die-with-parent",
        )["url"]  # fmt: skip
        slack = family.start(
            "slack", "bot.sandbox.slack", "--port", str(slack_port), "--bot-url", bot_url, "--signing-secret", secret,
            "--rate-limits", rate_limits, "--die-with-parent",
        )["url"]  # fmt: skip
        environment = bot_environment(
            redis_url=redis.url, port=bot_port, slack_url=slack, secret=secret, kubernetes_url=kubernetes,
            alert_token=alert_token, windows={**WINDOWS, **scenario.windows, **(settings or {})},
        )  # fmt: skip
        made = World(family, redis, bot_url, slack, kubernetes, fleet, folder, environment)
        made.wait_until_replicas_serve()
        if start_bot:
            made.start_bot()
        if with_alerting and scenario.rule:
            family.start(
                "alerting", "bot.sandbox.alerting", "--api", kubernetes, "--bot-url", bot_url,
                "--token", alert_token, "--for-seconds", str(ALERT_AFTER_SECONDS), "--rule", scenario.rule,
                "--ttft-target", str(seconds(scenario.windows.get("ttft_target", "500ms"))), "--die-with-parent",
            )  # fmt: skip
        yield made


def bot_environment(  # noqa: PLR0913 - one argument for each URL or secret of this world
    *,
    redis_url: str,
    port: int,
    slack_url: str,
    secret: str,
    kubernetes_url: str,
    alert_token: str,
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
        "INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": alert_token,
        "INCIDENT_BOT_APPROVALS_USER_GROUP": GROUP,
        "INCIDENT_BOT_APPROVALS_SINGLE_OPERATOR": "true",
        "INCIDENT_BOT_SET": ",".join(f"{name}={value}" for name, value in windows.items()),
        "INCIDENT_BOT_SAMPLING_WORKLOADS": "serving/llm",
        "INCIDENT_BOT_SAMPLING_EVERY": "2s",
        "INCIDENT_BOT_LOG_FORMAT": "console",
    }
