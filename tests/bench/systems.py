"""The compared systems, each as one process beside the same Redis, Slack and Kubernetes simulators."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import redis

from bot.domain.incidents.run import Run, TimelineHead
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.timeline import GENESIS
from bot.sandbox import demo, valkey
from tests import processes
from tests.bench.load import BenchError

CARDS_WITHIN_SECONDS = 60.0
POLL_SECONDS = 0.25
NAME = re.compile(r"[a-z]+-\d{4}")
"""The names that `targets` gives."""
CROWD_FROM, CROWD_AT_A_TIME = 100_000, 500
OPEN_STATE = "unreadable"
"""A question of kv-cache-oom, which the alerts of the bench open."""
UNPACED = {
    # Slack's pace is the bot's by design; here Slack answers at once, and what is measured is the bot.
    "INCIDENT_BOT_SLACK_POSTS_PER_SECOND": "10000",
    "INCIDENT_BOT_SLACK_POSTS_BURST": "10000",
    "INCIDENT_BOT_SLACK_UPDATES_PER_MINUTE": "100000",
    "INCIDENT_BOT_SLACK_CARDS_PER_MINUTE": "10000",
}


@dataclass(frozen=True)
class Card:
    text: str
    at: float
    """Monotonic seconds when Slack got it."""
    incident_id: str


@dataclass(frozen=True)
class Surroundings:
    """What both systems talk to. Secrets are made for this run."""

    redis_url: str
    slack_url: str
    kubernetes_url: str
    signing_secret: str
    alert_token: str
    forks: bool = False
    """Start both systems as forks: quicker, but memory is shared and their imports are not measured."""

    def forget(self) -> None:
        """An empty Redis and an empty Slack, so that nothing of an earlier measurement is left to do."""
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()
        httpx.post(f"{self.slack_url}/__sandbox__/reset").raise_for_status()

    def crowd(self, incident_id: str, count: int) -> Sequence[str]:
        """As many open incidents beside this one, each like it and on a workload of its own."""
        with redis.Redis.from_url(self.redis_url, decode_responses=True) as client:
            stored = client.get("{bot}:run:" + incident_id)
            if stored is None:
                raise BenchError(f"{incident_id} is not stored")
            pattern = StoredForm().run(stored)
            crowd = [_like(pattern, number) for number in range(count)]
            for start in range(0, count, CROWD_AT_A_TIME):
                with client.pipeline(transaction=False) as several:
                    for run in crowd[start : start + CROWD_AT_A_TIME]:
                        several.set("{bot}:run:" + run.incident_id, StoredForm().text(run))
                        several.hset("{bot}:open", run.target.key, run.incident_id)
                        several.zadd("{bot}:incidents", {run.incident_id: run.opened_at})
                    several.execute()
        return [run.incident_id for run in crowd]

    def calls(self) -> int:
        """How many calls Slack has received."""
        found = httpx.get(f"{self.slack_url}/__sandbox__/calls", timeout=30)
        return len(found.raise_for_status().json())

    def wait_for_cards(self, names: Sequence[str], *, within: float = CARDS_WITHIN_SECONDS) -> Mapping[str, Card]:
        """The card of each workload. Raise `BenchError` when one is missing or doubled: what is lost is not fast."""
        deadline = time.monotonic() + within
        while True:
            found = _by_name(self._cards(), names)
            if all(found.values()):
                break
            if time.monotonic() > deadline:
                came = sum(map(bool, found.values()))
                raise BenchError(f"{came} of {len(names)} cards came within {within:.0f} s")
            # Thousands of calls take a while to list, and the simulator is not what is measured.
            time.sleep(max(POLL_SECONDS, len(names) / 1000))
        if doubled := [name for name, cards in found.items() if len(cards) > 1]:
            raise BenchError(f"{', '.join(doubled)}: more than one card")
        return {name: cards[0] for name, cards in found.items()}

    def _cards(self) -> list[Card]:
        """What was posted into the channel itself, without threads."""
        found = httpx.get(f"{self.slack_url}/__sandbox__/calls", params={"method": "chat.postMessage"}, timeout=30)
        posted = [(call["args"], call["at"]) for call in found.raise_for_status().json()]
        return [
            Card(args["text"], at, str(_slot(args.get("metadata"))).partition("/")[0])
            for args, at in posted
            if not args.get("thread_ts")
        ]


def _by_name(cards: Sequence[Card], names: Sequence[str]) -> dict[str, list[Card]]:
    found: dict[str, list[Card]] = {name: [] for name in names}
    for card in cards:
        for name in set(NAME.findall(card.text)) & found.keys():
            found[name].append(card)
    return found


def _like(pattern: Run, number: int) -> Run:
    """It is open, in a question that nobody put: nothing waits or is due in it."""
    target = pattern.target.model_copy(update={"name": f"crowd-{number:04d}"})
    visit = pattern.visit.model_copy(update={"state": OPEN_STATE, "machine_state": OPEN_STATE})
    return pattern.with_(
        incident_id=f"INC-{CROWD_FROM + number}", target=target, deadlines={}, closed_at=None, ending="",
        visit=visit, timeline=TimelineHead(hash=GENESIS, length=0),
    )  # fmt: skip


def _slot(metadata: object) -> object:
    return metadata.get("event_payload", {}).get("slot", "") if isinstance(metadata, dict) else ""


@dataclass(frozen=True)
class System:
    name: str
    url: str
    pid: int

    def cpu_seconds(self) -> float:
        """User and system time of the process so far, from /proc."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def surroundings(*, forks: bool = False) -> Iterator[Surroundings]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        server = valkey.start(folder)
        stack.callback(server.stop)
        secret, token = secrets.token_hex(16), secrets.token_hex(16)
        # The presses are signed and sent from here: the simulator never calls anybody.
        slack = stack.enter_context(
            processes.running(
                "bot.sandbox.slack", "--bot-url", "http://127.0.0.1:9", "--signing-secret", secret,
                "--rate-limits", "off", "--die-with-parent",
            )
        )  # fmt: skip
        # Empty: it answers at once that no such workload exists, and the bot takes the labels' word.
        kubernetes = stack.enter_context(processes.running("bot.sandbox.kubernetes", "--die-with-parent"))
        yield Surroundings(server.url, slack.url, kubernetes.url, secret, token, forks)


