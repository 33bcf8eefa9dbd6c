"""The bot on its ports: the loop, and a handler for every type of effect. `serve` and the tests build the same one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from bot.domain.incidents.effect import (
    ApplyStep,
    DrawChart,
    DrawPath,
    Effect,
    EndSilences,
    ExportTimeline,
    JudgePress,
    Notify,
    OpenPullRequest,
    PageTeam,
    PassOnChanges,
    PlanChange,
    ReadCalm,
    ReadSeries,
    ReadSignals,
    ReleaseLeases,
    RouteAgain,
    ShowInSlack,
    SilenceAlerts,
    StoreReport,
    WatchAdvice,
    WatchSignals,
)
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.run import Run
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import UnknownClusterError
from bot.domain.kernel.target import Target, cluster_named, is_of
from bot.domain.playbooks.picture.picture import Picture
from bot.domain.reports.chart import Chart
from bot.flow.accept_alerts import AcceptAlerts
from bot.flow.advance_run import AdvanceRun, FromBundle
from bot.flow.clusters import ClusterPorts, absent
from bot.flow.handlers.apply import ApplyCall
from bot.flow.handlers.draw_chart import DrawChartHandler, ReadSeriesHandler
from bot.flow.handlers.draw_path import DrawPathHandler
from bot.flow.handlers.generate import GenerateOnReplica
from bot.flow.handlers.job_result import JobResult
from bot.flow.handlers.judge import JudgeHandler
from bot.flow.handlers.page import Links, PageHandler
from bot.flow.handlers.pass_on import PassOnHandler, RouteAgainHandler
from bot.flow.handlers.plan import PlanHandler
from bot.flow.handlers.pull_request import PullRequestHandler
from bot.flow.handlers.read import ReadHandler
from bot.flow.handlers.show import ExportHandler, NotifyHandler, ReleaseHandler, ShowAgain, ShowHandler
from bot.flow.handlers.silence import EndSilencesHandler, SilenceHandler
from bot.flow.handlers.store_report import StoreReportHandler
from bot.flow.handlers.watch import WatchHandler
from bot.flow.handlers.watch_advice import WatchAdviceHandler
from bot.flow.keep_halts import KeepHalts
from bot.flow.keep_windows import KeepWindows
from bot.flow.perform_effect import Done, EffectContext, Handler, Later, PerformEffect
from bot.flow.ports.people import Messenger, OnDemand, Pager, People, ReportSink, Silences
from bot.flow.ports.repositories import Repositories
from bot.flow.ports.storage import AlertStore, CallClaims, EffectStore, Playbooks, RunStore, WatchLog
from bot.flow.receive_input import ReceiveInput
from bot.flow.reconcile import Checks, Reconcile, logged
from bot.flow.restrictions import Restrictions
from bot.flow.route_alerts import RouteAlerts
from bot.flow.sample_replicas import KeepSampling, SampledWorkloads, SnapshotReplicas
from bot.flow.snapshot_reader import SnapshotReader
from bot.flow.wake import Timer, Wake


class Store(AlertStore, RunStore, EffectStore, Protocol):
    """Alerts, runs and effects share one store: related changes are written in one step."""


class ShowsOnDemand(Messenger, OnDemand, Protocol): ...


@dataclass(frozen=True)
class Pictures:
    """Renders charts and playbooks to bytes. Drawing is slow, so each call runs in a thread."""

    chart_png: Callable[[Chart], bytes]
    chart_svg: Callable[[Chart], bytes]
    path_png: Callable[[Picture], bytes]


@dataclass(frozen=True)
class Time:
    """The clock and timers. Tests use their own."""

    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    later: Timer | None = None
    elapsed: Callable[[], float] = time.monotonic
    aside: Callable[..., Awaitable[Any]] = asyncio.to_thread
    """Runs a slow function so that it delays no button press."""


@dataclass(frozen=True)
class Ports:
    """Everything outside that the bot works on."""

    store: Store
    claims: CallClaims
    watch_log: WatchLog
    clusters: Mapping[str, ClusterPorts]
    """By the value of the alerts' `cluster` label."""
    messenger: ShowsOnDemand
    people: People
    playbooks: Playbooks
    pictures: Pictures
    pager: Pager
    links: Links
    """The addresses of an incident's messages, by slot."""
    silences: Silences | None
    """None if Alertmanager's address is not set: then silences are not available."""
    from_bundle: FromBundle
    restrictions: Restrictions
    """Observe-only, maintenance windows and freezes."""
    repositories: Repositories | None = None
    """Where the owners of workloads keep them; None if the settings name no file."""
    reports: Sequence[ReportSink] = ()
    """Where the reports of closed incidents are kept."""
    redacts_reports: bool = False
    """Without names of people."""
    deployment: str = "bot"
    """Tells two bots apart that page the same teams."""
    time: Time = field(default_factory=Time)


