"""Settings: the environment over one optional YAML file, as one frozen value or one error that lists every fault.

Read before any socket opens. Every setting has one name in the file (`slack.channel`) and one in the environment
(`INCIDENT_BOT_SLACK_CHANNEL`); the environment wins, and an empty variable counts as unset. Secrets are never printed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic import ValidationError as Invalid
from pydantic.fields import FieldInfo

from bot.domain.approvals.grant import Demand, Policy, still_missing_at_best
from bot.domain.approvals.kinds import DEFAULTS, KINDS, RISKS_OF_KINDS, VERB_OF_KIND, Asked, Share, more_of, shares_of
from bot.domain.approvals.rules import ApprovalRules, people_named
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import RISKS, Risk
from bot.domain.kernel.durations import seconds
from bot.domain.kernel.errors import SettingsError
from bot.domain.playbooks.packaged import PACKAGED, packaged_playbooks
from bot.domain.playbooks.settings import Tuning

PREFIX = "INCIDENT_BOT_"
FILE_VARIABLE = "INCIDENT_BOT_SETTINGS"
EXPIRES = {"low": timedelta(minutes=30), "medium": timedelta(minutes=15), "high": timedelta(minutes=15)}

Location = tuple[str, ...]

PLAIN_NAMES: dict[str, Location] = {
    "REDIS_URL": ("redis_url",),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
}
"""Names that other tools use too; the prefixed name wins over them."""

# A Service named `incident-bot` makes Kubernetes put variables like INCIDENT_BOT_PORT=tcp://… into every pod.
_SERVICE_LINK = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII
)


# --- kinds of values --------------------------------------------------------------------------------------------------


def _duration(raw: object) -> object:
    if isinstance(raw, timedelta):
        return raw
    if not isinstance(raw, str):
        raise ValueError("a duration needs a unit; write 90s, 5m or 1h30m")
    return timedelta(seconds=seconds(raw))


def _listed(raw: object) -> object:
    return tuple(part.strip() for part in raw.split(",") if part.strip()) if isinstance(raw, str) else raw


def _pairs(raw: object) -> object:
    if isinstance(raw, Mapping):
        return {name: _text(value) for name, value in raw.items()}
    if not isinstance(raw, str):
        return raw
    pairs = [part.partition("=") for part in raw.split(",") if part.strip()]
    if any(not equals or not name.strip() or not value.strip() for name, equals, value in pairs):
        raise ValueError("write name=value, several of them with commas between")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _web_address(raw: str) -> str:
    """`https`, or `http` on this machine only: a token must not travel in clear."""
    parts = urlsplit(raw)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("is not a web address")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("would send a token in clear; use https:// (http:// is for loopback addresses only)")
    return raw


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _redis_address(raw: SecretStr) -> SecretStr:
    if not raw.get_secret_value().startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("is not a Redis address")
    return raw


def _folders(raw: object) -> object:
    listed = _listed(raw)
    if not isinstance(listed, list | tuple):
        return listed
    if not listed:
        raise ValueError("names no folder")
    return tuple(packaged_playbooks() if each == PACKAGED else each for each in listed)


def _folder(raw: Path) -> Path:
    if not raw.is_dir():
        raise ValueError(f"'{raw}' is not a folder")
    return raw


def _unreadable(path: Path) -> str:
    """Why this file cannot be read; empty when it can."""
    try:
        with path.open("rb"):
            return ""
    except OSError as error:
        return error.strerror or type(error).__name__


def _named_kinds(raw: dict[str, Any]) -> dict[str, Any]:
    strange = sorted(raw.keys() - set(KINDS) - VERBS.keys())
    if strange:
        near = get_close_matches(strange[0], KINDS, n=1)
        raise ValueError(f"'{strange[0]}' is no kind of change" + (f"; did you mean {near[0]}?" if near else ""))
    return raw


def _who(raw: object) -> object:
    pairs = _pairs(raw)
    if not isinstance(pairs, Mapping):
        return pairs
    return {kind: shares_of(str(text)) if isinstance(text, str) else text for kind, text in pairs.items()}


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta(0))]
Pairs = Annotated[dict[str, str], BeforeValidator(_pairs)]
Floors = Annotated[dict[str, Risk], BeforeValidator(_pairs), AfterValidator(_named_kinds)]
Who = Annotated[dict[str, tuple[Share, ...]], BeforeValidator(_who), AfterValidator(_named_kinds)]
Times = Annotated[dict[str, Duration], BeforeValidator(_pairs), AfterValidator(_named_kinds)]
Secret = Annotated[SecretStr, Field(min_length=1)]
Users = Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[UW][A-Z0-9]+$")], ...], BeforeValidator(_listed)]
UserGroup = Annotated[str, StringConstraints(pattern=r"^(S[A-Z0-9]+)?$")]
Channel = Annotated[str, StringConstraints(pattern=r"^([CG][A-Z0-9]+)?$")]
Workload = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9-]+/((Deployment|StatefulSet|LeaderWorkerSet)/)?[a-z0-9.-]+$")
]
WebAddress = Annotated[str, AfterValidator(_web_address)]


# --- the settings -----------------------------------------------------------------------------------------------------


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


class Http(_Part):
    host: str = "127.0.0.1"
    """Loopback, so that nothing listens to the network by accident; in a container set 0.0.0.0."""
    port: int = Field(8080, ge=0, le=65535)
    """The port that Alertmanager, Slack, probes and Prometheus talk to."""
    body_limit_bytes: int = Field(2 * 1024 * 1024, ge=1024)
    """The largest webhook that is read. A larger one is refused with 413."""


class Alertmanager(_Part):
    """How Alertmanager proves itself: a bearer token, or user and password. `open` accepts alerts from anybody."""

    bearer_token: Secret | None = None
    """The token that Alertmanager sends."""
    user: str = ""
    """The user name that Alertmanager sends with basic authentication."""
    password: Secret | None = None
    """The password that Alertmanager sends with basic authentication."""
    open: bool = False
    """Accept alerts from anybody who reaches the port."""
    url: str = Field("", pattern=r"^(https?://.+)?$", examples=["http://alertmanager.monitoring:9093"])
    """Its own address, for silences; without it nobody can silence from Slack."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        basic = bool(self.user) or self.password is not None
        ways = sum((self.bearer_token is not None, basic, self.open))
        names = (
            f"{PREFIX}ALERTMANAGER_BEARER_TOKEN, or {PREFIX}ALERTMANAGER_USER with {PREFIX}ALERTMANAGER_PASSWORD, "
            "or alertmanager.open: true to accept alerts from anybody who reaches the port"
        )
        if ways == 0:
            raise ValueError(f"does not say who may send alerts; set {names}")
        if ways > 1:
            raise ValueError(f"has more than one way to prove a sender; keep one: {names}")
        if basic and not (self.user and self.password):
            raise ValueError("has only one of user and password; set both")
        return self


