"""`python -m bot.sandbox.alerting --api URL --bot-url URL --token T`: watch the fleet, tell the bot, until SIGTERM.

One `ready` line on standard output says where Alertmanager's API is. Pagers and GitHub listen there too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from datetime import UTC, datetime

import httpx
import structlog
import uvloop
from aiohttp import web

from bot.sandbox.alerting.alertmanager import Alert, Alertmanager, webhook
from bot.sandbox.alerting.api import AlertmanagerRoutes
from bot.sandbox.alerting.pagers import PagerRoutes, Pagers
from bot.sandbox.alerting.rule import CrashRule, HeatRule, Rule, SloRule, ThrashRule, XidRule, labels_of, state_page
from bot.sandbox.github import GitHubRoutes, Repository
from bot.sandbox.lifetime import die_with_parent
from bot.sandbox.plain_http import async_http
from bot.sandbox.surroundings import FILE, GIT, MERGE, REPOSITORY, in_git

log = structlog.get_logger()
LOOK_EVERY_SECONDS = 1.0
"""How soon the end of a silence is noticed."""
RETRY_SECONDS = 2.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bot.sandbox.alerting", description=__doc__)
    parser.add_argument("--api", required=True, help="URL of the Kubernetes API")
    parser.add_argument("--bot-url", required=True)
    parser.add_argument("--token", required=True, help="bearer token of the bot's receiver")
    parser.add_argument("--port", type=int, default=0, help="of Alertmanager's API; 0 picks a free one")
    parser.add_argument(
        "--rule",
        choices=("thrash", "xid", "heat", "slo", "crash", "none"),
        default="thrash",
        help="what is watched; none: only what is posted to /api/v2/alerts fires",
    )
    parser.add_argument("--ttft-target", type=float, default=0.5, help="seconds, of the rule slo")
    parser.add_argument("--pager-key", default="", help="of Opsgenie, and of the webhook's signature")
    parser.add_argument("--window-seconds", type=float, default=10.0)
    parser.add_argument("--for-seconds", type=float, default=3.0)
    parser.add_argument("--die-with-parent", action="store_true")
    return parser.parse_args()


class Watcher:
    """Prometheus' part: scrapes, evaluates one rule, and reports what fires."""

    def __init__(self, client: httpx.AsyncClient, api: str, rule: Rule, alertmanager: Alertmanager) -> None:
        self._client, self._api, self._rule, self._alertmanager = client, api, rule, alertmanager
        self._firing: Alert | None = None

    async def forever(self) -> None:
        while True:
            try:
                self._update_alert(fires=self._rule.look(await self._pages(), time.time()))
            except httpx.HTTPError as error:
                log.warning("round.failed", reason=str(error) or type(error).__name__)
            await asyncio.sleep(1.0)

    async def _pages(self) -> dict[str, str]:
        selector, port = self._rule.pages
        answer = await self._client.get(f"{self._api}/api/v1/pods", params={"labelSelector": selector})
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

    def _update_alert(self, *, fires: bool) -> None:
        now = datetime.now(UTC)
        if fires and self._firing is None:
            self._firing = alert_of(self._rule, now)
            self._alertmanager.put([self._firing], now)
        elif not fires and self._firing is not None:
            self._alertmanager.put([self._firing.model_copy(update={"ends_at": now})], now)
            self._firing = None


class Notifier:
    """Notifies the bot of each alert until the bot has stored it."""

    def __init__(self, client: httpx.AsyncClient, alertmanager: Alertmanager, bot_url: str, token: str) -> None:
        self._client, self._alertmanager = client, alertmanager
        self._url, self._headers = f"{bot_url}/alertmanager", {"Authorization": f"Bearer {token}"}
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def forever(self) -> None:
        while True:
            self._changed.clear()
            for alert in self._alertmanager.pending(datetime.now(UTC)):
                await self._notify(alert, is_over=alert.is_over(datetime.now(UTC)))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOOK_EVERY_SECONDS)

    async def _notify(self, alert: Alert, *, is_over: bool) -> None:
        try:
            answer = await self._client.post(self._url, json=webhook(alert, is_over=is_over), headers=self._headers)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            log.warning("webhook.retried", reason=str(error) or type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self._alertmanager.mark_notified(alert, is_over=is_over)


def rule_of(options: argparse.Namespace) -> Rule | None:
    match options.rule:
        case "none":
            return None
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


def alert_of(rule: Rule, started: datetime) -> Alert:
    return Alert(labels=labels_of(rule.alertname), annotations={"summary": rule.summary}, startsAt=started)


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    alertmanager, rule = Alertmanager(), rule_of(options)
    async with async_http(timeout=3.0) as client:
        notifier = Notifier(client, alertmanager, options.bot_url, options.token)
        pagers = Pagers(opsgenie_keys=(options.pager_key,), webhook_secret=options.pager_key)
        github = Repository(REPOSITORY, options.token)
        routes = [
            *AlertmanagerRoutes(alertmanager, notifier.changed).routes(),
            *PagerRoutes(pagers).routes(),
            *GitHubRoutes(github, lambda: _to_the_cluster(client, options.api, github)).routes(),
        ]
        runner, url = await _listen(routes, options.port)
        work = [asyncio.create_task(notifier.forever(), name="notifier")]
        if rule is not None:
            watcher = Watcher(client, options.api, rule, alertmanager)
            work.append(asyncio.create_task(watcher.forever(), name="watcher"))
        print(f"ready {json.dumps({'url': url})}", flush=True)
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([*work, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()  # a loop that ended by itself ended with an error: raise it
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await runner.cleanup()


async def _to_the_cluster(client: httpx.AsyncClient, api: str, github: Repository) -> None:
    """Argo CD of the sandbox reads what is deployed from a ConfigMap."""
    body = json.dumps(in_git(github.deployed[FILE]))
    (await client.patch(api + GIT, content=body, headers=MERGE)).raise_for_status()


async def _listen(routes: list[web.RouteDef], port: int) -> tuple[web.AppRunner, str]:
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    host, bound = runner.addresses[0][:2]
    return runner, f"http://{host}:{bound}"


def main() -> None:
    options = _options()
    if options.die_with_parent:
        die_with_parent()
    # Standard output carries one line only, for the parent process.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    uvloop.run(_run(options))


if __name__ == "__main__":
    main()
