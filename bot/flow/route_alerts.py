"""An accepted alert opens an incident, joins its target's open one, or is kept as unmatched."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.run import Offer, Run, before_start, parked_incident
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import (
    ClusterError,
    LostRunError,
    NewerFormError,
    NotServingError,
    RefusedError,
    SilentClusterError,
    StorageUnavailableError,
    UnknownClusterError,
)
from bot.domain.kernel.planned_window import PlannedWindow, last_of
from bot.domain.kernel.redaction import redacted
from bot.domain.kernel.target import POD_LABELS, Target, cluster_named, named_by, target_labels
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.flow.ports.cluster import Cluster
from bot.flow.ports.storage import AlertStore, Intake, Joining, Playbooks, RouteKind, RunStore, Standing, Waiting
from bot.flow.restrictions import Restrictions

log = structlog.get_logger()
RESOLVE_WITHIN_SECONDS = 2.0
REST_SECONDS = 10.0
ANSWER_WITHIN_SECONDS = 20.0
"""A cluster that answers again by then is asked for the workload of an alert whose labels do not name it."""
BATCH = 64
FAILURES_BEFORE_SET_ASIDE = 3
LABELS_KEPT = 4096
FOREIGN_SECONDS = 3600.0
"""How long the bot reports alerts of unknown clusters: nothing opens for them, and nobody would notice."""


_Found = tuple[CompiledPlaybook, Target | UnknownClusterError | NotServingError]
"""The playbook that an alert may open, and the workload that it is about."""
_Asked = dict[tuple[tuple[str, ...], bool], asyncio.Future[Target]]
"""Which workloads the clusters were asked for, by what decides about the answer."""


class _Located(NamedTuple):
    """An alert that a playbook matches, and its workload."""

    entry: Intake
    playbook: CompiledPlaybook
    target: Target


class RouteAlerts:
    def __init__(  # noqa: PLR0913 - the ports that it speaks to; wiring names each
        self,
        alerts: AlertStore,
        runs: RunStore,
        playbooks: Playbooks,
        clusters: Mapping[str, Cluster],
        *,
        restrictions: Restrictions,
        reopen_within_seconds: float = 900.0,
        wake: Callable[[str, Waiting | None, bool], None],
    ) -> None:
        """`clusters`: by the value of the alerts' `cluster` label. `wake`: as `Wake.incident`."""
        self._alerts, self._runs, self._playbooks, self._clusters = alerts, runs, playbooks, clusters
        self._reopen_within, self._wake = reopen_within_seconds, wake
        self._restrictions = restrictions
        self._slow_until: dict[str, float] = {}
        self._failures: Counter[str] = Counter()
        self._left: dict[str, str] = {}
        """The entries that this round leaves, to the next one or to a newer version of the bot, with fingerprints."""
        self._left_before: Collection[str] = ()
        self._foreign = "", 0.0
        """Why an alert is about none of the clusters, and when the last such alert came."""
        self._incidents: dict[tuple[str, ...], str] = {}
        """By `target_labels`: the open incident that the last such alert was given to."""

    async def __call__(self) -> int:
        """Routes all accepted alerts, in order; returns how many entries were ended."""
        routed = 0
        self._left_before, self._left = self._left, {}
        while entries := await self._waiting():
            # A cluster that is slow to answer delays only its own alerts.
            failed = await asyncio.gather(*map(self._in_order, self._by_cluster(entries)), return_exceptions=True)
            for error in filter(None, failed):
                raise error
            routed += len([entry for entry in entries if entry.entry_id not in self._left])
            if len(entries) < BATCH and not self._failures:
                # Each alert that is accepted meanwhile wakes the routing again.
                break
        return routed

    async def _waiting(self) -> list[Intake]:
        """The oldest entries, without those that this round leaves. Those that failed before are among them."""
        entries = await self._alerts.intake(BATCH + len(self._left))
        for gone in self._failures.keys() - {entry.entry_id for entry in entries}:
            del self._failures[gone]
        return [entry for entry in entries if entry.entry_id not in self._left]

    async def release(self) -> None:
        """Returns the alerts whose maintenance window has ended: those that still fire open their incident now."""
        if not (held := await self._alerts.held()):
            return
        windows = await self._restrictions.open(await self._runs.now())
        for each in held:
            if last_of(windows, "maintenance", each.target) is None:
                log.info("alert.released", target=each.target.key)
                await self._alerts.release(each)

    def _by_cluster(self, entries: Sequence[Intake]) -> list[list[Intake]]:
        """The entries of each cluster, in order."""
        groups: dict[str, list[Intake]] = defaultdict(list)
        for entry in entries:
            label = entry.alert.labels.get("cluster", "")
            try:
                groups[cluster_named(label, self._clusters)].append(entry)
            except UnknownClusterError:
                groups[label].append(entry)
        return list(groups.values())

    async def _in_order(self, entries: Sequence[Intake]) -> None:
        """The alerts of a workload keep their order; those that join its open incident do so in one step."""
        asked: _Asked = {}
        # All lookups start at once: a cluster that is slow to answer must not cost each alert its two seconds.
        lookups = (self._look_up(entry.alert, asked) for entry in entries)
        found = await asyncio.gather(*lookups, return_exceptions=True)
        rows: dict[str, list[_Located]] = defaultdict(list)
        left = set(self._left.values())
        for entry, each in zip(entries, found, strict=True):
            if entry.alert.fingerprint in left:
                # It must not overtake an earlier state of its alert.
                self._left[entry.entry_id] = entry.alert.fingerprint
            elif isinstance(each, tuple) and isinstance(each[1], Target):
                rows[each[1].key].append(_Located(entry, each[0], each[1]))
            else:
                await self._route_or_set_aside(entry, each)
        for row in rows.values():
            while row and not await self._joined(row):
                first = row.pop(0)
                await self._route_or_set_aside(first.entry, (first.playbook, first.target))

    async def _look_up(self, alert: Alert, asked: _Asked) -> _Found | None:
        """None if no playbook matches: the cluster is not asked then. `asked`: what it was asked already."""
        if not (matching := self._playbooks.match(alert.labels)):
            return None
        about = target_labels(alert.labels), alert.names_models
        if about not in asked:
            asked[about] = asyncio.ensure_future(self._target(alert))
        try:
            return matching[0], await asked[about]
        except (UnknownClusterError, NotServingError) as error:
            return matching[0], error

    async def _joined(self, row: Sequence[_Located]) -> bool:
        """Gives the alerts of a workload to its open incident as this process knows it: one trip, not three for each.

        False if they have to be routed one by one. Then nothing is changed.
        """
        run = self._runs.known(row[0].target.key)
        if run is None:
            return False
        try:
            return await self._join(row, run)
        except StorageUnavailableError:
            raise
        except Exception:
            # A bug of ours with one of them: routed one by one, the others join.
            log.exception("alerts.failed", incident=run.incident_id)
            return False

    async def _join(self, row: Sequence[_Located], run: Run) -> bool:
        bundles = [self._bundle(each.playbook, each.target, each.entry) for each in row]
        joining = [
            Joining(each.entry, bundle, _offer(bundle, run), _may_be_elsewhere(each.entry.alert, each.target))
            for each, bundle in zip(row, bundles, strict=True)
        ]
        alerts = [each.entry.alert for each in row]
        if resolved := [alert.fingerprint for alert in alerts if alert.status == "resolved"]:
            await self._alerts.let_go(*resolved)
        if (routed := await self._alerts.join(joining, run)) is None:
            return False
        for alert in alerts:
            self._given(alert, run)
        self._wake(run.incident_id, routed.waiting, True)
        parked = await self._runs.parked_incidents(run.target.key) if resolved else ()
        for each in row if parked else ():
            await self._tell_the_parked(each.entry, parked, but_not=run.incident_id)
        return True

    async def _tell_the_parked(self, entry: Intake, parked: Sequence[str], *, but_not: str) -> None:
        """Tell the other parked incidents of the target that have this alert that it is resolved.

        A repeat of it went to a fresh incident, so they would never learn that their trouble is over.
        """
        if entry.alert.status != "resolved":
            return
        others = [each for each in parked if each != but_not]
        for run in await self._runs.load_all(others):
            known = run.alerts.get(entry.alert.fingerprint)
            if run.parked is not None and known is not None and known.status == "firing":
                await self._append(run, entry)

    async def _append(self, run: Run, entry: Intake) -> bool:
        """Give a resolved alert to an incident that has it, once. False if it is not stored any more."""
        alert = entry.alert
        event = AlertChanged(event_id=f"alert/{entry.entry_id.partition('|')[0]}/{alert.dedupe_key}", alert=alert)
        if not await self._runs.append(run.incident_id, [event]):
            return False
        self._wake(run.incident_id, None, False)
        return True

    async def _route_or_set_aside(self, entry: Intake, found: _Found | BaseException | None) -> None:
        try:
            if isinstance(found, BaseException):
                raise found
            await self._route(entry, found)
        except (NewerFormError, SilentClusterError) as error:
            if entry.entry_id not in self._left_before:
                log.info("alert.left", fingerprint=entry.alert.fingerprint, reason=str(error))
            self._left[entry.entry_id] = entry.alert.fingerprint
        except StorageUnavailableError:
            raise
        except Exception as error:
            # A bug of ours with one alert must not hold up every later one: its third failure sets it aside.
            log.exception("alert.failed", fingerprint=entry.alert.fingerprint)
            self._failures[entry.entry_id] += 1
            if self._failures[entry.entry_id] < FAILURES_BEFORE_SET_ASIDE:
                return
            del self._failures[entry.entry_id]
            await self._keep_unmatched(entry, redacted(f"it could not be routed: {type(error).__name__}: {error}"))

    async def _tell_of_the_end(self, entry: Intake) -> str:
        """Tells the open incident that has this alert that it is resolved, and returns its id.

        It keeps the playbook with which it began, also where none would open on its alerts any more.
        """
        alert = entry.alert
        if alert.status != "resolved":
            return ""
        await self._alerts.let_go(alert.fingerprint)
        given = (await self._runs.standing("", alert.fingerprint)).given
        run = await self._runs.load(given) if given else None
        if run is None or not run.is_open:
            return ""
        return run.incident_id if await self._append(run, entry) else ""

    async def _keep_unmatched(self, entry: Intake, reason: str) -> None:
        await self._alerts.keep_unmatched(entry, reason)
        log.info("alert.unmatched", alert=entry.alert.name, status=entry.alert.status, reason=reason)

    def notices(self) -> Mapping[str, str]:
        """What was wrong with alerts that came within the last hour, for the people who watch the bot."""
        why, at = self._foreign
        is_of_late = why and asyncio.get_running_loop().time() - at < FOREIGN_SECONDS
        return {"alerts": f"an alert opened no incident: {why}"} if is_of_late else {}

    async def _route(self, entry: Intake, found: _Found | None) -> None:
        if found is None:
            heard = await self._tell_of_the_end(entry)
            why = "no playbook's opens_on matches its labels"
            return await self._keep_unmatched(entry, f"{why}; {heard} heard that it is resolved" if heard else why)
        playbook, target = found
        if isinstance(target, UnknownClusterError):
            why = _why_no_cluster(target)
            self._foreign = why, asyncio.get_running_loop().time()
            return await self._keep_unmatched(entry, why)
        if isinstance(target, NotServingError):
            heard = await self._tell_of_the_end(entry)
            return await self._keep_unmatched(
                entry, f"{target}; {heard} heard that it is resolved" if heard else str(target)
            )
        while not await self._try(entry, target, playbook):
            log.info("route.retried", target=target.key)
        return None

    async def _target(self, alert: Alert) -> Target:
        """The workload that its cluster resolves; after two seconds, what the labels name.

        Raises `UnknownClusterError` if the alert is about none of the clusters, `NotServingError` if it is not about
        inference, and `SilentClusterError` if its labels name no workload and the cluster may answer soon: an incident
        without a workload can read nothing.
        """
        cluster = cluster_named(alert.labels.get("cluster", ""), self._clusters)
        found = await self._resolved(alert, cluster) or named_by(alert.labels, cluster)
        may_answer_soon = not found.resolved and self._is_slow(cluster)
        if may_answer_soon and await self._runs.now() - alert.received_at < ANSWER_WITHIN_SECONDS:
            raise SilentClusterError(f"the cluster does not answer which workload '{found.name}' is")
        return found.model_copy(update={"among_several": len(self._clusters) > 1})

    async def _resolved(self, alert: Alert, cluster: str) -> Target | None:
        if self._is_slow(cluster):
            return None
        try:
            async with asyncio.timeout(RESOLVE_WITHIN_SECONDS):
                return await self._clusters[cluster].resolve(alert)
        except (ClusterError, TimeoutError) as error:
            # A namespace that the bot may not read says nothing about the next alert.
            if not isinstance(error, RefusedError):
                self._slow_until[cluster] = asyncio.get_running_loop().time() + REST_SECONDS
            reason = str(error) or "no answer within two seconds"
            log.warning("target.unresolved", target=named_by(alert.labels, cluster).key, reason=reason)
            return None

    def _is_slow(self, cluster: str) -> bool:
        """A cluster that has just failed to answer is not asked for a moment, so that a storm is still routed."""
        return asyncio.get_running_loop().time() < self._slow_until.get(cluster, 0.0)

    async def _try(self, entry: Intake, target: Target, playbook: CompiledPlaybook) -> bool:
        """One attempt; False if the index has changed since it was read."""
        target, standing = await self._standing(entry.alert, target)
        bundle = self._bundle(playbook, target, entry)
        run, how, parked = await self._known(standing, entry.alert, playbook)
        windows: Sequence[PlannedWindow] = ()
        if entry.alert.status == "resolved":
            await self._alerts.let_go(entry.alert.fingerprint)
        elif how in ("opens", "reopens"):
            windows = self._restrictions.open_of(standing.windows, standing.at)
            if (window := last_of(windows, "maintenance", target)) is not None:
                if not playbook.playbook.urgent:
                    await self._alerts.hold(_marked(entry, f"held back during {window}"), target)
                    log.info("alert.held", target=target.key, until=window.ends_at)
                    return True
                entry = _marked(entry, f"urgent, so it opened an incident during {window}")
        if run is None:
            if entry.alert.status == "resolved":
                await self._keep_unmatched(entry, "it is resolved, and no incident of its target is open")
                return True
            run, how = opened(await self._runs.next_incident_id(), entry.alert, target, bundle), "opens"
            advice = self._restrictions.advice_in(windows, run.playbook, target)
            run = run.with_(only_advice=advice, parked_before=tuple(map(parked_incident, parked)))
        offer = _offer(bundle, run) if how == "extends" else None
        routed = await self._alerts.route(entry, run, how, bundle=bundle, offer=offer)
        if routed is not None:
            self._given(entry.alert, run)
            self._wake(run.incident_id, routed.waiting, how == "extends")
            await self._tell_the_parked(entry, standing.parked, but_not=run.incident_id)
        return routed is not None

    def _bundle(self, playbook: CompiledPlaybook, target: Target, entry: Intake) -> Bundle:
        return self._playbooks.bundle(playbook.name, target, entry.alert.labels) or Bundle.of(playbook)

    def _given(self, alert: Alert, run: Run) -> None:
        if len(self._incidents) >= LABELS_KEPT:
            self._incidents.clear()
        self._incidents[target_labels(alert.labels)] = run.incident_id

    def expected(self, alert: Alert) -> str | None:
        """The incident that this alert probably belongs to, without asking; None if that is not known."""
        return self._incidents.get(target_labels(alert.labels))

    async def knows(self, alert: Alert) -> bool:
        """Whether the newest incident of its target has received exactly this alert; also if it would open none.

        One that a newer version of the bot has stored is left to that version.
        """
        if not self._playbooks.match(alert.labels):
            return True
        try:
            target = await self._target(alert)
        except (UnknownClusterError, NotServingError):
            return True
        try:
            _, standing = await self._standing(alert, target)
            newest = standing.open or standing.last
            run = await self._runs.load(newest) if newest else None
        except NewerFormError:
            return True
        return any(_has(each, alert) for each in (run, *await self._parked(standing)) if each is not None)

    async def _standing(self, alert: Alert, target: Target) -> tuple[Target, Standing]:
        """What the alert meets, and the workload that it is about: this one, or that of the incident that has it.

        If its workload is not found any more, because its pod is gone or the cluster does not answer, it is the one
        from before. If the cluster did not answer when it fired, that incident has to hear that it resolved; until then
        a repeat opens no second incident.
        """
        standing = await self._runs.standing(target.key, alert.fingerprint)
        if standing.given in (None, standing.open):
            return target, standing
        if standing.open is not None and not _may_be_elsewhere(alert, target):
            return target, standing
        run = await self._runs.load(standing.given)
        if run is None or not self._belongs_to(run, alert, target):
            return target, standing
        return run.target, await self._runs.standing(run.target.key, alert.fingerprint)

    def _belongs_to(self, run: Run, alert: Alert, target: Target) -> bool:
        """Whether an alert belongs to the incident that it was given to last, and not to one of `target`."""
        if not run.is_open:
            return self._is_still_of(run.target, alert, target)
        known = run.alerts.get(alert.fingerprint)
        still_fires = known is None or known.status == "firing"
        return _may_be_elsewhere(alert, target) or (still_fires and not run.target.resolved)

    def _is_still_of(self, before: Target, alert: Alert, target: Target) -> bool:
        """Whether an alert whose workload is not found is of the one from before, also after that incident.

        A pod that is gone was of that one. A Service may lead to other workloads now, if the cluster says so.
        """
        if target.resolved or not before.resolved:
            return False
        is_of_a_pod = any(alert.labels.get(label) for label in POD_LABELS)
        return is_of_a_pod or self._is_slow(cluster_named(target.cluster, self._clusters))

    async def _parked(self, standing: Standing) -> list[Run]:
        """The parked incidents of the target, newest first."""
        found = await self._runs.load_all(standing.parked)
        return [run for run in reversed(found) if run.parked is not None]

    async def _known(
        self, standing: Standing, alert: Alert, playbook: CompiledPlaybook
    ) -> tuple[Run | None, RouteKind, Sequence[Run]]:
        """The open incident of the target, else a parked one that the alert belongs to, else the last one.

        Also all parked incidents of the target, unless it has an open one.

        The last one is for late alerts, and for the same trouble soon again. An alert of a more urgent playbook belongs
        to neither, unless it resolves.
        """
        if standing.open is not None:
            if (run := await self._runs.load(standing.open)) is None:
                what = f"{standing.open} is open by the index and not stored: see what `doctor` says of Redis"
                raise LostRunError(what)
            return run, "extends", ()
        parked = await self._parked(standing)
        for each in parked:
            if belongs_to_parked(alert, each) and not self._is_more_urgent(alert, playbook, each):
                return each, "notifies", parked
        run = await self._runs.load(standing.last) if standing.last else None
        if run is None or run.closed_at is None or standing.at - run.closed_at > self._reopen_within:
            return None, "opens", parked
        if self._is_more_urgent(alert, playbook, run):
            return None, "opens", parked
        return run, "notifies" if alert.status == "resolved" else "reopens", parked

    def _is_more_urgent(self, alert: Alert, playbook: CompiledPlaybook, run: Run) -> bool:
        """Whether a firing alert that the run does not have is for a playbook of higher priority than the run's."""
        if alert.status == "resolved" or alert.fingerprint in run.alerts or playbook.name == run.playbook:
            return False
        present = self._playbooks.bundle(run.playbook, run.target)
        return present is None or playbook.playbook.priority > present.entry_playbook.playbook.priority


