"""`incident-bot doctor`: checks everything the bot depends on, each within its own deadline, and shows remedies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

import httpx
from pydantic import BaseModel

from bot.adapters import alertmanager_api, pagers
from bot.adapters.http_client import tls
from bot.adapters.kubernetes.client import KubernetesClient
from bot.adapters.kubernetes.doctor import access
from bot.adapters.prometheus.doctor import reachable
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.durability import durability
from bot.adapters.redis.planned_windows import RedisPlannedWindows
from bot.adapters.slack.client import web_client, web_session
from bot.adapters.slack.doctor import installation, socket_mode
from bot.adapters.yaml_playbooks import load_folders
from bot.cli.who_approves import in_short, teams_asked, who_approves
from bot.dependencies import cluster_connection, one_of, open_report_sinks, open_repositories, operators_of
from bot.domain.approvals.advice import Observing
from bot.domain.kernel.errors import SourceError, StorageUnavailableError
from bot.domain.kernel.finding import Finding, Grade, broken, fine, weak
from bot.domain.kernel.redaction import redacted
from bot.domain.kernel.target import TargetPattern
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.language import ChangeState, DivertState
from bot.domain.playbooks.library import Library
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.flow.restrictions import Restrictions
from bot.settings import Settings
from bot.settings.model import ClusterSettings

DEADLINE_SECONDS = 15.0
MARKS: dict[Grade, str] = {"fine": "✔", "weak": "!", "broken": "✖"}
WORST_FIRST: tuple[Grade, ...] = ("broken", "weak", "fine")


async def examine(settings: Settings, *, namespace: str = "", approvals: bool = False) -> list[Finding]:
    """What is broken comes first, and connections come before settings. `approvals`: who approves each change."""
    library = load_folders(settings.playbooks, settings.overrides)
    checks = [
        _within("redis", _redis(settings)),
        _within("slack", _slack(settings)),
        _within("mode", _open_windows(settings)),
    ]
    for one in settings.every_cluster:
        among = settings.among(one)
        kubernetes = _kubernetes(one, verbs_of(library), namespace, reads_only=settings.observing.everywhere)
        checks.append(_within(one_of("kubernetes", among), kubernetes))
        if one.prometheus.url:
            checks.append(_within(one_of("prometheus", among), _prometheus(one)))
    if settings.alertmanager.url:
        checks.append(_within("alertmanager", _alertmanager(settings)))
    if settings.github.files:
        checks.append(_within("github", repositories(settings)))
    if settings.reports.are_stored:
        checks.append(_within("reports", reports(settings)))
    checks += [_within("paging", _pager(name, url)) for name, url in pager_urls(settings).items()]
    found = await asyncio.gather(*checks)
    own = [
        *of_settings(settings),
        *of_teams(settings, library),
        *of_playbooks(library),
        *of_reach(settings, verbs_of(library)),
    ]
    rules = settings.approvals.rules()
    own += who_approves(library.playbooks.values(), rules) if approvals else [in_short(rules)]
    every = [*(finding for some in found for finding in some), *own]
    return sorted(every, key=lambda finding: WORST_FIRST.index(finding.grade))


async def _within(about: str, check: Awaitable[Sequence[Finding]]) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return [replace(finding, about=about) for finding in await check]
    except TimeoutError:
        return [broken(about, f"no answer within {DEADLINE_SECONDS:g} s", "Check the address and the network.")]


async def _redis(settings: Settings) -> Sequence[Finding]:
    connection = Connection.open(settings.redis_url.get_secret_value(), tag=settings.redis_tag)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)
        return await durability(connection, replicas_wanted=settings.redis_replicas)


async def _open_windows(settings: Settings) -> Sequence[Finding]:
    """The maintenance windows and freezes that are open, of people and of the settings."""
    connection = Connection.open(settings.redis_url.get_secret_value(), tag=settings.redis_tag)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(connection.close)
        try:
            now = await connection.now()
            windows = RedisPlannedWindows(connection)
            found = await Restrictions(windows, settings.observing, settings.window_rules).open(now)
        except StorageUnavailableError:
            return []  # the findings about Redis say so
    return [fine("mode", f"{each.of}: {each}") for each in found]


async def _slack(settings: Settings) -> Sequence[Finding]:
    rules = settings.approvals.rules()
    every = (rules, *(own for _, own in rules.of_targets))
    demands = [each for one in every for level in (one.low, one.medium, one.high) for each in level.demands]
    people = [source for each in (*demands, *rules.teams.values(), operators_of(settings)) for source in each.sources]
    async with web_session() as session:
        token = settings.slack.bot_token.get_secret_value()
        client = web_client(token, session, base_url=settings.slack.base_url)
        found = await installation(
            client,
            channel=settings.slack.channel,
            others=[channel for _, channel in settings.channels],
            deciders=people,
            incident_channels=settings.slack.incident_channels,
        )
        if settings.slack.app_token is None:
            return found
        return (*found, await socket_mode(client, settings.slack.app_token.get_secret_value()))


async def _kubernetes(
    settings: ClusterSettings, verbs: Iterable[str], namespace: str, *, reads_only: bool
) -> Sequence[Finding]:
    async with KubernetesClient(cluster_connection(settings.kubernetes)) as client:
        namespaces = [one.strip() for one in namespace.split(",") if one.strip()]
        return await access(
            client, verbs=verbs, options=options_of(settings, reads_only=reads_only), namespaces=namespaces,
            sampled=settings.sampling.named, reads_only=reads_only,
        )  # fmt: skip


def options_of(settings: ClusterSettings, *, reads_only: bool = False) -> list[str]:
    """Permissions that the settings need besides those that every bot needs."""
    chosen = {
        "proxy": settings.sampling.through == "proxy",
        "exec": settings.gpu.exec and not reads_only,
    }
    return [option for option, is_on in chosen.items() if is_on]


async def _alertmanager(settings: Settings) -> Sequence[Finding]:
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS, verify=tls()) as client:
        return [await alertmanager_api.reachable(client, settings.alertmanager.url)]


async def _prometheus(settings: ClusterSettings) -> Sequence[Finding]:
    wanted = settings.prometheus
    async with httpx.AsyncClient(headers=wanted.headers, timeout=DEADLINE_SECONDS, verify=tls()) as client:
        return [await reachable(client, wanted.url)]


async def _pager(name: str, url: str) -> Sequence[Finding]:
    async with httpx.AsyncClient(timeout=DEADLINE_SECONDS, verify=tls()) as client:
        return [await pagers.reachable(client, name, url)]


async def repositories(settings: Settings) -> Sequence[Finding]:
    """Whether pull requests can be opened for each file that the settings name."""
    async with contextlib.AsyncExitStack() as stack:
        opened = open_repositories(settings, stack)
        return [] if opened is None else await opened.check()


async def reports(settings: Settings) -> Sequence[Finding]:
    """Whether the reports of closed incidents can be kept where the settings say."""
    async with contextlib.AsyncExitStack() as stack:
        found = []
        for sink in open_report_sinks(settings, stack):
            try:
                await sink.check()
                found.append(fine("reports", f"the reports of closed incidents are kept at {sink.name}"))
            except SourceError as error:
                what = f"no report can be kept at {sink.name}: {error}"
                found.append(broken("reports", what, "Let the bot write there, or correct the reports settings."))
        return found


def pager_urls(settings: Settings) -> dict[str, str]:
    """The pagers that some team uses, with their addresses."""
    teams = settings.approvals.pagers()
    urls = {f"the webhook of {name}": team.webhook for name, team in teams.items() if team.webhook}
    if any(team.pagerduty for team in teams.values()):
        urls["PagerDuty"] = settings.paging.pagerduty_url
    if any(team.opsgenie for team in teams.values()):
        urls["Opsgenie"] = settings.paging.opsgenie_url
    return urls


def of_teams(settings: Settings, library: Library) -> list[Finding]:
    """Who is called, and which teams the playbooks call that the settings do not name."""
    contacts, found = settings.approvals.contacts(), list[Finding]()
    named = [*contacts.teams.values(), *(contact for _, contact in contacts.on_call)]
    if paged := sorted({each.team for each in named if each.has_pager}):
        found.append(fine("teams", f"paged: {', '.join(paged)}"))
    else:
        what = "nobody is paged: an urgent incident only mentions people in Slack"
        found.append(
            weak("teams", what, "Set INCIDENT_BOT_APPROVALS_TEAMS_SERVING_PAGERDUTY, …_OPSGENIE or …_WEBHOOK.")
        )
    states = (state for playbook in library.playbooks.values() for state in playbook.playbook.states.values())
    called = {state.to_group for state in states if isinstance(state, DivertState)} - {""}
    if missing := sorted(called - contacts.teams.keys()):
        what = f"playbooks call {', '.join(missing)}, but nobody is set for them: lead or serving is called instead"
        found.append(weak("teams", what, f"Set approvals.teams.{missing[0]}: a user group, a pager or a phone number."))
    return found


def of_settings(settings: Settings) -> list[Finding]:
    """Risky settings that are allowed and should be known."""
    found = [fine("settings", "are complete"), *of_mode(settings.observing)]
    if settings.clusters:
        found.append(fine("settings", f"name {len(settings.clusters)} clusters: {names_of(settings.clusters)}"))
    elif not settings.cluster:
        what = "no cluster name: an alert of another cluster with the same namespace and name would be taken for ours"
        found.append(weak("settings", what, "Set INCIDENT_BOT_CLUSTER to the value of the alerts' `cluster` label."))
    if astray := patterns_astray(settings):
        what = f"targets in no cluster of these settings: {', '.join(astray)}"
        found.append(weak("settings", what, f"The clusters are: {names_of(settings.every_cluster)}."))
    if settings.alertmanager.open:
        what = "anybody who reaches the port may open incidents (alertmanager.open)"
        found.append(weak("settings", what, "Set INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN."))
    if believing := [one for one in settings.every_cluster if not one.gpu.exporter_namespaces]:
        where = f" in {names_of(believing)}" if settings.clusters else ""
        what = f"any pod{where} with the labels of a GPU exporter is believed, also a tenant's"
        found.append(weak("settings", what, "Set gpu.exporter_namespaces to the namespaces of the exporters."))
    if unnamed := sorted(teams_asked(settings.approvals.rules()) - settings.approvals.rules().teams.keys()):
        what = f"no people are set for {', '.join(unnamed)}: the approvers decide instead"
        if "lead" in unnamed:
            what += ", nobody else is asked at half time, and nobody can break glass"
        found.append(weak("settings", what, f"Set INCIDENT_BOT_APPROVALS_TEAMS_{unnamed[0].upper()}_USER_GROUP."))
    if settings.http.host in ("127.0.0.1", "::1", "localhost"):
        what = f"listens on {settings.http.host}: nothing on another machine or pod can reach it"
        found.append(weak("settings", what, "Set INCIDENT_BOT_HTTP_HOST=0.0.0.0 if Alertmanager runs elsewhere."))
    return found


def of_mode(observing: Observing) -> list[Finding]:
    """Where the bot only observes."""
    if observing.everywhere:
        return [fine("mode", "observe-only: the bot changes nothing in the cluster, and needs no permission to")]
    if not observing.anywhere:
        return []
    where = [
        f"{'only observes' if rule.is_on else 'may change'} {rule.target or 'every target'}"
        + (f" in {rule.playbook}" if rule.playbook else "")
        for rule in observing.rules
    ]
    return [fine("mode", f"observe-only in part, the most specific counts: {'; '.join(where)}")]


def patterns_astray(settings: Settings) -> list[str]:
    """Patterns of targets, as `cluster/namespace/name`, that name none of the clusters."""
    named = {pattern: pattern.rsplit("/", 2)[0] for pattern in _patterns_in(settings) if pattern.count("/") > 1}
    known = [one.name for one in settings.every_cluster]
    return [pattern for pattern, cluster in named.items() if not any(fnmatchcase(name, cluster) for name in known)]


def _patterns_in(value: object) -> Iterator[TargetPattern]:
    """The patterns of targets in a part of the settings, in whichever setting they are."""
    match value:
        case TargetPattern():
            yield value
        case BaseModel():
            yield from _patterns_in([part for _, part in value])
        case dict():
            yield from _patterns_in([*value, *value.values()])
        case list() | tuple():
            yield from chain.from_iterable(map(_patterns_in, value))


def names_of(clusters: Iterable[ClusterSettings]) -> str:
    return ", ".join(one.name for one in clusters)


def _with_origin(name: str, compiled: CompiledPlaybook) -> str:
    packaged = packaged_playbooks() / f"{name}.yaml"
    file = Path(compiled.file)
    return f"{name} ({file} replaces the packaged one)" if packaged.exists() and file != packaged else name


def of_playbooks(library: Library) -> list[Finding]:
    found = []
    if library.playbooks:
        named = (_with_origin(name, compiled) for name, compiled in sorted(library.playbooks.items()))
        found.append(fine("playbooks", f"sound: {', '.join(named)}"))
    for faults in library.faults.values():
        found += [broken("playbooks", f"{fault.where}: {fault.what}", fault.hint) for fault in faults]
    for warnings in library.warnings.values():
        found += [weak("playbooks", f"{each.where}: {each.what}", each.hint) for each in warnings]
    if not found:
        found.append(
            broken("playbooks", "there are none: every alert stays unmatched", "Correct the playbooks setting.")
        )
    return found


def of_reach(settings: Settings, verbs: Iterable[str]) -> list[Finding]:
    """Changes that a playbook may propose but that cannot work under these settings."""
    proxied = [one for one in settings.every_cluster if one.sampling.through == "proxy"]
    if not proxied or "probe_request" not in verbs:
        return []
    if settings.clusters:
        what = f"probe_request is refused in {names_of(proxied)}: pods are read through the API server's proxy"
        remedy = "Set sampling.through: address where the bot reaches pods, and no other cluster has their addresses."
        return [weak("playbooks", what, remedy)]
    what = "probe_request goes to a pod's own address, and pods are read through the API server's proxy"
    return [weak("playbooks", what, "Let the bot into the pod network; else this change fails, and sends nothing.")]


def verbs_of(library: Library) -> frozenset[str]:
    """The changes that these playbooks may propose; an undo may be requested in each."""
    states = (state for playbook in library.playbooks.values() for state in playbook.playbook.states.values())
    return frozenset({"undo"} | {state.change for state in states if isinstance(state, ChangeState)})


def rendered(findings: Sequence[Finding]) -> str:
    widest = max((len(finding.about) for finding in findings), default=0)
    lines: list[str] = []
    for finding in findings:
        # An address of the settings may contain a login.
        lines.append(f"{MARKS[finding.grade]} {finding.about:<{widest}}  {redacted(finding.what)}")
        if finding.remedy and finding.grade != "fine":
            lines.append(f"  {'':<{widest}}  → {finding.remedy}")
    counts = {grade: sum(1 for finding in findings if finding.grade == grade) for grade in MARKS}
    summary = ", ".join(f"{MARKS[grade]} {count}" for grade, count in counts.items())
    return "\n".join([*lines, "", summary]) + "\n"