@contextlib.contextmanager
def floor(around: Surroundings) -> Iterator[System]:
    arguments = {
        "--redis-url": around.redis_url,
        "--slack-url": f"{around.slack_url}/api/",
        "--slack-token": demo.TOKEN,
        "--signing-secret": around.signing_secret,
        "--channel": demo.CHANNEL,
        "--token": around.alert_token,
    }
    flat = (part for pair in arguments.items() for part in pair)
    with processes.running("tests.bench.floor", *flat, own_interpreter=not around.forks) as process:
        yield System("floor", process.url, process.process.pid)


def settings_of_bot(around: Surroundings) -> dict[str, str]:
    """As in production: no cluster label in the alerts, and logs as JSON."""
    settings = demo.bot_environment(
        redis_url=around.redis_url,
        port=0,
        slack_url=around.slack_url,
        secret=around.signing_secret,
        kubernetes_url=around.kubernetes_url,
        alert_token=around.alert_token,
        windows={},
    )
    return {
        **settings, **UNPACED,
        "INCIDENT_BOT_LOG_FORMAT": "json", "INCIDENT_BOT_HTTP_PUBLIC_URL": "http://incidents.bench",
    }  # fmt: skip


@contextlib.contextmanager
def bot(around: Surroundings) -> Iterator[System]:
    environment = {**os.environ, **settings_of_bot(around)}
    with processes.start("bot", "serve", env=environment, own_interpreter=not around.forks) as process:
        yield System("bot", process.url, process.process.pid)


SYSTEMS = {"floor": floor, "bot": bot}
