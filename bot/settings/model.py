"""The settings: what an operator may set, with its default and its description. Data only."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from bot.domain.approvals.advice import ObserveRule, Observing
from bot.domain.approvals.configuration import Approvals, UserGroup, Users
from bot.domain.changes.kept_in import KeptIn
from bot.domain.kernel.configured import (
    Address,
    Duration,
    Hours,
    Pairs,
    Secret,
    Section,
    TargetPatterns,
    WebAddress,
    from_a_file,
    listed,
)
from bot.domain.kernel.links import Dashboards, dashboard_address
from bot.domain.kernel.planned_window import WindowKind, WindowRule
from bot.domain.kernel.redis_address import redis_address
from bot.domain.kernel.target import checked_pattern
from bot.domain.playbooks.packaged import PACKAGED, packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.settings.secret_file import RotatedSecret

PREFIX = "INCIDENT_BOT_"


def _redis_address(raw: SecretStr) -> SecretStr:
    redis_address(raw.get_secret_value())
    return raw


def _folders(raw: object) -> object:
    folders = listed(raw)
    if not isinstance(folders, list | tuple):
        return folders
    if not folders:
        raise ValueError("names no folder")
    return tuple(packaged_playbooks() if each == PACKAGED else each for each in folders)


def _folder(raw: Path) -> Path:
    if not raw.is_dir():
        raise ValueError(f"'{raw}' is not a folder")
    return raw


def _dashboards(raw: dict[str, str]) -> dict[str, str]:
    return {checked_pattern(target): dashboard_address(url) for target, url in raw.items()}


def _unreadable(path: Path) -> str:
    """Why this file cannot be read; empty if it can."""
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


Workload = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9-]+/((Deployment|StatefulSet|LeaderWorkerSet)/)?[a-z0-9.-]+$")
]


def _label_names(raw: dict[str, str]) -> dict[str, str]:
    if wrong := [name for name in raw if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]:
        raise ValueError(f"'{wrong[0]}' is not the name of a label")
    return raw


class Http(Section):
    host: str = "127.0.0.1"
    """Loopback, so that nothing listens to the network by accident; in a container set 0.0.0.0."""
    port: int = Field(8080, ge=0, le=65535)
    """The port that Alertmanager, Slack, probes and Prometheus talk to."""
    public_url: Address = Field("", pattern=r"^(https?://[^\s?#]+)?$", examples=["https://incidents.example.com"])
    """The address at which people's browsers reach this bot; with it, cards link a live page of the incident."""
    body_limit_bytes: int = Field(2 * 1024 * 1024, ge=1024)
    """The largest webhook that is read. A larger one is refused with 413."""


class Alertmanager(Section):
    """How Alertmanager proves itself: a bearer token, or user and password. `open` accepts alerts from anybody."""

    bearer_token: RotatedSecret | None = None
    """The token that Alertmanager sends, or `file:/path`, read for each webhook: a new one counts at once."""
    user: str = ""
    """The user name that Alertmanager sends with basic authentication."""
    password: RotatedSecret | None = None
    """The password that Alertmanager sends with basic authentication, or `file:/path`, as for the token."""
    open: bool = False
    """Accept alerts from anybody who reaches the port."""
    url: Address = Field("", pattern=r"^(https?://.+)?$", examples=["http://alertmanager.monitoring:9093"])
    """Its own address, for silences; without it nobody can silence from Slack."""

    @model_validator(mode="after")
    def _one_scheme(self) -> Self:
        basic = bool(self.user) or self.password is not None
        schemes = sum((self.bearer_token is not None, basic, self.open))
        names = (
            f"{PREFIX}ALERTMANAGER_BEARER_TOKEN, or {PREFIX}ALERTMANAGER_USER with {PREFIX}ALERTMANAGER_PASSWORD, "
            "or alertmanager.open: true to accept alerts from anybody who reaches the port"
        )
        if schemes == 0:
            raise ValueError(f"does not say who may send alerts; set {names}")
        if schemes > 1:
            raise ValueError(f"has more than one way to prove a sender; keep one: {names}")
        if basic and not (self.user and self.password):
            raise ValueError("has only one of user and password; set both")
        return self


