"""Joins flow to real adapters. It contains no decision."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field

import httpx
import structlog
import uvicorn
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette

from bot.adapters import logs
from bot.adapters.alertmanager import read_listed, read_webhook
from bot.adapters.alertmanager_api import AlertmanagerApi
from bot.adapters.docket import DocketAlarms
from bot.adapters.http_client import CircuitClient
from bot.adapters.http_server import bounded, limits_here
from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster
from bot.adapters.kubernetes.credentials import Connection as ClusterConnection
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.pod_exec import PodExec
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.pod_proxy import ProxyPages
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.adapters.pod_pages import AddressPages
from bot.adapters.prometheus.history import PrometheusHistory
from bot.adapters.prometheus.memory import PrometheusMemory
from bot.adapters.prometheus.router import PrometheusRouter
from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.digest import RedisDigest
from bot.adapters.redis.epoch import RedisEpoch
from bot.adapters.redis.loads import RedisLoads
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.people import RedisPeople
from bot.adapters.redis.samples import RedisSamples
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.store import RedisStore, StoreLimits
from bot.adapters.redis.viewers import RedisViewers
from bot.adapters.redis.watch_log import RedisWatchLog
from bot.adapters.slack.app import bolt_app, endpoint
from bot.adapters.slack.client import web_client, web_session
from bot.adapters.slack.digest import Digest, Folded, Kept
from bot.adapters.slack.home import Homes
from bot.adapters.slack.inbound import Desk
from bot.adapters.slack.messenger import Place, SlackMessenger
from bot.adapters.slack.old_cards import highest_number
from bot.adapters.slack.own_channel import ChannelRules
from bot.adapters.slack.people import SlackPeople
from bot.adapters.slack.shown import Shown
from bot.adapters.slack.socket_mode import listening
from bot.adapters.vllm import metrics as vllm_metrics
from bot.adapters.vllm.generations import VllmGenerations
from bot.adapters.vllm.scraper import VllmScraper
from bot.adapters.web import Credentials, Inside, create_app
from bot.adapters.yaml_playbooks import from_bundle, hashes_of, load_folders
from bot.domain.approvals.grant import Policy
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.run import Run
from bot.domain.incidents.series import Series
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import MessengerError, StorageUnavailableError
from bot.domain.kernel.target import Target
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.playbooks.picture.picture import Picture
from bot.domain.reports.chart import Chart
from bot.flow.advance_run import AdvanceRun
from bot.flow.circuit import Circuit
from bot.flow.handlers.draw_chart import ReadSeriesHandler
from bot.flow.handlers.draw_path import DrawForChannel
from bot.flow.hear_people import HearPeople
from bot.flow.keep_epoch import KeepEpoch
from bot.flow.live_playbooks import LivePlaybooks
from bot.flow.open_by_hand import OpenByHand
from bot.flow.playbook_shelf import PlaybookShelf
from bot.flow.ports import History, PodPages
from bot.flow.read_signals import ReadSignals
from bot.flow.recent_worlds import RecentWorlds
from bot.flow.reconcile import Reconcile
from bot.flow.sample_replicas import KeepSampling, SampledHistory, SampledWorkloads, WorldReplicas
from bot.flow.whole_timeline import whole_timeline
from bot.probes.catalogue import probe_readers
from bot.probes.declaration import Sources
from bot.runtime import Pictures, Ports, Runtime
from bot.settings import Settings

log = structlog.get_logger()
UPDATES_BURST = 10.0
HOME_EVERY_SECONDS = 10.0
"""How often one person's Home follows what changes."""
MEMBERS_SHOWN_SECONDS = 60.0
"""How old a membership may be where it decides only what a Home shows."""
STOP_SECONDS = 3


class SystemClock:
    def now(self) -> float:
        return time.time()


