"""A running world and everything that a test may observe from outside: Slack, the cluster's journal, the timeline."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx
import redis

from bot.adapters.redis.connection import Connection
from bot.adapters.redis.samples import RedisSamples
from bot.adapters.redis.store import RedisStore
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained, Entry
from bot.sandbox import demo
from bot.sandbox.approver import Approver
from bot.sandbox.plain_http import http
from bot.sandbox.scenarios import THRASH
from tests.open_index import faults_of
from tests.waiting import until

T = TypeVar("T")
Json = dict[str, Any]
FIRST = "INC-1"
WORKLOAD = Target(cluster="sandbox", namespace="serving", kind="Deployment", name="llm")
SHORT = {"window": "8s", "length_window": "10s", "stall_window": "8s", "calm_for": "8s", "flap_for": "10s"}


class Stored:
    """Reads what the bot has stored, on one event loop and one connection.

    A test that polls would otherwise use more CPU than the bot that it watches.
    """

    def __init__(self, redis_url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = Connection.open(redis_url, tag="bot")
        self.store = RedisStore(self._connection, owner="test")
        self.samples = RedisSamples(self._connection)

    def read(self, reading: Callable[[], Awaitable[T]]) -> T:
        """Reads again once: that the server closed the idle connection is only noticed by using it."""
        with contextlib.suppress(StorageUnavailableError):
            return self._loop.run_until_complete(reading())
        return self._loop.run_until_complete(reading())

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()


@dataclass
class Stage:
    """`actions` is what the scripted approver did, in order."""

    world: demo.World
    actions: list[str] = field(default_factory=list)
    _http: httpx.Client = field(default_factory=http)

    def __post_init__(self) -> None:
        self._approver = Approver(self.world.slack_url, demo.CHANNEL, THRASH.answers, self.actions.append)
        self._stored = Stored(self.world.redis_url)

    def close(self) -> None:
        self._stored.close()

    # --- what people do ----------------------------------------------------------------------------------------------

    def pressing_until(self, condition: Callable[[], T | None], what: str, within: float) -> T:
        """The approver presses whatever waits, until `condition`."""

        def look() -> T | None:
            self._approver.look()
            return condition()

        return until(look, what, within, seen=self.describe)

    def has_pressed(self, button: str, about: str) -> bool:
        return any(f"'{button}'" in line and about in line for line in self.actions)

    def press(self, user: str, message: Json, action_id: str, **more: object) -> Json:
        """One person's click on the button with `action_id`; what that person gets to see."""
        where = {"user": user, "channel": demo.CHANNEL, "ts": message["ts"], "action_id": action_id}
        answer = self._http.post(f"{self.world.slack_url}/__sandbox__/press", json=where | more)
        result: Json = answer.raise_for_status().json()
        return result

    def slack_fails(self, *faults: Json) -> None:
        self._http.post(f"{self.world.slack_url}/__sandbox__/faults", json=list(faults)).raise_for_status()

    # --- what Alertmanager does --------------------------------------------------------------------------------------

    @property
    def token(self) -> str:
        return self.world.bot_environment["INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN"]

    def post(self, content: bytes, token: str | None = None) -> httpx.Response:
        """To the bot's receiver, as Alertmanager does."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return self._http.post(f"{self.world.bot_url}/alertmanager", content=content, headers=headers)

    # --- what can be seen --------------------------------------------------------------------------------------------

    def run(self, incident_id: str = FIRST) -> Run | None:
        """None while there is no such run, or while the storage is away."""
        with contextlib.suppress(StorageUnavailableError):
            return self._stored.read(lambda: self._stored.store.load(incident_id))
        return None

    def state(self, incident_id: str = FIRST) -> str:
        run = self.run(incident_id)
        return run.visit.state if run else ""

    def closed_run(self, incident_id: str = FIRST) -> Run | None:
        run = self.run(incident_id)
        return run if run and not run.is_open else None

    def has_history_of(self, seconds: float) -> bool:
        """Whether the bot has sampled the workload for that long."""
        samples = self._stored.read(lambda: self._stored.samples.between(WORKLOAD.key, 0, time.time()))
        at = [scrape.at for scrape in samples]
        return bool(at) and max(at) - min(at) >= seconds

    def timeline(self, incident_id: str = FIRST) -> Sequence[Chained]:
        return self._stored.read(lambda: self._stored.store.timeline(incident_id))

    def unmatched(self) -> Sequence[tuple[Alert, str]]:
        """The newest alerts that opened no incident, each with its reason."""
        return self._stored.read(lambda: self._stored.store.unmatched(10))

    def entries(self, kind: str, incident_id: str = FIRST) -> list[Entry]:
        return [item.entry for item in self.timeline(incident_id) if item.entry.kind == kind]

    def messages(self, user: str = "") -> list[Json]:
        """The channel's messages; with `user` also what only that person sees."""
        asked = {"channel": demo.CHANNEL} | ({"user": user} if user else {})
        found: list[Json] = self._http.get(f"{self.world.slack_url}/__sandbox__/messages", params=asked).json()
        return found

    def message(self, words: str, user: str = "") -> Json | None:
        """The newest message whose notification contains `words`."""
        return next((m for m in reversed(self.messages(user)) if words in m.get("text", "")), None)

    def whispers(self, user: str) -> list[str]:
        """What the bot showed to this person alone."""
        return [m.get("text", "") for m in self.messages(user) if m.get("is_ephemeral")]

    def cluster(self, path: str) -> Json:
        found: Json = self._http.get(f"{self.world.kubernetes_url}{path}").raise_for_status().json()
        return found

    def changes(self) -> list[tuple[str, str]]:
        """Verb and path of each mutating request that succeeded; rehearsals do not count."""
        journal: list[Json] = self._http.get(f"{self.world.kubernetes_url}/__sandbox__/mutations").json()
        return [(noted["verb"], noted["path"]) for noted in journal if not noted["dryRun"]]

    def describe(self) -> str:
        """Where everything stands, for the message of a test that waited in vain."""
        run = self.run()
        where = f"{run.incident_id} in '{run.visit.machine_state}'" if run else "no incident"
        tail = [f"{item.entry.kind}: {item.entry.text[:160]}" for item in self.timeline()[-40:]] if run else []
        return "\n  ".join([f"{where}; pressed: {self.actions[-2:]}", *tail])