def _marked(entry: Intake, maintenance: str) -> Intake:
    return replace(entry, alert=entry.alert.model_copy(update={"maintenance": maintenance}))


def _why_no_cluster(error: UnknownClusterError) -> str:
    if error.name:
        return f"it is about cluster '{error.name}', and this bot works on {error.known}"
    remedy = "set `cluster` in the external_labels of each Prometheus"
    return f"it has no `cluster` label, and this bot works on {error.known}: {remedy}"


def _may_be_elsewhere(alert: Alert, target: Target) -> bool:
    """Whether an alert may belong to an incident of another workload, as it did before."""
    return alert.status == "resolved" or not target.resolved


def _has(run: Run, alert: Alert) -> bool:
    known = run.alerts.get(alert.fingerprint)
    return known is not None and known.dedupe_key == alert.dedupe_key


def belongs_to_parked(alert: Alert, run: Run) -> bool:
    """Whether an alert goes to a parked incident; any other one opens a fresh incident.

    Its own alerts that resolve or repeat are; a repeat is not where nobody answered, so that people are called again.
    """
    if run.parked is None:
        return False
    if alert.status == "resolved":
        return alert.fingerprint in run.alerts
    return run.reads_alerts or (_has(run, alert) and not run.parked.unanswered)


def _offer(bundle: Bundle, run: Run) -> Offer | None:
    """What an alert that joins a run of another playbook would have opened; whether that counts is decided later."""
    if bundle.entry == run.playbook:
        return None
    playbook = bundle.entry_playbook.playbook
    return Offer(playbook=bundle.entry, title=playbook.title, priority=playbook.priority, digest=bundle.digest)


def opened(incident_id: str, alert: Alert, target: Target, bundle: Bundle) -> Run:
    """The run as it is before its first decision."""
    playbook = bundle.entry_playbook
    return Run(
        incident_id=incident_id,
        target=target,
        title=alert.annotations.get("summary") or playbook.playbook.title,
        severity="page" if alert.pages else "ticket",
        opened_at=alert.received_at,
        # The sender's clock may be ahead.
        starts_at=min(alert.starts_at.timestamp(), alert.received_at),
        playbook=playbook.name,
        digest=bundle.digest,
        visit=before_start(playbook, at=alert.received_at),
    )