@dataclass(frozen=True)
class Circuits:
    """One for each dependency that effects wait for; Redis is not among them, since nothing goes on without it."""

    kubernetes: Circuit = field(default_factory=lambda: Circuit("the Kubernetes API"))
    prometheus: Circuit = field(default_factory=lambda: Circuit("Prometheus"))
    alertmanager: Circuit = field(default_factory=lambda: Circuit("Alertmanager"))

    def tell(self, facts: logs.Facts) -> None:
        for each in dataclasses.fields(self):
            facts.circuits[each.name] = getattr(self, each.name)


@dataclass(frozen=True)
class Cluster:
    """Everything that speaks to Kubernetes."""

    client: KubernetesClient
    port: KubernetesCluster
    writer: KubernetesWriter
    logs: KubernetesPodLogs


@dataclass(frozen=True)
class Storage:
    """Everything that speaks to Redis."""

    connection: Connection
    store: RedisStore
    claims: RedisClaims
    epochs: RedisEpoch


@dataclass(frozen=True)
class Talk:
    """Everything that speaks to Slack, but for the app that listens."""

    client: AsyncWebClient
    messenger: SlackMessenger
    people: SlackPeople
    pace: RedisPace


@dataclass(frozen=True)
class Sight:
    """Everything that reads the fleet."""

    signals: ReadSignals
    history: History
    scraped: SampledHistory
    """What runs on each replica now is always asked of the replicas themselves, whoever keeps the history."""
    scraper: VllmScraper
    generations: VllmGenerations


@dataclass(frozen=True)
class Core:
    """What decides and wakes."""

    runtime: Runtime
    library: LivePlaybooks
    alarms: DocketAlarms
    silencers: Policy | None
    """Who may silence; None where Alertmanager's address is not known."""
    alertmanager: AlertmanagerApi | None
    changed: asyncio.Event
    """Set when what people see of a run, or the kill switch, is not as it was."""


def open_storage(settings: Settings, stack: contextlib.AsyncExitStack) -> Storage:
    connection = Connection.open(settings.redis_url.get_secret_value(), tag=settings.redis_tag)
    stack.push_async_callback(connection.close)
    owner = f"{socket.gethostname()}/{secrets.token_hex(4)}"
    limits = StoreLimits(retention_seconds=settings.retention_days * 24 * 3600)
    breaker = BreakerLimits(
        disruptive_changes=settings.breaker.disruptive_changes,
        node_disruptions=settings.breaker.node_disruptions,
        cordoned_share=settings.breaker.cordoned_share,
        seconds=int(settings.breaker.per.total_seconds()),
        replicas=settings.redis_replicas,
    )
    epochs = RedisEpoch(connection)
    store = RedisStore(connection, owner=owner, limits=limits, next_number=epochs.next_number)
    return Storage(connection, store, RedisClaims(connection, breaker), epochs)


def cluster_connection(settings: Settings) -> ClusterConnection:
    where = settings.kubernetes
    return ClusterConnection(
        url=where.url or "",
        token=where.token.get_secret_value() if where.token else "",
        kubeconfig=str(where.kubeconfig or ""),
        context=where.context,
    )


def open_cluster(settings: Settings, circuits: Circuits, stack: contextlib.AsyncExitStack) -> Cluster:
    client = KubernetesClient(cluster_connection(settings), circuits.kubernetes)
    stack.push_async_callback(client.close)
    port = KubernetesCluster(client, name=settings.cluster)
    return Cluster(client, port, KubernetesWriter(client, port.reader), KubernetesPodLogs(port.reader))


def slack_pace(settings: Settings) -> dict[str, tuple[float, float]]:
    """Tokens a second and burst, by kind."""
    slack = settings.slack
    return {
        "post": (slack.posts_per_second, float(slack.posts_burst)),
        "update": (slack.updates_per_minute / 60, UPDATES_BURST),
        "home": (1 / HOME_EVERY_SECONDS, 1.0),
        "card": (slack.cards_per_minute / 60, slack.cards_per_minute),
    }