class Runtime:
    def __init__(
        self,
        ports: Ports,
        rules: Rules,
        *,
        reopen_within_seconds: float = 900.0,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when the visible state of a run, or the kill switch, has changed."""
        self._ports, self._changed, self._rules = ports, changed, rules
        store, claims = ports.store, ports.claims
        self.advance = AdvanceRun(store, ports.from_bundle, rules)
        self._of_clusters = {name: self._handlers_on(name, own) for name, own in ports.clusters.items()}
        self.handlers = self._handlers()
        self.perform = PerformEffect(store, store, self.handlers)
        self.wake = Wake(self.advance, self.perform, later=ports.time.later, elapsed=ports.time.elapsed)
        wake = self.wake.incident
        self.route = RouteAlerts(
            store, store, ports.playbooks, {name: each.cluster for name, each in ports.clusters.items()},
            restrictions=ports.restrictions,
            reopen_within_seconds=reopen_within_seconds, wake=wake,
        )  # fmt: skip
        self.halts = KeepHalts(store, claims, wake, changed, lambda: self.wake.is_busy)
        self.windows = KeepWindows(store, ports.restrictions, wake, lambda: self.wake.is_busy)
        self.receive = ReceiveInput(store, store, claims, wake)
        self.show_again = ShowAgain(ports.messenger, store, self.wake.effect)

    def reconcile(
        self,
        look: Callable[[], Awaitable[None]] | None = None,
        besides: Checks = MappingProxyType({}),
        seldom: Checks = MappingProxyType({}),
    ) -> Reconcile:
        """The periodic fallback for direct wake-ups. It also checks halts, windows and `besides` as often."""
        every = {"halts.not_kept": self.halts.once, "windows.not_kept": self.windows.once, **besides}

        async def first() -> None:
            if look is not None:
                await look()
            # One alert that cannot be released must not keep all others waiting.
            await logged(self.route.release(), "alerts.not_released")

        store = self._ports.store
        return Reconcile(store, store, self.wake, self.route, look=first, besides=every, seldom=seldom)

    def accept(self, reconcile: Reconcile) -> AcceptAlerts:
        return AcceptAlerts(self._ports.store, reconcile.wake_routing, self.may_wait)

    def may_wait(self, alerts: Sequence[Alert]) -> float:
        """Seconds until the incidents that these alerts join are looked at again; 0 if one may open an incident."""
        expected = [self.route.expected(alert) for alert in alerts]
        return min(0.0 if incident is None else self.wake.rest_left(incident) for incident in expected)

    async def accept_again(self, alerts: Sequence[Alert]) -> None:
        """Store alerts as if Alertmanager had just sent them."""
        await self._ports.store.accept(alerts, truncated=0)

    def sampling(self, cluster: str, named: Iterable[tuple[str, str, str]], *, every_seconds: float) -> KeepSampling:
        """Samples the cluster's named workloads (namespace, kind, name), and those with an open incident."""
        clusters = self._ports.clusters
        targets = [
            Target(cluster=cluster, namespace=namespace, kind=kind, name=name) for namespace, kind, name in named
        ]
        ports = clusters[cluster]
        workloads = SampledWorkloads(
            self._ports.store, targets, lambda target: is_of(cluster, target, clusters), ports.left_out
        )

        async def may_sample() -> bool:
            return await self._ports.store.take_sampling(cluster, every_seconds)

        return KeepSampling(ports.signals, workloads, every_seconds=every_seconds, may_sample=may_sample)

    def _handlers(self) -> Mapping[type, Handler]:
        ports, playbook_of = self._ports, self.advance.playbook_of
        time, messenger, store = ports.time, ports.messenger, ports.store
        of_its_cluster = (
            ReadSignals, ReadCalm, PlanChange, ApplyStep, WatchSignals, WatchAdvice, ExportTimeline, ReadSeries
        )  # fmt: skip
        return {
            **dict.fromkeys(of_its_cluster, self._on_its_cluster),
            JudgePress: JudgeHandler(ports.people),
            ShowInSlack: ShowHandler(messenger, store, self._changed),
            Notify: NotifyHandler(messenger),
            DrawPath: DrawPathHandler(messenger, playbook_of, ports.pictures.path_png),
            DrawChart: DrawChartHandler(messenger, store, ports.pictures.chart_png, aside=time.aside),
            ReleaseLeases: ReleaseHandler(ports.claims),
            RouteAgain: RouteAgainHandler(store),
            PassOnChanges: PassOnHandler(store),
            SilenceAlerts: SilenceHandler(ports.silences),
            EndSilences: EndSilencesHandler(ports.silences),
            StoreReport: StoreReportHandler(
                store, ports.reports, ports.pictures.chart_svg, redact=ports.redacts_reports, aside=time.aside
            ),
            OpenPullRequest: PullRequestHandler(ports.repositories, ports.links, deployment=ports.deployment),
            PageTeam: PageHandler(ports.pager, ports.links, deployment=ports.deployment),
        }

    async def _on_its_cluster(self, context: EffectContext, effect: Effect) -> Done | Later:
        return await self.handlers_of(context.run.target)[type(effect)](context, effect)

    def handlers_of(self, target: Target) -> Mapping[type, Handler]:
        """The handlers of the effects that read or change a cluster, on the ports of the target's cluster."""
        try:
            return self._of_clusters[cluster_named(target.cluster, self._of_clusters)]
        except UnknownClusterError as error:
            return self._handlers_on(target.cluster, absent(error, self._ports.store.now))

    async def page(self, run: Run) -> str:
        """The incident's page, with the lines of its own cluster."""
        export = self.handlers_of(run.target)[ExportTimeline]
        assert isinstance(export, ExportHandler)
        return await export.page(run, await self._ports.store.now())

    def _handlers_on(self, cluster: str, own: ClusterPorts) -> Mapping[type, Handler]:
        ports, playbook_of = self._ports, self.advance.playbook_of
        time, store = ports.time, ports.store
        read = ReadHandler(own.signals, playbook_of)
        see = SnapshotReader(own.cluster, own.samples)
        plan = PlanHandler(
            read,
            see,
            own.cluster,
            playbook_of,
            store,
            restrictions=ports.restrictions,
            claims=ports.claims,
            repositories=ports.repositories,
        )
        generate = GenerateOnReplica(
            own.generations, SnapshotReplicas(own.cluster), own.scraper, ports.claims, store, pause=time.pause
        )
        series = ReadSeriesHandler(own.history, playbook_of, aside=time.aside)
        return {
            ReadSignals: read,
            ReadCalm: read.calm,
            PlanChange: plan,
            ApplyStep: ApplyCall(
                own.writer, ports.claims, store, plan, see, playbook_of,
                cluster=cluster, restrictions=ports.restrictions,
                job_result=JobResult(own.cluster, own.job_logs), generate=generate,
                grant_valid_seconds=self._rules.approvals.grant_valid_seconds, approvals=self._rules.approvals,
                pause=time.pause,
            ),
            WatchSignals: WatchHandler(read, ports.watch_log, playbook_of),
            WatchAdvice: WatchAdviceHandler(read, ports.watch_log, playbook_of, ports.restrictions),
            ExportTimeline: ExportHandler(ports.messenger, store, ports.pictures.chart_svg, series),
            ReadSeries: series,
        }  # fmt: skip
