"""Opens the adapters from the settings: storage, cluster, Slack and the readers of the fleet."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import structlog
from pydantic import SecretStr

from bot.adapters import logs
from bot.adapters import pagers as paging
from bot.adapters.alertmanager import read_listed
from bot.adapters.alertmanager_api import AlertmanagerApi
from bot.adapters.http_client import CircuitClient, tls
from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.cluster import KubernetesCluster, SharedSnapshots
from bot.adapters.kubernetes.credentials import Connection as ClusterConnection
from bot.adapters.kubernetes.pod_exec import PodExec
from bot.adapters.kubernetes.pod_logs import KubernetesPodLogs
from bot.adapters.kubernetes.pod_proxy import ProxyPages
from bot.adapters.kubernetes.serving import ServingReader
from bot.adapters.kubernetes.writer import KubernetesWriter
from bot.adapters.pagers import Pagers
from bot.adapters.pod_pages import AddressPages
from bot.adapters.prometheus.history import PrometheusHistory
from bot.adapters.prometheus.memory import PrometheusMemory
from bot.adapters.prometheus.registers import PrometheusRegisters
from bot.adapters.prometheus.router import PrometheusRouter
from bot.adapters.redis.claims import BreakerLimits, RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.epoch import RedisEpoch
from bot.adapters.redis.loads import RedisLoads
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.people import RedisPeople
from bot.adapters.redis.planned_windows import RedisPlannedWindows
from bot.adapters.redis.samples import RedisSamples
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.store import RedisStore, StoreLimits
from bot.adapters.redis.summary import RedisSummary
from bot.adapters.report_sinks import TIMEOUT_SECONDS, Files, ReportWebhook
from bot.adapters.slack.client import SlackCircuits, SlackClient, web_client, web_session
from bot.adapters.slack.outbound.incident_channel import ChannelRules
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.outbound.pace import cards_in_a_period, slack_paces
from bot.adapters.slack.outbound.shown import Shown
from bot.adapters.slack.outbound.summary import Summary
from bot.adapters.slack.people import SlackPeople
from bot.adapters.vllm import metrics as vllm_metrics
from bot.adapters.vllm.generations import VllmGenerations
from bot.adapters.vllm.scraper import VllmScraper
from bot.domain.approvals.configuration import on_call, operators
from bot.domain.approvals.grant import Demand
from bot.domain.kernel.page_links import PageLinks
from bot.domain.kernel.target import Target
from bot.domain.playbooks.picture.picture import Picture
from bot.domain.reports.chart import Chart
from bot.flow.cached_snapshots import CachedSnapshots
from bot.flow.circuit import Circuit
from bot.flow.clusters import ClusterPorts, ProxiedGenerations
from bot.flow.ports.cluster import Generations
from bot.flow.ports.people import ReportSink
from bot.flow.ports.readings import History, PodPages
from bot.flow.read_signals import ReadSignals
from bot.flow.sample_replicas import LeftOut, SampledHistory, SnapshotReplicas
from bot.probes.catalogue import probe_readers
from bot.probes.declaration import Sources
from bot.settings import Settings, StorageSettings
from bot.settings.model import ClusterSettings
from bot.settings.model import Kubernetes as KubernetesSettings
from bot.settings.model import Prometheus as PrometheusSettings
from bot.settings.model import Slack as SlackSettings

if TYPE_CHECKING:
    from bot.adapters.github.pull_requests import PullRequests

log = structlog.get_logger()
MEMBERS_SHOWN_SECONDS = 60.0
"""Maximum age of a team membership that decides only what a Home tab shows."""


class SystemClock:
    def now(self) -> float:
        return time.time()


@dataclass(frozen=True)
class Circuits:
    """One circuit for each dependency that effects wait for. Redis has none, since nothing works without it."""

    known: dict[str, Circuit] = field(default_factory=dict)
    """By dependency, as `/metrics` names them: `alertmanager`, `kubernetes`, or `kubernetes/east` of several."""

    def new(self, name: str, shown: str, *, of: str = "") -> Circuit:
        """`shown` is for people; `of`: its cluster, if there are several."""
        circuit = self.known[one_of(name, of)] = Circuit(f"{shown} of {of}" if of else shown)
        return circuit


def one_of(dependency: str, cluster: str) -> str:
    """The name of one cluster's dependency; `cluster` is empty if there is only one."""
    return f"{dependency}/{cluster}" if cluster else dependency


@dataclass(frozen=True)
class Cluster:
    """The Kubernetes adapters of one cluster."""

    client: KubernetesClient
    port: KubernetesCluster
    writer: KubernetesWriter
    logs: KubernetesPodLogs