class Slack(Section):
    bot_token: Secret = Field(examples=["xoxb-…"])
    """The bot token of the Slack app."""
    signing_secret: RotatedSecret | None = Field(
        None, examples=["the Signing Secret on the app's Basic Information page"]
    )
    """The secret by which requests from Slack are verified, or `file:/path`, read for each request.

    Not needed in Socket Mode.
    """
    app_token: Secret | None = Field(None, examples=["xapp-…"], validate_default=True)
    """Set, Slack is listened to in Socket Mode, and need not reach the bot; unset, over signed HTTP."""
    channel: str = Field(pattern=r"^[CG][A-Z0-9]+$", examples=["C0123456789, the channel's id, not its name"])
    """The channel of the incident cards."""
    base_url: WebAddress = Field("https://slack.com/api/", examples=["https://slack.com/api/"])
    """The address of Slack's API."""
    operator_user_group: UserGroup = Field("", examples=["S0123456789, the user group's id, not its handle"])
    """The user group that may answer questions, halt, resume, undo and resolve."""
    operator_users: Users = Field((), examples=["U0123456789,U9876543210"])
    """Who may answer questions, halt, resume, undo and resolve; when nobody is named, the approvers may."""
    posts_per_second: float = Field(1.0, gt=0, le=10_000)
    """New messages a channel, Slack's own pace for chat.postMessage; a workspace may have been granted more."""
    posts_burst: int = Field(3, ge=1, le=10_000)
    """New messages that may be sent to a channel at once."""
    updates_per_minute: float = Field(50.0, gt=0, le=100_000)
    """Edits a workspace, Slack's Tier 3."""
    cards_per_minute: float = Field(10.0, ge=1, le=10_000)
    """Cards of new incidents in any minute, those that need a person first; the others share one message meanwhile."""
    incident_channels: bool = False
    """A channel of its own for each incident, beside its card; needs the scope channels:manage."""
    archive_channels: bool = False
    """Archive that channel when the incident is closed and its timeline is in it."""
    status_every: Duration = Field(timedelta(minutes=30), examples=["30m"])
    """How long an incident that pages may be without a word about how it stands, before its thread is reminded."""

    @field_validator("app_token")
    @classmethod
    def _one_transport(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # A check of the whole part would be skipped while another field is missing, and be a second error later.
        if value is None and info.data.get("signing_secret", "") is None:
            raise ValueError(
                "is not set, nor is SLACK_SIGNING_SECRET; set the latter to the Signing Secret of the app's Basic "
                "Information page, or this one for Socket Mode"
            )
        return value


class Kubernetes(Section):
    """Which cluster; named outright, because the current context of a laptop may be any."""

    in_cluster: bool = False
    """Use the service account of the pod that the bot runs in."""
    kubeconfig: Path | None = Field(None, examples=["/home/me/.kube/config"])
    """The kubeconfig file to use."""
    context: str = ""
    """The context of the kubeconfig; empty: its current one."""
    url: WebAddress | None = Field(None, examples=["https://kubernetes.example:6443"])
    """The address of the API server, without a kubeconfig. A certificate of a private authority needs a kubeconfig."""
    token: Secret | None = None
    """The bearer token for that address."""

    @model_validator(mode="after")
    def _one_cluster(self) -> Self:
        if sum((self.in_cluster, self.kubeconfig is not None, self.url is not None)) > 1:
            raise ValueError("must name one cluster in one way; keep one of in_cluster, kubeconfig and url")
        if self.context and self.kubeconfig is None:
            raise ValueError("has a context without a kubeconfig; set kubernetes.kubeconfig")
        if self.token is not None and self.url is None:
            raise ValueError("has a token without a url; set kubernetes.url")
        if self.kubeconfig is not None and (why := _unreadable(self.kubeconfig)):
            raise ValueError(f"has a kubeconfig that cannot be read: {self.kubeconfig}: {why}")
        return self

    @property
    def is_named(self) -> bool:
        return self.in_cluster or self.kubeconfig is not None or self.url is not None


class Prometheus(Section):
    """Where readings come from when it is set; else every replica is scraped."""

    url: Address = Field("", pattern=r"^(https?://.+)?$", examples=["http://prometheus.monitoring:9090"])
    """Read the history of metrics from this Prometheus. Empty: scrape the pods."""
    bearer_token: Secret | None = None
    """The token for Prometheus."""
    labels: Annotated[Pairs, AfterValidator(_label_names)] = Field({}, examples=["cluster=production"])
    """Labels that every series of this cluster has, where one Prometheus has the series of several clusters."""
    router_errors: str = Field(
        "",
        examples=[
            'sum(rate(router_requests_total{status=~"5..",service="$workload"}[5m])) '
            '/ sum(rate(router_requests_total{service="$workload"}[5m]))'
        ],
    )
    """A PromQL query for the share of requests that the router answers with an error.

    `$cluster`, `$namespace` and `$workload` are replaced by those of the incident.
    """
    gateway_p99: str = Field(
        "",
        examples=[
            "histogram_quantile(0.99, sum by (le) "
            '(rate(gateway_request_seconds_bucket{namespace="$namespace",service="$workload"}[5m])))'
        ],
    )
    """A PromQL query for the gateway's p99 latency in seconds."""

    @property
    def headers(self) -> dict[str, str]:
        """Sent with each request."""
        return {"Authorization": f"Bearer {self.bearer_token.get_secret_value()}"} if self.bearer_token else {}


class Sampling(Section):
    """What is scraped all the time, so that an incident finds a history from before it opened."""

    workloads: Annotated[tuple[Workload, ...], BeforeValidator(listed)] = Field(
        (), examples=["serving/llm,serving/StatefulSet/llm-large"]
    )
    """As namespace/name for a Deployment, else namespace/kind/name; those with an open incident are also sampled."""
    every: Duration = Field(timedelta(seconds=10), examples=["10s"])
    """How often the workloads under `sampling.workloads` and open incidents are scraped."""
    through: Literal["address", "proxy"] = "address"
    """How pods' pages are read: at the pods' addresses, or by the API server's pod proxy (needs get on pods/proxy)."""

    @property
    def named(self) -> tuple[tuple[str, str, str], ...]:
        """Namespace, kind and name of each workload."""
        parts = (workload.split("/") for workload in self.workloads)
        return tuple((part[0], part[1] if len(part) == 3 else "Deployment", part[-1]) for part in parts)


class Gpu(Section):
    """How GPUs are looked at beside their exporters and the nodes' own words."""

    exec: bool = False
    """Run `nvidia-smi` or `rocm-smi`, to query only, in replicas on nodes whose exporter does not answer.

    It needs get and create on pods/exec, which would also let its holder run anything else there.
    """
    dcgm_exporter: Pairs = Field({}, examples=["app=our-dcgm-exporter"])
    """The labels of NVIDIA's dcgm-exporter where they are not its chart's or its GPU operator's usual ones."""
    amd_exporter: Pairs = Field({}, examples=["app=release-amdgpu-metrics-exporter"])
    """The labels of AMD's device-metrics-exporter where they are not its GPU operator's or its chart's usual ones."""
    exporter_namespaces: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field((), examples=["gpu-operator"])
    """The namespaces of the GPU exporters. Empty: any; then each pod with their labels is believed."""


class ClusterSettings(Section):
    """One of several clusters."""

    name: Annotated[str, StringConstraints(pattern=r"^\S{1,100}$")]
    """The value of the `cluster` label of its alerts."""
    kubernetes: Kubernetes
    prometheus: Prometheus = Prometheus()
    sampling: Sampling = Sampling()
    gpu: Gpu = Gpu()

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.kubernetes.is_named:
            raise ValueError("kubernetes must name the cluster; set in_cluster, kubeconfig (with context) or url")
        if not self.kubernetes.in_cluster and "through" not in self.sampling.model_fields_set:
            # Pod networks may overlap: an address of one cluster can be another pod in another cluster.
            raise ValueError(
                "sampling.through is not set; set it to proxy, or to address if the bot reaches the pods of this "
                "cluster at their addresses and no other cluster has the same addresses"
            )
        return self


def _distinct(clusters: tuple[ClusterSettings, ...]) -> tuple[ClusterSettings, ...]:
    """Two names for one cluster would let two incidents change one workload."""
    problems = [f"two clusters have the name '{name}'" for name in _repeated(each.name for each in clusters)]
    for one, other in itertools.combinations(clusters, 2):
        if one.kubernetes == other.kubernetes:
            problems.append(f"'{one.name}' and '{other.name}' are the same cluster")
        if one.prometheus.url and _series(one.prometheus) == _series(other.prometheus):
            problems.append(
                f"'{one.name}' and '{other.name}' read the same series; set prometheus.labels of each, "
                "as in {cluster: " + one.name + "}"
            )
    if problems:
        raise ValueError("\n".join(problems))
    return clusters


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _series(prometheus: Prometheus) -> tuple[str, dict[str, str]]:
    return prometheus.url.rstrip("/"), prometheus.labels


class Breaker(Section):
    disruptive_changes: int = Field(3, ge=1)
    """On one workload within `per`: more of them is a facility's problem or the bot's, and no single workload's."""
    per: Duration = Field(timedelta(hours=1), ge=timedelta(minutes=1), examples=["1h"])
    """The time in which the limits of the breakers count."""
    node_disruptions: int = Field(2, ge=1, le=50)
    """Nodes of one cluster cordoned or drained within `per`: a hall that heats takes nodes one by one."""
    cordoned_share: float = Field(0.1, gt=0, le=1, examples=["0.1"])
    """The share of a cluster's GPUs, 0 to 1, that may be cordoned by anybody. One node may always be cordoned."""


class Paging(Section):
    """Where the pagers of `approvals.teams` are."""

    pagerduty_url: WebAddress = Field("https://events.pagerduty.com", examples=["https://events.eu.pagerduty.com"])
    """The address of PagerDuty's Events API v2."""
    opsgenie_url: WebAddress = Field(
        "https://api.opsgenie.com", examples=["https://api.atlassian.com/jsm/ops/integration"]
    )
    """The address of Opsgenie's API. Opsgenie ends on April 5, 2027; Jira Service Management takes the same calls."""


class GitHub(Section):
    """Where the owners of workloads keep them. A patch that an owner has to apply can then become a pull request."""

    url: WebAddress = Field("https://api.github.com", examples=["https://github.example.com/api/v3"])
    """The address of GitHub's REST API; of GitHub Enterprise Server, `https://HOST/api/v3`."""
    token: RotatedSecret | None = None
    """A token that may read and write contents and pull requests of these repositories, or `file:/path`."""
    files: Annotated[tuple[KeptIn, ...], BeforeValidator(from_a_file)] = Field(
        (), examples=["[{targets: serving/llm-*, repository: example/deploy, path: production/llm.yaml}]"]
    )
    """The file that each workload is kept in, of two entries the later one. Only a settings file can hold them.

    A manifest of the object, on the default branch of the repository or on `branch`. With `flags` or `replicas`, the
    values of a Helm chart: these name the places of its list of flags and of its number of replicas, such as
    `servingEngineSpec.modelSpec.0.replicaCount`.
    """

    @model_validator(mode="after")
    def _with_token(self) -> Self:
        if self.files and self.token is None:
            raise ValueError("has files and no token; set INCIDENT_BOT_GITHUB_TOKEN")
        return self


class Reports(Section):
    """Where the report of each closed incident is kept, besides Slack: as Markdown, HTML and JSON."""

    store: str = Field(
        "",
        pattern=r"^((file:///|s3://|gs://|az://)\S+)?$",
        examples=["file:///var/lib/incident-bot/reports", "s3://incidents/reports"],
    )
    """A directory (`file:///…`) or a bucket (`s3://…`, `gs://…`, `az://…`).

    A bucket's credentials come from the cloud's own variables: `AWS_…`, or the pod's role. An S3-compatible store also
    needs `AWS_ENDPOINT_URL`.
    """
    webhook: Address = Field("", pattern=r"^(https?://\S+)?$", examples=["https://wiki.example.com/incident-reports"])
    """Gets each report as JSON in a signed POST."""
    webhook_secret: Secret | None = Field(None, validate_default=True)
    """The key of the signature, which the receiver checks as a page's."""
    redact_people: bool = False
    """Names of people are replaced by roles in what is kept."""

    @field_validator("webhook_secret")
    @classmethod
    def _with_webhook(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if info.data.get("webhook") and value is None:
            raise ValueError("is needed with a webhook: the receiver checks the signature")
        return value

    @property
    def are_stored(self) -> bool:
        return bool(self.store or self.webhook)


class PlannedWindowRule(Section):
    """Maintenance or a freeze of some targets: between two dates, or on some days and hours of each week, in UTC."""

    kind: WindowKind
    """`maintenance`: alerts open no incident, unless they are urgent. `freeze`: changes are only advised."""
    targets: TargetPatterns = ()
    """`namespace/workload` or `cluster/namespace/workload`, with `*`; empty: every target."""
    days: Annotated[tuple[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], ...], BeforeValidator(listed)] = ()
    """Empty: every day."""
    hours: Hours = ""
    """As `22:00-06:00`. Empty: the whole day."""
    starts: AwareDatetime | None = None
    ends: AwareDatetime | None = None
    why: str = Field("", max_length=200)

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not (self.days or self.hours or self.ends):
            raise ValueError("never ends; write days, hours or ends")
        if self.starts and self.ends and self.starts >= self.ends:
            raise ValueError("ends before it starts")
        return self

    def rule(self) -> WindowRule:
        return WindowRule(**self.model_dump())


class Dashboard(Section):
    """The dashboard that cards and reports link to.

    `$cluster`, `$namespace`, `$workload`, `$from` and `$to` are filled in; times are in milliseconds, as in Grafana.
    """

    url: Annotated[str, AfterValidator(dashboard_address)] = Field(
        "",
        examples=[
            "https://grafana.example/d/incident-bot-vllm"
            "?var-namespace=$namespace&var-workload=$workload&from=$from&to=$to"
        ],
    )
    """The address of the dashboard of any workload. Empty: none is linked.

    `$cluster` is filled in too, where one dashboard shows several clusters.
    """
    targets: Annotated[Pairs, AfterValidator(_dashboards)] = Field(
        {}, examples=["serving/llm-*=https://grafana.example/d/llm?from=$from&to=$to"]
    )
    """Addresses for some workloads, by `namespace/workload`; `*` stands for anything. Of two, the later one counts."""

    @property
    def dashboards(self) -> Dashboards:
        return Dashboards(url=self.url, targets=tuple(self.targets.items()))


class Log(Section):
    format: Literal["json", "console"] = "json"
    """How log lines are written."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""


Clusters = Annotated[tuple[ClusterSettings, ...], BeforeValidator(from_a_file), AfterValidator(_distinct)]


class StorageSettings(Section):
    """What a command needs that only reads and writes Redis."""

    redis_url: Annotated[Secret, AfterValidator(_redis_address)] = Field(examples=["redis://localhost:6379/0"])
    """The address of Redis or Valkey, of its Sentinels, or of nodes of a Redis Cluster.

    `redis+sentinel://host:26379,other:26379/mymaster` or `redis+cluster://host:6379,other:6379`; `rediss` for TLS.
    With `?password_file=/path` in place of a password, that file is read for each connection, so that a rotated
    password needs no restart.
    """
    redis_tag: str = Field("bot", pattern=r"^[A-Za-z0-9_.-]+$", examples=["bot"])
    """The prefix of all keys. Two bots may share a Redis under two tags."""
    redis_replicas: int = Field(0, ge=0, le=9)
    """Redis replicas that must confirm a claim before its call."""
    retention_days: int = Field(90, ge=1)
    """How many days a closed incident is kept."""
    overrides: tuple[Override, ...] = Field((), examples=["window=15s,calm_for=20s"])
    """Settings of playbooks, in order: `{playbook: kv-cache-oom, target: llm/chat-*, settings: {kv_ceiling: 0.85}}`.

    Without `playbook`, each playbook takes the settings that it declares. Without `target`, they count everywhere; `*`
    stands for anything, and `east/llm/chat-*` is in one of several clusters. An override with a target counts more than
    one without; of equals, the later one. In the environment, `name=value` texts for all playbooks. Besides `settings`
    an override may have `observe_only: true` (or `false`), and one with a target the `channel` of its incidents.
    """
    observe_only: bool = False
    """Only observe: read, diagnose and show what the bot would propose, and change nothing in the cluster."""
    planned_windows: Annotated[tuple[PlannedWindowRule, ...], BeforeValidator(from_a_file)] = Field(
        (), examples=["[{kind: maintenance, targets: llm/*, days: tue, hours: 02:00-04:00}]"]
    )
    """Maintenance and freezes that come back. Only a settings file can hold them.

    `/incident maintenance` and `/incident freeze` begin one now.
    """
    breaker: Breaker

    @property
    def observing(self) -> Observing:
        """Where the bot only observes."""
        own = (each for each in self.overrides if each.observe_only is not None)
        rules = [ObserveRule(bool(each.observe_only), each.playbook, each.target) for each in own]
        return Observing([ObserveRule(self.observe_only), *rules])

    @property
    def window_rules(self) -> tuple[WindowRule, ...]:
        """The maintenance windows and freezes of the settings."""
        return tuple(each.rule() for each in self.planned_windows)


class Settings(StorageSettings):
    clusters: Clusters = Field((), examples=["deploy/two-clusters.example.yaml"])
    """Several clusters: `{name: east, kubernetes: {…}, prometheus: {…}, sampling: {…}, gpu: {…}}` for each.

    Only a settings file can hold them; mount it from a Secret if it has tokens. With one cluster, the settings
    `cluster`, `kubernetes`, `prometheus`, `sampling` and `gpu` are used instead.
    """
    cluster: str = ""
    """The value of the alerts' `cluster` label that means this cluster."""
    http: Http
    alertmanager: Alertmanager
    slack: Slack
    kubernetes: Kubernetes
    prometheus: Prometheus
    sampling: Sampling
    gpu: Gpu
    playbooks: Annotated[tuple[Annotated[Path, AfterValidator(_folder)], ...], BeforeValidator(_folders)] = Field(
        PACKAGED, examples=["packaged,/etc/incident-bot/playbooks"], validate_default=True
    )
    """Folders; `packaged` are those that came with the bot. Of files with one name the last folder's counts."""
    approvals: Approvals
    paging: Paging
    github: GitHub
    dashboard: Dashboard
    reports: Reports
    reopen_within: Duration = Field(timedelta(minutes=15), examples=["15m"])
    """An alert that fires again within this time reopens its closed incident."""
    log: Log

    @property
    def channels(self) -> tuple[tuple[str, str], ...]:
        """Targets, with `*`, and the channel of their incidents; the last that matches counts."""
        return tuple((each.target, each.channel) for each in self.overrides if each.channel)

    @property
    def every_channel(self) -> tuple[str, ...]:
        """The channels in which cards may be."""
        return tuple(dict.fromkeys((self.slack.channel, *(channel for _, channel in self.channels))))

    @field_validator("cluster", "kubernetes", "prometheus", "sampling", "gpu")
    @classmethod
    def _either(cls, value: str | Section, info: ValidationInfo) -> str | Section:
        """Without `clusters`, these are the only cluster's."""
        clusters = info.data.get("clusters")
        is_set = bool(value.model_fields_set) if isinstance(value, Section) else bool(value)
        if clusters and is_set:
            raise ValueError("is set, and so is `clusters`; move it into the cluster that it is about")
        if clusters == () and isinstance(value, Kubernetes) and not value.is_named:
            raise ValueError(
                f"must name one cluster in one way; set one of {PREFIX}KUBERNETES_IN_CLUSTER=true, "
                f"{PREFIX}KUBERNETES_KUBECONFIG (with _CONTEXT), {PREFIX}KUBERNETES_URL (with _TOKEN), or `clusters`"
            )
        return value

    @property
    def every_cluster(self) -> tuple[ClusterSettings, ...]:
        """The clusters that the bot works on: `clusters`, or the one that the other settings describe."""
        only = ClusterSettings.model_construct(
            name=self.cluster,
            kubernetes=self.kubernetes,
            prometheus=self.prometheus,
            sampling=self.sampling,
            gpu=self.gpu,
        )
        return self.clusters or (only,)

    def among(self, one: ClusterSettings) -> str:
        """The name of this cluster, if there are several; else empty."""
        return one.name if len(self.clusters) > 1 else ""
