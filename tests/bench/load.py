"""Webhooks and signed presses, and two ways to send them: as fast as they are answered, or at planned times.

Everything is built before the clock starts, and counted: no load without an end.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

import aiohttp

from bot.adapters.slack.press_value import CHOOSE, ButtonValue

NAMESPACE = "bench"
USER = "U0ANA"
TIMEOUT_SECONDS = 30.0


class BenchError(Exception):
    """A system did not do what was asked of it; its speed then means nothing."""


@dataclass(frozen=True)
class Post:
    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Answered:
    began: float
    """Monotonic seconds: when it left, or when it should have, so that a slow system does not slow its own load."""
    ended: float


def webhook(target: str, *, alerts: int, token: str) -> Post:
    """One group about one workload, an alert for each of its pods."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shared = {"alertname": "VllmKVCacheThrash", "severity": "warning", "namespace": NAMESPACE, "deployment": target}
    body = {
        "version": "4",
        "groupKey": f'{{}}:{{deployment="{target}"}}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "incident-bot",
        "groupLabels": {"deployment": target},
        "commonLabels": shared,
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.bench",
        "alerts": [_alert(shared | {"pod": f"{target}-{number}"}, now) for number in range(alerts)],
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    return Post("/alertmanager", json.dumps(body).encode(), headers)


def _alert(labels: dict[str, str], now: str) -> dict[str, object]:
    return {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "More than one request in ten is preempted", "description": "As the rule has it."},
        "startsAt": now,
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.bench/graph",
        "fingerprint": hashlib.sha256(json.dumps(labels).encode()).hexdigest()[:16],
    }


def press(incident_id: str, number: int, *, channel: str, secret: str) -> Post:
    """A press like Slack's, each one a different click."""
    value = ButtonValue(incident_id, about="Q1", choice="first").packed()
    action = {"type": "button", "action_id": f"{CHOOSE}0", "block_id": "b", "value": value}
    payload = {
        "type": "block_actions",
        "user": {"id": USER, "username": "ana", "team_id": "T0BENCH"},
        "team": {"id": "T0BENCH"},
        "api_app_id": "A0BENCH",
        "trigger_id": "1.2.3",
        "channel": {"id": channel},
        "container": {"type": "message", "message_ts": "1.000001", "channel_id": channel},
        "response_url": "",
        "actions": [{**action, "action_ts": f"{number}.000000"}],
    }
    return _signed({"payload": json.dumps(payload)}, secret)


def press_id(number: int, *, channel: str) -> str:
    """The id that the bot gives to that press."""
    return id_of_press(channel, "1.000001", f"{number}.000000", USER)


def id_of_press(channel: str, message_ts: str, action_ts: str, user: str) -> str:
    return hashlib.sha256(f"{channel}/{message_ts}/{action_ts}/{user}".encode()).hexdigest()[:24]


def command(incident_id: str, number: int, *, channel: str, secret: str) -> Post:
    """Each one another note."""
    return slash_command(f"note {incident_id} number {number}", number, channel=channel, secret=secret)


def slash_command(text: str, number: int, *, channel: str, secret: str) -> Post:
    """A slash command like Slack's."""
    form = {
        "command": "/incident",
        "text": text,
        "user_id": USER,
        "user_name": "ana",
        "team_id": "T0BENCH",
        "api_app_id": "A0BENCH",
        "channel_id": channel,
        "trigger_id": f"{number}.2.3",
        "response_url": "",
    }
    return _signed(form, secret)


def _signed(form: Mapping[str, str], secret: str) -> Post:
    body = urlencode(form).encode()
    stamp = str(int(time.time()))
    digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={digest}",
    }
    return Post("/slack/events", body, headers)


def session(connections: int) -> aiohttp.ClientSession:
    """Connections that are kept and used again."""
    connector = aiohttp.TCPConnector(limit=connections)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS))


async def back_to_back(url: str, posts: Sequence[Post], *, connections: int) -> list[Answered]:
    """Send each as soon as a connection is free."""
    waiting = iter(posts)
    answered: list[Answered] = []

    async def one_connection(client: aiohttp.ClientSession) -> None:
        for post in waiting:
            began = time.monotonic()
            answered.append(await _send(client, url, post, began))

    async with session(connections) as client:
        await asyncio.gather(*(one_connection(client) for _ in range(connections)))
    return answered


async def at_planned_times(url: str, posts: Sequence[Post], *, per_second: float) -> list[Answered]:
    """Send each at its time, whatever became of those before; the answers in the order of the posts."""
    start = time.monotonic() + 0.2

    async def one(client: aiohttp.ClientSession, planned: float, post: Post) -> Answered:
        await asyncio.sleep(planned - time.monotonic())
        return await _send(client, url, post, planned)

    async with session(64) as client:
        planned = (start + number / per_second for number in range(len(posts)))
        return await asyncio.gather(*(one(client, at, post) for at, post in zip(planned, posts, strict=False)))


async def _send(client: aiohttp.ClientSession, url: str, post: Post, began: float) -> Answered:
    async with client.post(url + post.path, data=post.body, headers=post.headers) as answer:
        text = await answer.text()
    if answer.status != 200:
        raise BenchError(f"{post.path} was answered with {answer.status}: {text[:200]}")
    return Answered(began, time.monotonic())


def targets(prefix: str, count: int) -> tuple[str, ...]:
    """Every incident has a workload of its own, since a second alert about one would join its incident."""
    return tuple(f"{prefix}-{number:04d}" for number in range(count))