@dataclass(frozen=True)
class Storage:
    """The Redis adapters."""

    connection: Connection
    store: RedisStore
    claims: RedisClaims
    epochs: RedisEpoch
    windows: RedisPlannedWindows


@dataclass(frozen=True)
class Slack:
    """The Slack adapters, except for the app that listens."""

    client: SlackClient
    """For calls that a person waits for."""
    outgoing: SlackClient
    """For all others: they wait while Slack fails."""
    messenger: SlackMessenger
    people: SlackPeople
    pace: RedisPace


@dataclass(frozen=True)
class Fleet:
    """The adapters that read the fleet."""

    signals: ReadSignals
    history: History
    scraped: SampledHistory
    """Direct scrapes: what runs on each replica now, whatever source the history comes from."""
    scraper: VllmScraper
    generations: Generations
    left_out: LeftOut


@dataclass(frozen=True)
class OneCluster:
    """The adapters of one cluster and of its fleet."""

    settings: ClusterSettings
    among: str
    """Its name, if there are several; else empty."""
    kubernetes: Cluster
    fleet: Fleet

    @property
    def ports(self) -> ClusterPorts:
        return ClusterPorts(
            cluster=self.kubernetes.port,
            writer=self.kubernetes.writer,
            job_logs=self.kubernetes.logs,
            signals=self.fleet.signals,
            history=self.fleet.history,
            samples=self.fleet.scraped,
            scraper=self.fleet.scraper,
            generations=self.fleet.generations,
            left_out=self.fleet.left_out,
        )


def open_storage(settings: StorageSettings, stack: contextlib.AsyncExitStack) -> Storage:
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
    claims = RedisClaims(connection, breaker, settings.observing, owner=owner)
    return Storage(connection, store, claims, epochs, RedisPlannedWindows(connection))


def cluster_connection(where: KubernetesSettings) -> ClusterConnection:
    return ClusterConnection(
        url=where.url or "",
        token=where.token.get_secret_value() if where.token else "",
        kubeconfig=str(where.kubeconfig or ""),
        context=where.context,
    )


def open_clusters(
    settings: Settings, storage: Storage, circuits: Circuits, stack: contextlib.AsyncExitStack
) -> dict[str, OneCluster]:
    """By the value of the alerts' `cluster` label."""
    opened = {}
    observing = settings.observing
    for one in settings.every_cluster:
        among = settings.among(one)
        circuit = circuits.new("kubernetes", "the Kubernetes API", of=among)
        kubernetes = open_cluster(one, circuit, stack, reads_only=observing.everywhere)
        prometheus = circuits.new("prometheus", "Prometheus", of=among)
        fleet = open_fleet(one, among, storage, kubernetes, prometheus, stack, only_reads=observing.may_be_on)
        opened[one.name] = OneCluster(one, among, kubernetes, fleet)
    return opened


def open_cluster(
    one: ClusterSettings, circuit: Circuit, stack: contextlib.AsyncExitStack, *, reads_only: bool
) -> Cluster:
    client = KubernetesClient(cluster_connection(one.kubernetes), circuit, reads_only=reads_only)
    stack.push_async_callback(client.close)
    port = KubernetesCluster(client, name=one.name)
    return Cluster(client, port, KubernetesWriter(client, port.reader), KubernetesPodLogs(port.reader))


def paces_of(slack: SlackSettings) -> dict[str, tuple[float, float]]:
    return slack_paces(
        posts_per_second=slack.posts_per_second,
        posts_burst=slack.posts_burst,
        updates_per_minute=slack.updates_per_minute,
    )


def operators_of(settings: Settings) -> Demand:
    slack = settings.slack
    return operators(settings.approvals, users=slack.operator_users, user_group=slack.operator_user_group)


def channel_rules_of(settings: Settings) -> ChannelRules:
    slack, approvals = settings.slack, settings.approvals
    general = approvals.model_copy(update={"approvers": ()})
    users, user_groups = on_call(operators(general, users=slack.operator_users, user_group=slack.operator_user_group))
    return ChannelRules(
        slack.incident_channels,
        users,
        user_groups,
        archive=slack.archive_channels,
        approvers_of=tuple((target, each.demand()) for each in approvals.approvers for target in each.targets),
    )