def open_talk(settings: Settings, storage: Storage, stack: contextlib.AsyncExitStack) -> Talk:
    session = web_session()
    stack.push_async_callback(session.close)
    client = web_client(settings.slack.bot_token.get_secret_value(), session, base_url=settings.slack.base_url)
    clock = SystemClock()
    shown = RedisShown(storage.connection, Shown, dataclasses.asdict)
    users, user_groups = settings.on_call
    own = ChannelRules(settings.slack.incident_channels, users, user_groups, archive=settings.slack.archive_channels)
    place = Place(channel=settings.slack.channel, deployment=settings.redis_tag, own=own)
    pace = RedisPace(storage.connection, slack_pace(settings))
    waiting = RedisDigest(storage.connection, Kept, Folded, Shown, dataclasses.asdict)
    digest = Digest(client, waiting, pace, clock, channel=place.channel, deployment=place.deployment)
    messenger = SlackMessenger(client, shown, pace, clock, place, digest)
    people = SlackPeople(client, clock, RedisPeople(storage.connection), steerers=settings.steering)
    return Talk(client, messenger, people, pace)


def open_pages(settings: Settings, cluster: Cluster, stack: contextlib.AsyncExitStack) -> PodPages:
    """How the pods' own pages are reached: at their addresses, or through the API server."""
    if settings.sampling.through == "proxy":
        return ProxyPages(cluster.client)
    pages = AddressPages()
    stack.push_async_callback(pages.close)
    return pages


def open_sight(
    settings: Settings, storage: Storage, cluster: Cluster, circuits: Circuits, stack: contextlib.AsyncExitStack
) -> Sight:
    pages = open_pages(settings, cluster, stack)
    clock = SystemClock()
    recent = RecentWorlds(cluster.port, clock.now)
    replicas = WorldReplicas(recent)
    samples = RedisSamples(storage.connection)
    scraper, loads = VllmScraper(pages, clock.now), RedisLoads(storage.connection)
    scraped = SampledHistory(replicas=replicas, scraper=scraper, store=samples, now=clock.now, loads=loads)
    history: History = scraped
    prometheus: httpx.AsyncClient | None = None
    day: PrometheusMemory | None = None
    if settings.prometheus.url:
        token = settings.prometheus.bearer_token
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        prometheus = CircuitClient(circuits.prometheus, timeout=5.0, headers=headers)
        stack.push_async_callback(prometheus.aclose)
        history = PrometheusHistory(prometheus, settings.prometheus.url, replicas=replicas, engine=vllm_metrics)
        day = PrometheusMemory(prometheus, settings.prometheus.url)
    router = PrometheusRouter(
        prometheus,
        settings.prometheus.url,
        errors=settings.prometheus.router_errors,
        latency=settings.prometheus.gateway_p99,
    )
    sources = Sources(
        now=clock.now,
        history=history,
        logs=cluster.logs,
        finder=cluster.port.reader,
        pages=pages,
        samples=samples,
        runs=storage.store,
        router=router,
        loads=loads if history is scraped else None,
        memory=day,
        gpu_shell=PodExec(cluster.client) if settings.gpu.exec else None,
        amd_labels=settings.gpu.amd_exporter,
    )
    generations = VllmGenerations()
    stack.push_async_callback(generations.close)
    signals = ReadSignals(history=history, probes=probe_readers(sources), cluster=recent, now=clock.now)
    return Sight(signals, history, scraped, scraper, generations)


def credentials(settings: Settings) -> Credentials | None:
    sender = settings.alertmanager
    if sender.bearer_token is not None:
        return Credentials.bearer(sender.bearer_token.get_secret_value())
    if sender.password is not None:
        return Credentials.basic(sender.user, sender.password.get_secret_value())
    return None