def slots(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The key of each of the bot's messages: every one should be there once."""
    payloads = [(message.get("metadata") or {}).get("event_payload") for message in messages]
    return [payload["slot"] for payload in payloads if payload]


def alert(name: str = "VllmKVCacheThrash", status: str = "firing", **labels: str) -> Json:
    named = {"alertname": name, "namespace": "serving", "deployment": "llm", "severity": "warning"}
    ended = datetime.now(UTC) if status == "resolved" else datetime(1, 1, 1, tzinfo=UTC)
    return {
        "status": status,
        "labels": named | labels,
        "annotations": {"summary": f"{name} on {labels.get('deployment', 'llm')}"},
        "startsAt": STARTED.isoformat(),
        "endsAt": ended.isoformat(),
        "generatorURL": "",
    }


def webhook(*alerts: Json, **fields: object) -> Json:
    """Alertmanager's webhook, version 4."""
    return {"version": "4", "groupKey": "{}", "status": "firing", "receiver": "bot", "alerts": list(alerts), **fields}


def as_body(payload: Json) -> bytes:
    return json.dumps(payload).encode()


STARTED = datetime.now(UTC)


@contextlib.contextmanager
def stage(*, with_alerting: bool = True, start_bot: bool = True, **settings: str) -> Iterator[Stage]:
    """At its end the index of open incidents must be right, whatever happened."""
    shortened = SHORT | settings
    with (
        demo.world(settings=shortened, with_alerting=with_alerting, start_bot=start_bot) as world,
        contextlib.closing(Stage(world)) as staged,
    ):
        yield staged
        with redis.Redis.from_url(world.redis_url, decode_responses=True) as client:
            assert faults_of(client) == []