def open_slack(settings: Settings, storage: Storage, circuits: Circuits, stack: contextlib.AsyncExitStack) -> Slack:
    session = web_session()
    stack.push_async_callback(session.close)
    token, own_circuits = settings.slack.bot_token.get_secret_value(), SlackCircuits()
    circuits.known.update({"slack": own_circuits.messages, "slack/files": own_circuits.files})
    circuits.known["slack/uploads"] = own_circuits.uploads
    client, outgoing = (
        web_client(token, session, base_url=settings.slack.base_url, circuits=own_circuits, insists=insists)
        for insists in (True, False)
    )
    clock = SystemClock()
    pace = RedisPace(storage.connection, paces_of(settings.slack))
    shown = RedisShown(storage.connection, Shown, vars, pace)
    own = channel_rules_of(settings)
    pages = page_links(settings)
    place = Place(settings.slack.channel, settings.redis_tag, own, pages, settings.channels)
    waiting = RedisSummary(storage.connection, cards_in_a_period(settings.slack.cards_per_minute))
    summary = Summary(outgoing, waiting, pace, clock, channel=place.channel, deployment=place.deployment)
    messenger = SlackMessenger(outgoing, shown, pace, clock, place, summary)
    people = SlackPeople(client, clock, RedisPeople(storage.connection), operators=operators_of(settings))
    return Slack(client, outgoing, messenger, people, pace)


def open_pages(settings: ClusterSettings, cluster: Cluster, stack: contextlib.AsyncExitStack) -> PodPages:
    """Returns how pages of pods are fetched: at the pods' addresses, or through the API server."""
    if settings.sampling.through == "proxy":
        return ProxyPages(cluster.client)
    pages = AddressPages()
    stack.push_async_callback(pages.close)
    return pages


def open_fleet(  # noqa: PLR0913 - what one cluster's readers are opened with
    settings: ClusterSettings,
    among: str,
    storage: Storage,
    cluster: Cluster,
    circuit: Circuit,
    stack: contextlib.AsyncExitStack,
    *,
    only_reads: Callable[[Target], bool],
) -> Fleet:
    """`among`: the cluster's name, if there are several. `circuit`: that of its Prometheus."""
    pages = open_pages(settings, cluster, stack)
    clock = SystemClock()
    recent = CachedSnapshots(cluster.port, clock.now)
    shared = CachedSnapshots(SharedSnapshots(cluster.port.reader), clock.now)
    replicas = SnapshotReplicas(CachedSnapshots(ServingReader(cluster.port.reader), clock.now))
    samples = RedisSamples(storage.connection)
    scraper, loads = VllmScraper(pages, clock.now), RedisLoads(storage.connection)
    scraped = SampledHistory(replicas=replicas, scraper=scraper, store=samples, now=clock.now, loads=loads)
    history: History = scraped
    prometheus = open_prometheus(settings.prometheus, circuit, stack)
    url, labels = settings.prometheus.url, settings.prometheus.labels
    if prometheus is not None:
        history = PrometheusHistory(prometheus, url, replicas=replicas, engine=vllm_metrics, labels=labels)
    router = PrometheusRouter(
        prometheus,
        url,
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
        memory=None if prometheus is None else PrometheusMemory(prometheus, url, labels),
        registers=None if prometheus is None else PrometheusRegisters(prometheus, url, labels),
        gpu_shell=PodExec(cluster.client) if settings.gpu.exec else None,
        only_reads=only_reads,
        dcgm_labels=settings.gpu.dcgm_exporter,
        amd_labels=settings.gpu.amd_exporter,
        exporter_namespaces=settings.gpu.exporter_namespaces,
    )
    left_out = LeftOut(is_recorded_elsewhere=bool(url))
    signals = ReadSignals(
        history=history,
        probes=probe_readers(sources),
        cluster=recent,
        shared=shared,
        now=clock.now,
        why_unsampled=left_out.why,
    )
    return Fleet(signals, history, scraped, scraper, open_generations(settings, among, stack), left_out)


def open_prometheus(
    settings: PrometheusSettings, circuit: Circuit, stack: contextlib.AsyncExitStack
) -> httpx.AsyncClient | None:
    """None if its address is not set."""
    if not settings.url:
        return None
    http = CircuitClient(circuit, timeout=5.0, headers=settings.headers, verify=tls())
    stack.push_async_callback(http.aclose)
    return http


def open_generations(settings: ClusterSettings, among: str, stack: contextlib.AsyncExitStack) -> Generations:
    """A pod's address may be another pod's in another cluster, so only a cluster that is read by address gets any."""
    if among and settings.sampling.through == "proxy":
        return ProxiedGenerations()
    generations = VllmGenerations()
    stack.push_async_callback(generations.close)
    return generations