@contextlib.asynccontextmanager
async def running(settings: Settings, facts: logs.Facts) -> AsyncIterator[Starlette]:
    """The whole bot at work in this process; yields the application that listens."""
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        circuits = Circuits()
        circuits.tell(facts)
        cluster = open_cluster(settings, circuits, stack)
        talk = open_talk(settings, storage, stack)
        sight = open_sight(settings, storage, cluster, circuits, stack)
        core = open_core(settings, storage, cluster, talk, sight, open_silences(settings, circuits, stack))
        desk = desk_of(settings, storage, cluster, talk, core)
        for_homes = dataclasses.replace(desk, people=glances(settings, storage, talk))
        homes = Homes(talk.client, for_homes, RedisViewers(storage.connection), talk.pace, core.changed)
        epoch = keeping_epoch(settings, storage, talk, core)
        reconcile = reconciling(core, homes, epoch)
        secret = signing_secret(settings)
        app = bolt_app(talk.client, secret, desk, homes)
        inside = Inside(
            read=read_webhook,
            accept=core.runtime.accept(reconcile),
            not_ready=lambda: not_ready(storage),
            metrics=lambda: metrics_page(storage, facts, slack_refused=bool(talk.messenger.refused)),
            slack=endpoint(app, secret),
            degraded=lambda: degraded(cluster, talk, epoch),
        )
        await warm_up(cluster)
        await core.alarms.start(core.runtime.wake.incident)
        stack.push_async_callback(core.alarms.stop)
        stack.push_async_callback(core.runtime.wake.stop)
        if settings.slack.app_token is not None:
            token = settings.slack.app_token.get_secret_value()
            await stack.enter_async_context(listening(app, talk.client, token))
        begin(reconcile.forever(), "reconcile", stack)
        begin(talk.people.keep_reading(), "people", stack)
        begin(epoch.forever(), "recover", stack)
        begin(sampling(settings, storage, sight).run(), "sampling", stack)
        limit = settings.http.body_limit_bytes
        yield create_app(inside, credentials=credentials(settings), body_limit_bytes=limit)


def open_core(
    settings: Settings,
    storage: Storage,
    cluster: Cluster,
    talk: Talk,
    sight: Sight,
    silences: AlertmanagerApi | None,
) -> Core:
    rules = Rules(approvals=settings.approval_rules, status_every_seconds=settings.slack.status_every.total_seconds())
    changed, library = asyncio.Event(), live_playbooks(settings, storage, talk)
    alarms = DocketAlarms(settings.redis_url.get_secret_value(), tag=settings.redis_tag)
    ports = Ports(
        store=storage.store,
        claims=storage.claims,
        watch_log=RedisWatchLog(storage.connection),
        cluster=cluster.port,
        writer=cluster.writer,
        job_logs=cluster.logs,
        messenger=talk.messenger,
        people=talk.people,
        signals=sight.signals,
        history=sight.history,
        samples=sight.scraped,
        scraper=sight.scraper,
        generations=sight.generations,
        playbooks=library,
        alarms=alarms,
        pictures=Pictures(chart_png, chart_svg, draw_png),
        silences=silences,
        from_bundle=from_bundle,
    )
    runtime = Runtime(
        ports, rules,
        cluster_name=settings.cluster,
        reopen_within_seconds=settings.reopen_within.total_seconds(),
        changed=changed.set,
    )  # fmt: skip
    silencers = None if silences is None else rules.approvals.of_a_silence()
    return Core(runtime, library, alarms, silencers, silences, changed)


def desk_of(settings: Settings, storage: Storage, cluster: Cluster, talk: Talk, core: Core) -> Desk:
    runtime = core.runtime
    by_hand = OpenByHand(storage.store, core.library, wake=runtime.wake.incident)
    return Desk(
        inbound=runtime.hear,
        people=talk.people,
        messenger=talk.messenger,
        clock=SystemClock(),
        shelf=PlaybookShelf(lambda: core.library.library, by_hand, runtime.advance.playbook_of, cluster.port),
        links=talk.messenger.links,
        want_card=runtime.show_again.one,
        show_again=runtime.show_again.all_of,
        draw=DrawForChannel(talk.messenger.share, draw_png),
        deployment=settings.redis_tag,
        silencers=core.silencers,
    )


