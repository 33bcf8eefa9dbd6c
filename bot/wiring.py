"""Connects settings, adapters and the runtime. It contains no decision."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence

import structlog
from starlette.applications import Starlette

from bot.adapters import logs
from bot.adapters.alertmanager import read_webhook
from bot.adapters.checked_playbooks import CheckedPlaybooks
from bot.adapters.http_server import serve_until_stopped
from bot.adapters.incident_pages import IncidentPages
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.redis.sweep import RedisSweep
from bot.adapters.redis.viewers import RedisViewers
from bot.adapters.redis.watch_log import RedisWatchLog
from bot.adapters.slack.inbound.app import bolt_app, endpoint
from bot.adapters.slack.inbound.socket_mode import listening
from bot.adapters.slack.outbound.home import Homes
from bot.adapters.slack.outbound.old_cards import highest_number
from bot.adapters.slack.services import Services
from bot.adapters.web import Credentials, Endpoints, create_app
from bot.adapters.yaml_playbooks import FileHashes, StoredPlaybooks, load_folders
from bot.dependencies import (
    Dependencies,
    OneCluster,
    SystemClock,
    chart_png,
    chart_svg,
    draw_png,
    one_of,
    open_dependencies,
    page_links,
    people_of_homes,
    signing_secret,
)
from bot.domain.approvals.kinds import PULL_REQUEST, SILENCE
from bot.domain.incidents.machine import Rules
from bot.flow.compare_clocks import CompareClocks
from bot.flow.handlers.draw_path import DrawForChannel
from bot.flow.health import Health
from bot.flow.keep_epoch import KeepEpoch
from bot.flow.live_playbooks import LivePlaybooks
from bot.flow.notify_once import NotifyOnce
from bot.flow.open_by_hand import OpenByHand
from bot.flow.plan_windows import PlanWindows
from bot.flow.playbook_service import PlaybookService
from bot.flow.reconcile import logged
from bot.flow.restrictions import Restrictions
from bot.flow.sweep_storage import SweepStorage
from bot.flow.weekly_summary import WeeklySummary
from bot.probes.catalogue import PROBES
from bot.runtime import Pictures, Ports, Runtime
from bot.settings import Settings

log = structlog.get_logger()


@contextlib.asynccontextmanager
async def running(settings: Settings, facts: logs.Facts) -> AsyncIterator[Starlette]:
    """Runs the whole bot in this process; yields the application that listens."""
    async with contextlib.AsyncExitStack() as stack:
        changed = asyncio.Event()
        on = open_dependencies(settings, facts, stack)
        notify_once = NotifyOnce(on.storage.store, on.slack.messenger)
        playbooks = LivePlaybooks(
            lambda: load_folders(settings.playbooks, settings.overrides, before=CheckedPlaybooks(PROBES)),
            FileHashes(settings.playbooks),
            notify_once,
            notify_once.forget,
        )
        runtime = runtime_of(settings, on, playbooks, changed)
        services = services_of(settings, on, runtime, playbooks)
        for_homes = dataclasses.replace(services, people=people_of_homes(settings, on.storage, on.slack))
        homes = Homes(on.slack.outgoing, for_homes, RedisViewers(on.storage.connection), on.slack.pace, changed)
        epoch = keep_epoch(settings, on, runtime, notify_once)
        clocks = CompareClocks(on.storage.store.now, time.time)
        reconcile = runtime.reconcile(
            look=epoch.once,
            besides={
                "playbooks.not_refreshed": playbooks.refresh,
                "homes.not_refreshed": homes.once,
            },
            seldom={
                "clocks.not_compared": clocks.once,
                "incidents.not_looked_at": on.storage.store.look_for_newer,
                "observed.not_told": WeeklySummary(on.storage.store, notify_once).once,
                "storage.not_swept": SweepStorage(on.storage.store, RedisSweep(on.storage.connection)).once,
            },
        )
        secret = signing_secret(settings)
        app = bolt_app(on.slack.client, services, homes, runtime.wake.answering)
        await warm_up(on)
        stack.push_async_callback(runtime.wake.stop)
        disconnected: Callable[[], Awaitable[str]] = _never
        if settings.slack.app_token is not None:
            token = settings.slack.app_token.get_secret_value()
            disconnected = await stack.enter_async_context(listening(app, on.slack.client, token))
        noticing = (each.notices for each in (epoch, playbooks, runtime.route, on.storage.store, clocks))
        health = health_of(on, tuple(noticing), disconnected, facts)
        endpoints = Endpoints(
            read=read_webhook,
            accept=runtime.accept(reconcile),
            not_ready=health.not_ready,
            metrics=health.metrics,
            slack=endpoint(app, secret),
            degraded=health.degraded,
            pages=IncidentPages(page_links(settings), on.storage.store.load, runtime.page, time.time).routes,
        )
        begin(reconcile.forever(), "reconcile", stack)
        begin(on.slack.people.keep_reading(), "people", stack)
        begin(epoch.forever(), "recover", stack)
        for name, one in on.clusters.items():
            wanted = one.settings.sampling
            sampling = runtime.sampling(name, wanted.named, every_seconds=wanted.every.total_seconds())
            begin(sampling.run(), one_of("sampling", one.among), stack)
        limit = settings.http.body_limit_bytes
        yield create_app(endpoints, credentials=credentials(settings), body_limit_bytes=limit)


def runtime_of(settings: Settings, on: Dependencies, playbooks: LivePlaybooks, changed: asyncio.Event) -> Runtime:
    ports = Ports(
        store=on.storage.store,
        claims=on.storage.claims,
        watch_log=RedisWatchLog(on.storage.connection),
        clusters={name: one.ports for name, one in on.clusters.items()},
        messenger=on.slack.messenger,
        people=on.slack.people,
        playbooks=playbooks,
        pictures=Pictures(chart_png, chart_svg, draw_png),
        pager=on.pagers,
        repositories=on.repositories,
        reports=on.reports,
        redacts_reports=settings.reports.redact_people,
        links=on.slack.messenger.links,
        silences=on.alertmanager,
        from_bundle=StoredPlaybooks(lambda: playbooks.library.playbooks),
        restrictions=restrictions_of(settings, on),
        deployment=settings.redis_tag,
    )
    rules = Rules(
        approvals=settings.approvals.rules(),
        contacts=settings.approvals.contacts(),
        dashboards=settings.dashboard.dashboards,
        status_every_seconds=settings.slack.status_every.total_seconds(),
        stores_reports=settings.reports.are_stored,
    )
    reopen = settings.reopen_within.total_seconds()
    return Runtime(ports, rules, reopen_within_seconds=reopen, changed=changed.set)


def restrictions_of(settings: Settings, on: Dependencies) -> Restrictions:
    return Restrictions(on.storage.windows, settings.observing, settings.window_rules)


def windows_of(settings: Settings, on: Dependencies, runtime: Runtime) -> PlanWindows:
    store, restrictions = on.storage.store, restrictions_of(settings, on)
    return PlanWindows(on.storage.windows, restrictions, store, store, runtime.wake.incident)


def services_of(settings: Settings, on: Dependencies, runtime: Runtime, playbooks: LivePlaybooks) -> Services:
    opening = OpenByHand(on.storage.store, playbooks, restrictions_of(settings, on), wake=runtime.wake.incident)
    rules = settings.approvals.rules()
    workloads = {name: one.kubernetes.port for name, one in on.clusters.items()}
    return Services(
        incidents=runtime.receive,
        people=on.slack.people,
        messenger=on.slack.messenger,
        clock=SystemClock(),
        playbooks=PlaybookService(lambda: playbooks.library, opening, runtime.advance.playbook_of, workloads),
        windows=windows_of(settings, on, runtime),
        links=on.slack.messenger.links,
        want_card=runtime.show_again.one,
        show_again=runtime.show_again.all_of,
        draw=DrawForChannel(on.slack.messenger.share, draw_png),
        deployment=settings.redis_tag,
        silencers=rules.deciders_of(SILENCE) if on.alertmanager else None,
        may_want_pull_request=rules.deciders_of(PULL_REQUEST) if on.repositories else None,
    )


def keep_epoch(settings: Settings, on: Dependencies, runtime: Runtime, notify_once: NotifyOnce) -> KeepEpoch:
    return KeepEpoch(
        on.storage.epochs,
        SystemClock(),
        old_cards=lambda: highest_number(
            on.slack.client, channels=settings.every_channel, deployment=settings.redis_tag
        ),
        firing=on.alertmanager,
        knows=runtime.route.knows,
        accept=runtime.accept_again,
        notify_once=notify_once,
    )


async def _never() -> str:
    """Over HTTP there is no connection to miss."""
    return ""


def health_of(
    on: Dependencies,
    noticing: Sequence[Callable[[], Mapping[str, str]]],
    disconnected: Callable[[], Awaitable[str]],
    facts: logs.Facts,
) -> Health:
    return Health(
        on.storage.store,
        clusters={one_of("kubernetes", one.among): one.kubernetes.client.trouble for one in on.clusters.values()},
        slack=lambda: on.slack.messenger.refused,
        slack_silent=lambda: on.slack.client.circuits.reason,
        slack_disconnected=disconnected,
        notices=lambda: dict(notice for each in noticing for notice in each().items()) | left_out(on),
        unsampled=lambda: sum(one.fleet.left_out.count for one in on.clusters.values()),
        page=facts.page,
    )


def left_out(on: Dependencies) -> dict[str, str]:
    """By cluster, if there are several."""
    each = ((one.among, one.fleet.left_out.notices()) for one in on.clusters.values())
    return {one_of(name, among): text for among, notices in each for name, text in notices.items()}


def credentials(settings: Settings) -> Credentials | None:
    sender = settings.alertmanager
    if sender.bearer_token is not None:
        return Credentials.bearer(sender.bearer_token.get_secret_value)
    if sender.password is not None:
        return Credentials.basic(sender.user, sender.password.get_secret_value)
    return None


def begin(work: Coroutine[None, None, None], name: str, stack: contextlib.AsyncExitStack) -> None:
    """Runs beside the application until the application ends. A failure of `work` is logged at once."""
    stack.push_async_callback(_end, asyncio.create_task(logged(work, f"{name}.failed"), name=name))


async def _end(task: asyncio.Task[bool]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def warm_up(on: Dependencies) -> None:
    """Imports the client early: the second that it takes must not count against the first alert's two-second lookup."""
    await asyncio.gather(*map(_warm_up, on.clusters.items()))


async def _warm_up(named: tuple[str, OneCluster]) -> None:
    name, one = named
    try:
        await one.kubernetes.client.open()
    except NotSentError as error:
        log.warning("cluster.unreachable", cluster=name, reason=str(error))


async def serve(settings: Settings) -> None:
    """Runs the bot until SIGTERM or SIGINT; prints `ready {json}` on standard output once it listens."""
    facts = logs.Facts()
    logs.configure(facts, level=settings.log.level, style=settings.log.format)
    async with running(settings, facts) as app:
        # The playbooks and the libraries are never freed; without them a collection takes no time.
        gc.collect()
        gc.freeze()
        await serve_until_stopped(app, host=settings.http.host, port=settings.http.port)