class Slack(_Part):
    bot_token: Secret = Field(examples=["xoxb-…"])
    """The bot token of the Slack app."""
    signing_secret: Secret | None = Field(None, examples=["the Signing Secret on the app's Basic Information page"])
    """The secret by which requests from Slack are verified. Not needed in Socket Mode."""
    app_token: Secret | None = Field(None, examples=["xapp-…"], validate_default=True)
    """Set, Slack is listened to in Socket Mode, and need not reach the bot; unset, over signed HTTP."""
    channel: str = Field(pattern=r"^[CG][A-Z0-9]+$", examples=["C0123456789, the channel's id, not its name"])
    """The channel of the incident cards."""
    base_url: WebAddress = Field("https://slack.com/api/", examples=["https://slack.com/api/"])
    """The address of Slack's API."""
    steering_user_group: UserGroup = Field("", examples=["S0123456789, the user group's id, not its handle"])
    """The user group that may answer questions, halt, resume, undo and resolve."""
    steering_users: Users = Field((), examples=["U0123456789,U9876543210"])
    """Who may answer questions, halt, resume, undo and resolve; when nobody is named, the approvers may."""
    posts_per_second: float = Field(1.0, gt=0, le=10_000)
    """New messages a channel, Slack's own pace for chat.postMessage; a workspace may have been granted more."""
    posts_burst: int = Field(5, ge=1, le=10_000)
    """New messages that may be sent to a channel at once."""
    updates_per_minute: float = Field(50.0, gt=0, le=100_000)
    """Edits a workspace, Slack's Tier 3."""
    cards_per_minute: float = Field(10.0, ge=1, le=10_000)
    """Cards of new incidents; of more at once, those that need nobody yet share one message until their cards come."""
    incident_channels: bool = False
    """A channel of its own for each incident, beside its card; needs the scope channels:manage."""
    archive_channels: bool = False
    """Archive that channel when the incident is closed and its timeline is in it."""
    status_every: Duration = Field(timedelta(minutes=30), examples=["30m"])
    """How long an incident that pages may be without a word about how it stands, before its thread is reminded."""

    @field_validator("app_token")
    @classmethod
    def _one_way(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # A check of the whole part would be silent while another field is missing, and be a second error later.
        if value is None and info.data.get("signing_secret", "") is None:
            raise ValueError(
                "is not set, nor is SLACK_SIGNING_SECRET; set the Signing Secret of the app's Basic Information page, "
                "or this one for Socket Mode"
            )
        return value


class Kubernetes(_Part):
    """Which cluster; named outright, because the current context of a laptop may be any."""

    in_cluster: bool = False
    """Use the service account of the pod that the bot runs in."""
    kubeconfig: Path | None = Field(None, examples=["/home/me/.kube/config"])
    """The kubeconfig file to use."""
    context: str = ""
    """The context of the kubeconfig; empty: its current one."""
    url: WebAddress | None = Field(None, examples=["https://kubernetes.example:6443"])
    """The address of the API server, without a kubeconfig."""
    token: Secret | None = None
    """The bearer token for that address."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        ways = sum((self.in_cluster, self.kubeconfig is not None, self.url is not None))
        if ways != 1:
            raise ValueError(
                f"must name one cluster in one way; set one of {PREFIX}KUBERNETES_IN_CLUSTER=true, "
                f"{PREFIX}KUBERNETES_KUBECONFIG (with _CONTEXT), {PREFIX}KUBERNETES_URL (with _TOKEN)"
            )
        if self.context and self.kubeconfig is None:
            raise ValueError("has a context without a kubeconfig; set kubernetes.kubeconfig")
        if self.token is not None and self.url is None:
            raise ValueError("has a token without a url; set kubernetes.url")
        if self.kubeconfig is not None and (why := _unreadable(self.kubeconfig)):
            raise ValueError(f"has a kubeconfig that cannot be read: {self.kubeconfig}: {why}")
        return self


class Prometheus(_Part):
    """Where readings come from when it is set; else every replica is scraped."""

    url: str = Field("", pattern=r"^(https?://.+)?$", examples=["http://prometheus.monitoring:9090"])
    """Read the history of metrics from this Prometheus. Empty: scrape the pods."""
    bearer_token: Secret | None = None
    """The token for Prometheus."""
    router_errors: str = Field(
        "",
        examples=[
            'sum(rate(router_requests_total{status=~"5..",service="$workload"}[5m])) '
            '/ sum(rate(router_requests_total{service="$workload"}[5m]))'
        ],
    )
    """A PromQL query for the share of requests that the router answers with an error."""
    gateway_p99: str = Field(
        "",
        examples=[
            "histogram_quantile(0.99, sum by (le) "
            '(rate(gateway_request_seconds_bucket{namespace="$namespace",service="$workload"}[5m])))'
        ],
    )
    """A PromQL query for the gateway's p99 latency in seconds."""


class People(_Part):
    """People of Slack; whoever is named in any of these ways is one of them."""

    users: Users = Field((), examples=["U0123456789,U9876543210"])
    """The ids of these people."""
    user_group: UserGroup = Field("", examples=["S0123456789, the user group's id, not its handle"])
    """The id of a user group whose members are meant."""
    channel: Channel = Field("", examples=["C0123456789, whose members are meant"])
    """The id of a channel whose members are meant."""

    @property
    def is_anybody(self) -> bool:
        return bool(self.users or self.user_group or self.channel)

    def demand(self, **fields: Any) -> Demand:
        return Demand(users=self.users, user_group=self.user_group, channel=self.channel, **fields)


class Level(People):
    """Who decides about one risk level; whoever is named here replaces those named for all levels."""

    needed: int = Field(1, ge=1, le=9)
    """How many people must approve."""
    expires: Duration | None = Field(None, examples=["15m"])
    """How long an approval is waited for."""


class Team(People):
    """The people of one team."""


class Teams(_Part):
    """Teams whose approval a change may ask for; where nobody is named, the approvers stand in, and it is said."""

    serving: Team = Team()
    """On call for the endpoint."""
    platform: Team = Team()
    """Nodes, quota, autoscalers: moving pods of others, and putting a node back into service."""
    model: Team = Team()
    """Owns the answers' quality."""
    lead: Team = Team()
    """Incident commanders."""


class Sampling(_Part):
    """What is scraped all the time, so that an incident finds a history from before it opened."""

    workloads: Annotated[tuple[Workload, ...], BeforeValidator(_listed)] = Field(
        (), examples=["serving/llm,serving/StatefulSet/llm-large"]
    )
    """As namespace/name for a Deployment, else namespace/kind/name; those with an open incident are sampled besides."""
    every: Duration = Field(timedelta(seconds=10), examples=["10s"])
    """How often the workloads under `sampling.workloads` and open incidents are scraped."""
    through: Literal["address", "proxy"] = "address"
    """How pods' pages are read: at the pods' addresses, or by the API server's pod proxy (needs get on pods/proxy)."""

    @property
    def named(self) -> tuple[tuple[str, str, str], ...]:
        """Namespace, kind and name of each workload."""
        parts = (workload.split("/") for workload in self.workloads)
        return tuple((part[0], part[1] if len(part) == 3 else "Deployment", part[-1]) for part in parts)


class Gpu(_Part):
    """How GPUs are looked at beside their exporters and the nodes' own words."""

    exec: bool = False
    """Run `nvidia-smi` or `rocm-smi`, to query only, in replicas on nodes whose exporter does not answer.

    It needs get and create on pods/exec, which would also let its holder run anything else there.
    """
    amd_exporter: Pairs = Field({}, examples=["app=release-amdgpu-metrics-exporter"])
    """The labels of AMD's device-metrics-exporter where they are not its GPU operator's or its chart's usual ones."""


class Approvals(People):
    low: Level = Level()
    medium: Level = Level()
    high: Level = Level()
    teams: Teams = Teams()
    who: Who = Field({}, examples=["scale=2 serving,set_flags=serving + lead,cordon_node=serving or platform"])
    """By kind of change: which teams, and how many of each. A verb's entry adds to what its other kinds ask."""
    expires: Times = Field({}, examples=["scale=20m,uncordon_node=1h"])
    """By kind of change. A playbook may only shorten it."""
    risk_floors: Floors = Field({}, examples=["scale=medium,rollback=high"])
    """By kind or verb. A playbook may only raise it."""
    escalate_to: Literal["", "serving", "platform", "model", "lead"] = Field("lead", examples=["lead"])
    """The team that is asked besides at half time, where it has people."""
    break_glass: bool = True
    """In a critical incident, after half time, one of `lead` may decide with a typed reason while a team is silent."""
    single_operator: bool = False
    """For the demo and small teams: who asked for a high-risk change may approve it alone. Every card says so."""
    grant_valid: Duration = Field(timedelta(minutes=10), examples=["10m"])
    """How long an approval may be used after it was given."""

    def who_decides(self, level: Level) -> People:
        return level if level.is_anybody else self

    def level(self, risk: Risk) -> Level:
        return {"low": self.low, "medium": self.medium, "high": self.high}[risk]

    @property
    def rules(self) -> ApprovalRules:
        return ApprovalRules(
            low=self._policy("low"),
            medium=self._policy("medium"),
            high=self._policy("high"),
            teams=self._teams(),
            kinds={kind: self._asked(kind) for kind in KINDS},
            risk_floors=self.risk_floors,
            escalate_to=self.escalate_to,
            break_glass="lead" if self.break_glass else "",
            grant_valid_seconds=self.grant_valid.total_seconds(),
        )

    def _policy(self, risk: Risk) -> Policy:
        level = self.level(risk)
        return Policy(
            demands=(self.who_decides(level).demand(needed=level.needed),),
            expires_seconds=(level.expires or EXPIRES[risk]).total_seconds(),
            # Who asks may approve what is easily taken back; a high risk takes a second pair of eyes.
            own_work_counts=risk != "high" or self.single_operator,
            single_operator=self.single_operator,
        )

    def _asked(self, kind: str) -> Asked:
        """The settings for the kind, else what operations agreed on, with what the settings add for its verb."""
        default = DEFAULTS.get(kind, Asked())
        verb = VERB_OF_KIND.get(kind, kind)
        shares = self.who[kind] if kind in self.who else more_of(default.shares, self.who.get(verb, ()))
        time = self.expires.get(kind) or self.expires.get(verb)
        if time is None and self.level(RISKS_OF_KINDS.get(kind, "low")).expires:
            return Asked(shares=shares)
        return Asked(shares=shares, expires_seconds=time.total_seconds() if time else default.expires_seconds)

    def _teams(self) -> dict[str, Demand]:
        """Those that have people; `ApprovalRules` knows who stands in for the others."""
        teams: dict[str, Team] = {name: getattr(self.teams, name) for name in Teams.model_fields}
        return {name: team.demand(team=name) for name, team in teams.items() if team.is_anybody}

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        problems: dict[Risk, str] = {}
        orphans = [risk for risk in RISKS if not self.who_decides(self.level(risk)).is_anybody]
        if orphans:
            problems |= dict.fromkeys(
                orphans,
                f"name nobody who may approve {', '.join(orphans)} risk; "
                f"set {PREFIX}APPROVALS_USER_GROUP=S0123456789 or {PREFIX}APPROVALS_USERS=U0123456789",
            )
        for risk in RISKS:
            needed, people = self.level(risk).needed, self.who_decides(self.level(risk))
            if people.users and not (people.user_group or people.channel) and len(set(people.users)) < needed:
                problems[risk] = f"need {needed} people for {risk} risk and name {len(set(people.users))}"
            if self.single_operator and needed > 1:
                problems[risk] = f"say single_operator and need {needed} people for {risk} risk; keep one of both"
        if listed := [*dict.fromkeys(problems.values()), *self._out_of_reach(problems)]:
            raise ValueError("\n".join(listed))
        return self

    def _out_of_reach(self, faulty: Collection[Risk]) -> Iterator[str]:
        """Kinds for which the settings name too few people, whoever of them presses."""
        rules = self.rules
        found: dict[str, list[str]] = {}
        for kind in KINDS:
            risk = rules.risk_of(kind, VERB_OF_KIND.get(kind, kind))
            policy = rules.policy(risk, kind=kind)
            people = people_named(policy.demands)
            if risk not in faulty and people is not None and (missing := still_missing_at_best(policy, people)):
                lacking = " and ".join(f"{demand.needed} of {demand.team}" for demand in missing)
                found.setdefault(lacking, []).append(kind)
        for lacking, kinds in found.items():
            yield f"name too few people for {', '.join(kinds)}: {lacking} missing; name more of them, or a user group"


class Breaker(_Part):
    disruptive_changes: int = Field(3, ge=1)
    """On one workload within `per`: more of them is a facility's problem or the bot's, and no single workload's."""
    per: Duration = Field(timedelta(hours=1), examples=["1h"])
    """The time in which the limits of the breakers count."""
    node_disruptions: int = Field(2, ge=1, le=50)
    """Nodes cordoned or drained within `per`, over the whole deployment: a hall that heats takes nodes one by one."""
    cordoned_share: float = Field(0.1, gt=0, le=1, examples=["0.1"])
    """Of the fleet's GPUs, 0 to 1, that may be cordoned, whoever cordoned them; one node may always go."""


class Log(_Part):
    format: Literal["json", "console"] = "json"
    """How log lines are written."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""


def _texts(value: Any) -> Any:
    """Numbers and switches as they are written: a playbook says what it takes."""
    if not isinstance(value, dict):
        return value
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


Texts = Annotated[dict[str, str], BeforeValidator(_texts)]


class Settings(_Part):
    cluster: str = ""
    """The value of the alerts' `cluster` label that means this cluster."""
    redis_url: Annotated[Secret, AfterValidator(_redis_address)] = Field(examples=["redis://localhost:6379/0"])
    """The address of Redis or Valkey."""
    redis_tag: str = Field("bot", pattern=r"^[A-Za-z0-9_.-]+$", examples=["bot"])
    """The prefix of all keys. Two bots may share a Redis under two tags."""
    redis_replicas: int = Field(0, ge=0, le=9)
    """Redis replicas that must confirm a claim before its call."""
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
    overrides: Pairs = Field({}, alias="set", examples=["window=15s,calm_for=20s"])
    """Playbook settings by name; each playbook takes those that it declares."""
    playbook_settings: dict[str, Texts] = Field({}, examples=["{kv-cache-oom: {kv_ceiling: 0.85}}"])
    """Settings of one playbook."""
    target_settings: dict[str, dict[str, Texts]] = Field(
        {}, examples=["{'llm/chat-*': {kv-cache-oom: {kv_ceiling: 0.85}}}"]
    )
    """Settings of a playbook on some targets, by `namespace/workload`; `*` stands for anything."""
    approvals: Approvals
    breaker: Breaker
    retention_days: int = Field(90, ge=1)
    """How many days a closed incident is kept."""
    reopen_within: Duration = Field(timedelta(minutes=15), examples=["15m"])
    """An alert that fires again within this time reopens its closed incident."""
    log: Log

    @property
    def tuning(self) -> Tuning:
        return Tuning(self.playbook_settings, self.target_settings)

    @property
    def approval_rules(self) -> ApprovalRules:
        return self.approvals.rules

    @property
    def on_call(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Users and user groups that steer: whom an incident's own channel begins with."""
        everybody = (self.steering, *self.steering.or_of)
        groups = [each.user_group for each in everybody if each.user_group]
        return tuple(dict.fromkeys(user for each in everybody for user in each.users)), tuple(dict.fromkeys(groups))

    @property
    def steering(self) -> Demand:
        """Who may steer; the approvers when nobody is named."""
        slack = self.slack
        if slack.steering_users or slack.steering_user_group:
            return Demand(team="steerers", users=slack.steering_users, user_group=slack.steering_user_group)
        approvers = [self.approvals.who_decides(self.approvals.level(risk)) for risk in RISKS]
        first, *others = dict.fromkeys(people.demand(team="steerers") for people in approvers)
        return first.model_copy(update={"or_of": tuple(others)})


# --- reading them -----------------------------------------------------------------------------------------------------


def load_settings(environ: Mapping[str, str], file: Path | None = None, *, overrides: Sequence[str] = ()) -> Settings:
    """Raise `SettingsError` with every fault. `overrides` are `name=value` texts of the command line; they win."""
    gathered = _Gathered()
    path = file or (Path(environ[FILE_VARIABLE]) if environ.get(FILE_VARIABLE) else None)
    if path is not None:
        gathered.read_file(path)
    gathered.read_environment(environ)
    gathered.read_overrides(overrides)
    try:
        settings = Settings.model_validate(gathered.values)
    except Invalid as invalid:
        faults = [*gathered.problems, *gathered.explain(invalid)]
        raise SettingsError([*faults, *gathered.hidden_by(invalid)]) from None
    if gathered.problems:
        raise SettingsError(gathered.problems)
    return settings


def leaves(model: type[BaseModel], path: Location = ()) -> Iterator[tuple[Location, FieldInfo]]:
    """Every single setting with its place in the file."""
    for name, info in model.model_fields.items():
        here = (*path, info.alias or name)
        nested = _nested(info)
        if nested is None:
            yield here, info
        else:
            yield from leaves(nested, here)


def _nested(info: FieldInfo) -> type[_Part] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, _Part) else None


LEAVES = dict(leaves(Settings))
VARIABLES = {PREFIX + "_".join(path).upper(): path for path in LEAVES}


@dataclass
class _Gathered:
    """Raw values by place, with where each was found, and what is wrong already."""

    values: dict[str, Any] = field(
        default_factory=lambda: {name: {} for name, info in Settings.model_fields.items() if _nested(info)}
    )
    sources: dict[Location, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def put(self, path: Location, value: Any, source: str) -> None:
        inner = self.values
        for name in path[:-1]:
            deeper = inner.setdefault(name, {})
            if not isinstance(deeper, dict):
                return  # the file holds something else there, and that is reported by itself
            inner = deeper
        inner[path[-1]] = value
        self.sources[path] = source

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for variable, path in (PLAIN_NAMES | VARIABLES).items():
            value = environ.get(variable, "").strip()
            if value:
                self.put(path, value, variable)
        for name in sorted(environ):
            rest = name.removeprefix(PREFIX)
            if rest == name or name in VARIABLES or name == FILE_VARIABLE or _SERVICE_LINK.fullmatch(rest):
                continue
            self.problems.append(f"{name} is no setting{_did_you_mean(name, VARIABLES)}")

    def read_overrides(self, overrides: Sequence[str]) -> None:
        if not overrides:
            return
        try:
            known = _pairs(self.values.get("set", {}))
            added = _pairs(",".join(overrides))
        except ValueError as wrong:
            self.problems.append(f"--set: {wrong}; example: --set window=15s")
            return
        if isinstance(known, dict) and isinstance(added, dict):
            self.put(("set",), known | added, "--set")

    def read_file(self, path: Path) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.constructor import DuplicateKeyError
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        # Only `problem` is shown: an error's snippet and the message about a duplicate hold values, perhaps secret.
        try:
            text = path.read_text(encoding="utf-8")
            root = YAML(typ="safe", pure=True).compose(text)
            content = YAML(typ="safe", pure=True).load(text)
        except (OSError, UnicodeDecodeError) as unreadable:
            reason = unreadable.strerror if isinstance(unreadable, OSError) else "it is not UTF-8"
            self.problems.append(f"{path} cannot be read: {reason}; correct --settings or {FILE_VARIABLE}")
        except MarkedYAMLError as wrong:
            mark = wrong.problem_mark
            where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
            what = "a key is written twice" if isinstance(wrong, DuplicateKeyError) else wrong.problem
            self.problems.append(f"{where}: not YAML: {what}")
        except YAMLError as wrong:
            self.problems.append(f"{path}: not YAML: {type(wrong).__name__}")
        else:
            if isinstance(content, dict):
                self._take(content, dict(_positions(root, str(path))))
            elif content is not None:
                self.problems.append(f"{path}: must hold settings by name; example: 'slack: {{channel: C0123456789}}'")

    def _take(self, content: dict[str, Any], positions: Mapping[Location, str]) -> None:
        self.values |= {name: value for name, value in content.items() if value is not None}
        self.sources |= {path: f"{where} ({'.'.join(path)})" for path, where in positions.items()}

    def explain(self, invalid: Invalid) -> Iterator[str]:
        for error in invalid.errors(include_url=False, include_input=False, include_context=False):
            yield from self._faults(error)

    def _faults(self, error: Mapping[str, Any]) -> Iterator[str]:
        path = tuple(str(part) for part in error["loc"] if not isinstance(part, int))
        for line in _plain(error["msg"]).splitlines():
            yield self._fault(path, error["type"], line)

    def hidden_by(self, invalid: Invalid) -> Iterator[str]:
        """The faults that checks of whole parts find once what stopped them is taken away."""
        rest = deepcopy(self.values)
        for error in invalid.errors(include_url=False, include_input=False, include_context=False):
            _take_away(rest, tuple(str(part) for part in error["loc"]))
        try:
            Settings.model_validate(rest)
        except Invalid as second:
            known = {(error["loc"], error["msg"]) for error in invalid.errors(include_url=False)}
            for error in second.errors(include_url=False, include_input=False, include_context=False):
                # What is missing now was there: it has been told already.
                if error["type"] != "missing" and (error["loc"], error["msg"]) not in known:
                    yield from self._faults(error)

    def _fault(self, path: Location, kind: str, what: str) -> str:
        known = path in LEAVES
        where = self._where(path)
        if kind == "missing" and known:
            return f"{where} is not set; example: {_example(path)}"
        if kind == "extra_forbidden":
            siblings = {leaf[len(path) - 1] for leaf in LEAVES if leaf[: len(path) - 1] == path[:-1]}
            return f"{where} is no setting{_did_you_mean(path[-1], siblings)}"
        example = _example(path) if known else ""
        return f"{where}: {what}" + (f"; example: {example}" if example else "")

    def _where(self, path: Location) -> str:
        """Where the value came from; a part of a value that is one setting is found at the setting."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.sources:
                return self.sources[path[:end]]
        if path not in LEAVES:
            return ".".join(path)
        plain = next((name for name, place in PLAIN_NAMES.items() if place == path), "")
        return f"{plain or PREFIX + '_'.join(path).upper()} ({'.'.join(path)} in the file)"


_STAND_INS = {
    "users": ("user_group", "S0"),
    "user_group": ("user_group", "S0"),
    "channel": ("channel", "C0"),
    "url": ("url", "https://localhost"),
}
"""What stands for a faulty value, so that nothing is told that is wrong only because it is gone."""


def _take_away(values: dict[str, Any], path: Location) -> None:
    """The setting at `path`, or the one that it is a part of; a part of the settings as a whole stays."""
    end = next((end for end in range(len(path), 0, -1) if path[:end] in LEAVES), 0)
    inner: Any = values
    for name in path[: end - 1] if end else path[:-1]:
        inner = inner.get(name) if isinstance(inner, dict) else None
    last = path[end - 1] if end else path[-1]
    if not isinstance(inner, dict) or (isinstance(inner.get(last), dict) and not end):
        return
    inner.pop(last, None)
    if last in _STAND_INS:
        name, value = _STAND_INS[last]
        inner[name] = value


def _positions(node: Any, file: str, path: Location = ()) -> Iterator[tuple[Location, str]]:
    if getattr(node, "id", "") != "mapping" or len(path) > 8:  # an alias may hold itself
        return
    for key, value in node.value:
        here = (*path, str(key.value))
        yield here, f"{file}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        yield from _positions(value, file, here)


def _plain(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return "is not of the right form" if message.startswith("String should match pattern") else message


def _example(path: Location) -> str:
    info = LEAVES[path]
    if info.examples:
        return str(info.examples[0])
    choices = get_args(info.annotation) if isinstance(info.default, str) else ()
    return " or ".join(map(str, choices)) if choices else str(info.default if info.default is not None else "")


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