def people_of_homes(settings: Settings, storage: Storage, slack: Slack) -> SlackPeople:
    """A membership cache for display only: hundreds of Homes must not ask Slack for each of their lines."""
    memory = RedisPeople(storage.connection)
    valid = MEMBERS_SHOWN_SECONDS
    return SlackPeople(
        slack.client, SystemClock(), memory, operators=operators_of(settings), members_valid_seconds=valid
    )


def open_silences(settings: Settings, circuits: Circuits, stack: contextlib.AsyncExitStack) -> AlertmanagerApi | None:
    if not settings.alertmanager.url:
        return None
    http = CircuitClient(circuits.new("alertmanager", "Alertmanager"), timeout=5.0, verify=tls())
    stack.push_async_callback(http.aclose)
    return AlertmanagerApi(http, settings.alertmanager.url, read_listed)


def draw_png(drawing: Picture) -> bytes:
    from bot.adapters.pictures.drawn_graph import (
        drawn,  # importing matplotlib takes half a second, and pictures are rare
    )

    return drawn(drawing, "png")


def chart_png(chart: Chart) -> bytes:
    from bot.adapters.pictures.charts import drawn  # as above

    return drawn(chart, "png")


def chart_svg(chart: Chart) -> bytes:
    from bot.adapters.pictures.charts import drawn  # as above

    return drawn(chart, "svg")


def open_pagers(settings: Settings, stack: contextlib.AsyncExitStack) -> Pagers:
    urls = settings.paging.model_dump()
    pagers = {name: paging.pager_of(team, **urls) for name, team in settings.approvals.pagers().items()}
    if not pagers:
        return Pagers(None, {})
    http = httpx.AsyncClient(timeout=paging.TIMEOUT_SECONDS, verify=tls())
    stack.push_async_callback(http.aclose)
    return Pagers(http, pagers)


def open_repositories(settings: Settings, stack: contextlib.AsyncExitStack) -> PullRequests | None:
    wanted = settings.github
    if not wanted.files or wanted.token is None:
        return None
    from bot.adapters.github import pull_requests  # with a YAML parser that no other part of a running bot needs

    http = httpx.AsyncClient(timeout=pull_requests.TIMEOUT_SECONDS, verify=tls())
    stack.push_async_callback(http.aclose)
    return pull_requests.PullRequests(http, wanted.url, wanted.token.get_secret_value, wanted.files)


def open_report_sinks(settings: Settings, stack: contextlib.AsyncExitStack) -> list[ReportSink]:
    wanted, sinks = settings.reports, list[ReportSink]()
    if wanted.store:
        sinks.append(Files(wanted.store))
    if wanted.webhook and wanted.webhook_secret is not None:
        http = httpx.AsyncClient(timeout=TIMEOUT_SECONDS, verify=tls())
        stack.push_async_callback(http.aclose)
        sinks.append(ReportWebhook(http, wanted.webhook, wanted.webhook_secret.get_secret_value()))
    return sinks


def page_links(settings: Settings) -> PageLinks:
    """The same in every replica and after a restart: the key comes from a secret that all of them have."""
    token = settings.slack.bot_token.get_secret_value().encode()
    return PageLinks(settings.http.public_url, hashlib.sha256(b"pages of incidents\n" + token).digest())


def signing_secret(settings: Settings) -> Callable[[], str]:
    """Returns the signing secret as it is now, or a random one if none is set: then no request is taken for Slack's."""
    secret = settings.slack.signing_secret or SecretStr(secrets.token_hex(32))
    return secret.get_secret_value


@dataclass(frozen=True)
class Dependencies:
    """Everything outside this process that the bot works with."""

    storage: Storage
    clusters: Mapping[str, OneCluster]
    """By the value of the alerts' `cluster` label."""
    slack: Slack
    alertmanager: AlertmanagerApi | None
    """None if Alertmanager's address is not set."""
    pagers: Pagers
    repositories: PullRequests | None
    """None if the settings name no file of a workload."""
    reports: Sequence[ReportSink]


def open_dependencies(settings: Settings, facts: logs.Facts, stack: contextlib.AsyncExitStack) -> Dependencies:
    circuits = Circuits(facts.circuits)
    storage = open_storage(settings, stack)
    clusters = open_clusters(settings, storage, circuits, stack)
    slack = open_slack(settings, storage, circuits, stack)
    silences, pagers = open_silences(settings, circuits, stack), open_pagers(settings, stack)
    repositories, reports = open_repositories(settings, stack), open_report_sinks(settings, stack)
    return Dependencies(storage, clusters, slack, silences, pagers, repositories, reports)