def glances(settings: Settings, storage: Storage, talk: Talk) -> SlackPeople:
    """For what is only shown: hundreds of Homes must not ask Slack for each of their lines."""
    memory = RedisPeople(storage.connection)
    valid = MEMBERS_SHOWN_SECONDS
    return SlackPeople(talk.client, SystemClock(), memory, steerers=settings.steering, members_valid_seconds=valid)


def keeping_epoch(settings: Settings, storage: Storage, talk: Talk, core: Core) -> KeepEpoch:
    async def accept_again(alerts: Sequence[Alert]) -> None:
        await storage.store.accept(alerts, truncated=0)

    return KeepEpoch(
        storage.epochs,
        SystemClock(),
        old_cards=lambda: highest_number(talk.client, channel=settings.slack.channel, deployment=settings.redis_tag),
        firing=core.alertmanager,
        knows=core.runtime.route.knows,
        accept=accept_again,
        tell=telling_once(storage, talk),
    )


def reconciling(core: Core, homes: Homes, epoch: KeepEpoch) -> Reconcile:
    besides = {"playbooks.not_refreshed": core.library.refresh, "homes.not_refreshed": homes.once}
    return core.runtime.reconcile(look=epoch.once, besides=besides)


def sampling(settings: Settings, storage: Storage, sight: Sight) -> KeepSampling:
    named = [
        Target(cluster=settings.cluster, namespace=namespace, kind=kind, name=name)
        for namespace, kind, name in settings.sampling.named
    ]
    workloads = SampledWorkloads(storage.store, named)
    return KeepSampling(sight.signals, workloads, every_seconds=settings.sampling.every.total_seconds())


def begin(work: Coroutine[None, None, None], name: str, stack: contextlib.AsyncExitStack) -> None:
    """Goes on beside the application until that ends."""
    stack.push_async_callback(_end, asyncio.create_task(work, name=name))


def telling_once(storage: Storage, talk: Talk) -> Callable[[str, str], Awaitable[None]]:
    async def tell_once(about: str, text: str) -> None:
        if not await storage.store.is_first(about):
            return
        try:
            await talk.messenger.announce(text)
        except MessengerError:
            await storage.store.is_first_no_more(about)
            raise

    return tell_once


def live_playbooks(settings: Settings, storage: Storage, talk: Talk) -> LivePlaybooks:
    return LivePlaybooks(
        lambda: load_folders(settings.playbooks, settings.overrides, settings.tuning),
        lambda: hashes_of(settings.playbooks),
        telling_once(storage, talk),
        storage.store.is_first_no_more,
    )


def open_silences(settings: Settings, circuits: Circuits, stack: contextlib.AsyncExitStack) -> AlertmanagerApi | None:
    if not settings.alertmanager.url:
        return None
    http = CircuitClient(circuits.alertmanager, timeout=5.0)
    stack.push_async_callback(http.aclose)
    return AlertmanagerApi(http, settings.alertmanager.url, read_listed)


def draw_png(drawing: Picture) -> bytes:
    from bot.adapters.drawn_graph import drawn  # matplotlib takes half a second to import, and few ask for a picture

    return drawn(drawing, "png")


def chart_png(chart: Chart) -> bytes:
    from bot.adapters.charts import drawn  # as above

    return drawn(chart, "png")


def chart_svg(chart: Chart) -> bytes:
    from bot.adapters.charts import drawn  # as above

    return drawn(chart, "svg")


def signing_secret(settings: Settings) -> str:
    """Without one, one that nobody knows: whoever posts as Slack is refused."""
    secret = settings.slack.signing_secret
    return secret.get_secret_value() if secret is not None else secrets.token_hex(32)


async def warm_up(cluster: Cluster) -> None:
    """The client takes a second to import: the first alert's two seconds for its target must not go there."""
    try:
        await cluster.client.open()
    except NotSentError as error:
        log.warning("cluster.unreachable", reason=str(error))


async def not_ready(storage: Storage) -> Mapping[str, str]:
    """What is not ready, with the reason: without the storage nothing can be accepted."""
    try:
        await storage.connection.now()
    except StorageUnavailableError as error:
        return {"redis": str(error)}
    return {}


