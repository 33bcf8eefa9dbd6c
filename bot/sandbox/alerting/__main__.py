"""`python -m bot.sandbox.alerting --api URL --bot-url URL --token T`: watch the fleet, post webhooks until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import structlog

from bot.sandbox.alerting.rule import CrashRule, HeatRule, Rule, SloRule, ThrashRule, XidRule, state_page
from bot.sandbox.lifetime import die_with_parent

log = structlog.get_logger()
NAMESPACE, WORKLOAD = "serving", "llm"
RETRY_SECONDS = 2.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bot.sandbox.alerting", description=__doc__)
    parser.add_argument("--api", required=True, help="URL of the Kubernetes API")
    parser.add_argument("--bot-url", required=True)
    parser.add_argument("--token", required=True, help="bearer token of the bot's receiver")
    parser.add_argument(
        "--rule", choices=("thrash", "xid", "heat", "slo", "crash"), default="thrash", help="what is watched"
    )
    parser.add_argument("--ttft-target", type=float, default=0.5, help="seconds, of the rule slo")
    parser.add_argument("--window-seconds", type=float, default=10.0)
    parser.add_argument("--for-seconds", type=float, default=3.0)
    parser.add_argument("--die-with-parent", action="store_true")
    return parser.parse_args()


class Watcher:
    def __init__(self, client: httpx.AsyncClient, options: argparse.Namespace) -> None:
        self._client, self._options = client, options
        self._rule = rule_of(options)
        self._firing_since: datetime | None = None

    async def forever(self) -> None:
        while True:
            try:
                await self._tell(fires=self._rule.look(await self._pages(), time.time()))
            except httpx.HTTPError as error:
                log.warning("round.failed", reason=str(error) or type(error).__name__)
            await asyncio.sleep(1.0)

    async def _pages(self) -> dict[str, str]:
        selector, port = self._rule.pages
        answer = await self._client.get(f"{self._options.api}/api/v1/pods", params={"labelSelector": selector})
        answer.raise_for_status()
        if not port:
            return {pod["metadata"]["name"]: state_page(pod) for pod in answer.json()["items"]}
        pods = [pod for pod in answer.json()["items"] if pod.get("status", {}).get("podIP")]
        found = await asyncio.gather(*(self._page(f"{pod['status']['podIP']}:{port}") for pod in pods))
        names = [pod["metadata"]["name"] for pod in pods]
        return {name: page for name, page in zip(names, found, strict=True) if page is not None}

    async def _page(self, address: str) -> str | None:
        """A replica that starts or ends has no page; Prometheus would miss that scrape too."""
        try:
            return (await self._client.get(f"http://{address}/metrics")).raise_for_status().text
        except httpx.HTTPError:
            return None

    async def _tell(self, *, fires: bool) -> None:
        """Post when the state changes, until the bot has stored it, as Alertmanager does."""
        if fires == (self._firing_since is not None):
            return
        now = datetime.now(UTC)
        started = self._firing_since or now
        payload = webhook(self._rule, started, None if fires else now)
        while True:
            headers = {"Authorization": f"Bearer {self._options.token}"}
            try:
                answer = await self._client.post(f"{self._options.bot_url}/alertmanager", json=payload, headers=headers)
                answer.raise_for_status()
                break
            except httpx.HTTPError as error:
                log.warning("webhook.retried", reason=str(error) or type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
        self._firing_since = now if fires else None


def rule_of(options: argparse.Namespace) -> Rule:
    match options.rule:
        case "xid":
            return XidRule()
        case "heat":
            return HeatRule()
        case "crash":
            return CrashRule()
        case "slo":
            return SloRule(options.window_seconds, options.for_seconds, options.ttft_target)
        case _:
            return ThrashRule(options.window_seconds, options.for_seconds)


def webhook(rule: Rule, started: datetime, ended: datetime | None) -> dict[str, Any]:
    """Alertmanager's webhook, version 4."""
    status = "resolved" if ended else "firing"
    labels = {
        "alertname": rule.alertname,
        "namespace": NAMESPACE,
        "deployment": WORKLOAD,
        "severity": "warning",
        "cluster": "sandbox",
    }
    alert = {
        "status": status,
        "labels": labels,
        "annotations": {"summary": rule.summary},
        "startsAt": started.isoformat().replace("+00:00", "Z"),
        "endsAt": ended.isoformat().replace("+00:00", "Z") if ended else "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus.sandbox/graph",
        "fingerprint": "5a4db0c5f00dcafe",
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{rule.alertname}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "incident-bot",
        "groupLabels": {"alertname": rule.alertname},
        "commonLabels": labels,
        "commonAnnotations": {"summary": rule.summary},
        "externalURL": "http://alertmanager.sandbox",
        "alerts": [alert],
    }


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with httpx.AsyncClient(timeout=3.0) as client:
        watching = asyncio.create_task(Watcher(client, options).forever())
        print(f"ready {json.dumps({})}", flush=True)
        await stop.wait()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def main() -> None:
    options = _options()
    if options.die_with_parent:
        die_with_parent()
    asyncio.run(_run(options))


if __name__ == "__main__":
    main()