async def degraded(cluster: Cluster, talk: Talk, epoch: KeepEpoch) -> Mapping[str, str]:
    """What people have to look at although alerts and presses are accepted, with the reason."""
    refused = {"kubernetes": await cluster.client.trouble(), "slack": talk.messenger.refused}
    return {name: reason for name, reason in refused.items() if reason} | dict(epoch.notices())


async def metrics_page(storage: Storage, facts: logs.Facts, *, slack_refused: bool) -> str:
    """A storage that is away must not end the scrape: the bot's own counters are wanted most then."""
    try:
        levels = await storage.store.levels()
    except StorageUnavailableError as error:
        log.warning("levels.unread", reason=str(error))
        levels = {}
    return facts.page({**levels, "slack_refused": int(slack_refused)})


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(settings: Settings) -> None:
    """Run the bot until SIGTERM or SIGINT; say `ready {json}` on standard output once it listens."""
    facts = logs.Facts()
    logs.configure(facts, level=settings.log.level, style=settings.log.format)
    async with running(settings, facts) as app:
        await Announcing(http_config(app, settings)).serve()


def http_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=settings.http.host, port=settings.http.port, log_level="warning", lifespan="off",
        timeout_graceful_shutdown=STOP_SECONDS, http=bounded(limits_here()), ws="none",
    )  # fmt: skip


class Announcing(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            print("ready", json.dumps({"url": f"http://{host}:{port}"}), flush=True)
            log.info("bot.started", host=host, port=port)


async def load_run(redis_url: str, incident_id: str, *, tag: str = "bot") -> Run | None:
    async with contextlib.aclosing(_Reading(redis_url, tag)) as reading:
        return await reading.store.load(incident_id)


async def load_timeline(redis_url: str, incident_id: str, *, tag: str = "bot") -> Sequence[Chained]:
    async with contextlib.aclosing(_Reading(redis_url, tag)) as reading:
        return await reading.store.timeline(incident_id)


async def load_whole_timeline(
    redis_url: str, incident_id: str, *, tag: str = "bot"
) -> tuple[Sequence[Chained], StoredHead | None]:
    """With what the run says of its end."""
    async with contextlib.aclosing(_Reading(redis_url, tag)) as reading:
        return await whole_timeline(reading.store, incident_id)


async def load_lines(settings: Settings, incident_id: str) -> Sequence[Series]:
    """The charted signals of an open incident up to now; none for one that is over, whose timeline has them."""
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        run = await storage.store.load(incident_id)
        if run is None or not run.is_open:
            return ()
        circuits = Circuits()
        sight = open_sight(settings, storage, open_cluster(settings, circuits, stack), circuits, stack)
        playbook_of = AdvanceRun(storage.store, from_bundle, Rules(approvals=settings.approval_rules)).playbook_of
        return await ReadSeriesHandler(sight.history, playbook_of).lines_or_why_not(run, await storage.store.now())


async def load_unmatched(redis_url: str, *, tag: str = "bot") -> Sequence[tuple[Alert, str]]:
    """The newest alerts that opened nothing, each with its reason."""
    async with contextlib.aclosing(_Reading(redis_url, tag)) as reading:
        return await reading.store.unmatched(10)


@contextlib.asynccontextmanager
async def hearing(settings: Settings) -> AsyncIterator[HearPeople]:
    """What people say from the command line: it is stored here, and the bot that serves takes it up within a second."""
    async with contextlib.AsyncExitStack() as stack:
        storage = open_storage(settings, stack)
        yield HearPeople(storage.store, storage.store, storage.claims, _woken_elsewhere)


def _woken_elsewhere(incident_id: str) -> None:
    """`Reconcile` of the bot that serves finds what waits."""


class _Reading:
    """A store for one look from the command line."""

    def __init__(self, redis_url: str, tag: str) -> None:
        self._connection = Connection.open(redis_url, tag=tag)
        self.store = RedisStore(self._connection, owner="cli")

    async def aclose(self) -> None:
        await self._connection.close()
