"""Settings are read once, completely or not at all; every fault has its location and an example."""

import operator
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from bot.adapters.slack.outbound.pace import cards_in_a_period
from bot.dependencies import channel_rules_of, operators_of, paces_of
from bot.domain.approvals.configuration import Approvals
from bot.domain.approvals.grant import Demand
from bot.domain.kernel.errors import SecretFileError, SettingsError
from bot.domain.kernel.target import Target
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.settings import Override
from bot.settings import LEAVES, PLAIN_NAMES, VARIABLES, Settings, load_settings, load_storage_settings
from tests.kit.settings import ENOUGH

pytestmark = pytest.mark.fast


def settings(**changes: str) -> Settings:
    return load_settings(ENOUGH | {f"INCIDENT_BOT_{name}": value for name, value in changes.items()})


def faults(environ: dict[str, str], file: Path | None = None, *, overrides: tuple[str, ...] = ()) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        load_settings(environ, file, overrides=overrides)
    return refused.value.problems


def written(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_commands_that_only_use_redis_need_its_address_alone() -> None:
    read = load_storage_settings({"REDIS_URL": "redis://localhost/0", "INCIDENT_BOT_SLACK_CHANNEL": "#not an id"})
    assert (read.redis_url.get_secret_value(), read.redis_tag) == ("redis://localhost/0", "bot")
    with pytest.raises(SettingsError) as refused:
        load_storage_settings({"INCIDENT_BOT_RETENTION_DAYS": "none", "INCIDENT_BOT_RETENTION_DAY": "3"})
    typo, missing, wrong = refused.value.problems
    assert "INCIDENT_BOT_RETENTION_DAY is not a setting" in typo
    assert missing.startswith("REDIS_URL (redis_url in the file) is not set")
    assert wrong.startswith("INCIDENT_BOT_RETENTION_DAYS: ")


def test_a_mistyped_setting_in_the_file_is_reported_also_where_only_redis_is_needed(tmp_path: Path) -> None:
    file = written(tmp_path, "redis_url: redis://localhost/0\nredis_tga: prod\nslack: {channel: '#any'}\n")
    with pytest.raises(SettingsError) as refused:
        load_storage_settings({}, file)
    (only,) = refused.value.problems
    assert "redis_tga) is not a setting; did you mean redis_tag?" in only


def test_seven_variables_are_enough() -> None:
    read = load_settings(ENOUGH)
    assert (read.http.host, read.http.port, read.http.body_limit_bytes) == ("127.0.0.1", 8080, 2 * 1024 * 1024)
    assert (read.redis_tag, read.redis_replicas, read.retention_days) == ("bot", 0, 90)
    assert read.reopen_within == timedelta(minutes=15)
    assert [folder.joinpath("kv-cache-oom.yaml").is_file() for folder in read.playbooks] == [True]


def test_a_dashboard_is_set_for_all_targets_and_for_some() -> None:
    read = settings(DASHBOARD_URL="https://g/any?to=$to", DASHBOARD_TARGETS="serving/llm-*=https://g/llm?a=b&to=$to")
    assert read.dashboard.dashboards.targets == (("serving/llm-*", "https://g/llm?a=b&to=$to"),)
    assert read.dashboard.dashboards.url == "https://g/any?to=$to"
    for name in ("URL", "TARGETS"):
        wrong = {f"INCIDENT_BOT_DASHBOARD_{name}": f"{'a/b=' * (name == 'TARGETS')}https://g/$pod"}
        (fault,) = faults(ENOUGH | wrong)
        assert "contains $pod; only $cluster, $namespace, $workload, $from, $to are filled in" in fault


def test_the_default_approvals_are_those_of_the_operations_manual() -> None:
    rules = settings().approvals.rules()
    assert [p.expires_seconds for p in (rules.low, rules.medium, rules.high)] == [1800, 900, 900]
    assert [p.needed for p in (rules.low, rules.medium, rules.high)] == [1, 1, 1]
    assert rules.high.demands[0].user_group == "S0SERVING"
    assert rules.grant_valid_seconds == 600


@pytest.mark.parametrize(
    ("four_eyes", "two"),
    [
        ("all", ["scale", "promote", "set_flags"]),
        ("high", ["promote", "set_flags"]),
        ("scale,set_flags", ["scale", "set_flags"]),
    ],
)
def test_four_eyes_are_asked_for_by_kind_or_risk(four_eyes: str, two: list[str]) -> None:
    rules = settings(APPROVALS_FOUR_EYES=four_eyes).approvals.rules()
    kinds = ("scale", "promote", "set_flags")
    policies = {kind: rules.policy(rules.risk_of(kind, kind), kind=kind) for kind in kinds}
    assert [kind for kind, policy in policies.items() if policy.needed == 2] == two


def test_pre_approved_changes_are_bounded() -> None:
    (rule,) = settings(APPROVALS_PRE_APPROVED="scale=2").approvals.rules().pre_approved
    assert str(rule) == "scale (at most 2 in one incident)"


def test_a_limit_of_replicas_on_a_change_that_sets_no_number_of_them_is_refused(tmp_path: Path) -> None:
    text = "approvals: {pre_approved: [{change: canary, most_replicas: 8}]}"
    (only,) = faults(ENOUGH, written(tmp_path, f"{text}\n"))
    assert "most_replicas limits only scale, scale_more and scale_over_half, not canary" in only


def test_a_level_may_name_its_own_people() -> None:
    rules = settings(APPROVALS_HIGH_USERS="U0ANA, U0BEN", APPROVALS_HIGH_NEEDED="2").approvals.rules()
    assert rules.high.demands == (Demand(needed=2, users=("U0ANA", "U0BEN")),)
    assert rules.low.demands[0].user_group == "S0SERVING"


def test_a_team_without_people_is_stood_in_for_by_the_approvers() -> None:
    rules = settings(APPROVALS_TEAMS_PLATFORM_USERS="U0PLA").approvals.rules()
    (either,) = rules.policy("high", ("platform",), kind="drain_node").demands
    assert (either.team, either.users) == ("platform or serving", ("U0PLA",))
    assert either.or_of == (Demand(team="serving", user_group="S0SERVING", falls_back=True),)


OPERATIONS = {
    "run_job": ("low", "approvers", 30),
    "remove_canary": ("low", "approvers", 30),
    "scale": ("low", "approvers", 20),
    "scale_more": ("medium", "approvers", 20),
    "canary": ("medium", "approvers", 15),
    "undo": ("medium", "approvers", 15),
    "cordon_node": ("medium", "serving or platform", 10),
    "uncordon_node": ("medium", "platform", 60),
    "rollback": ("high", "approvers", 15),
    "promote": ("high", "approvers", 15),
    "set_flags": ("high", "serving or lead", 10),
    "client_contract": ("high", "serving or model", 30),
    "answer_quality": ("high", "serving or model", 60),
    "replace_busy_replica": ("high", "serving or lead", 10),
    "drain_node": ("high", "platform or serving", 10),
}


@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_default_of_each_kind_is_that_of_the_operations_manual(kind: str) -> None:
    rules = settings().approvals.rules()
    risk = rules.risk_of(kind, kind)
    policy = rules.policy(risk, kind=kind)
    teams = " + ".join(demand.team for demand in policy.demands)
    assert (risk, teams, policy.expires_seconds / 60) == OPERATIONS[kind]
    assert {demand.needed for demand in policy.demands} == {1}


def test_a_kind_may_be_asked_of_other_teams_for_another_time() -> None:
    rules = settings(
        APPROVALS_WHO="scale=2 approvers, set_flags=serving, uncordon_node=platform or lead",
        APPROVALS_EXPIRES="scale=5m",
        APPROVALS_HIGH_EXPIRES="7m",
    ).approvals.rules()
    assert [(d.team, d.needed) for d in rules.policy("low", kind="scale").demands] == [("approvers", 2)]
    more = rules.policy("medium", kind="scale_more")
    assert ([(d.team, d.needed) for d in more.demands], more.expires_seconds) == ([("approvers", 2)], 300)
    assert [d.team for d in rules.policy("medium", kind="uncordon_node").demands] == ["platform or lead"]
    flags = rules.policy("high", kind="set_flags")
    assert ([d.team for d in flags.demands], flags.expires_seconds) == (["serving"], 420)


def test_any_of_several_teams_is_a_demand_that_each_of_them_meets() -> None:
    teams = {"APPROVALS_TEAMS_PLATFORM_CHANNEL": "C0PLATFORM", "APPROVALS_TEAMS_SERVING_USERS": "U0ANA"}
    (either,) = settings(**teams).approvals.rules().policy("medium", kind="cordon_node").demands
    assert (either.team, either.needed, either.falls_back) == ("serving or platform", 1, False)
    assert [source.users or source.channel for source in either.sources] == [("U0ANA",), "C0PLATFORM"]


def test_only_a_critical_incident_with_two_teams_has_a_glass_to_break() -> None:
    rules = settings(APPROVALS_TEAMS_LEAD_USERS="U0LEA", APPROVALS_FOUR_EYES="set_flags").approvals.rules()
    lead = Demand(team="lead", users=("U0LEA",))
    assert rules.policy("high", kind="set_flags", critical=True).break_glass == lead
    assert rules.policy("high", kind="set_flags").break_glass is None
    assert rules.policy("high", kind="promote", critical=True).break_glass is None
    assert rules.policy("high", kind="promote").escalate_to == lead
    never = settings(APPROVALS_TEAMS_LEAD_USERS="U0LEA", APPROVALS_BREAK_GLASS="false").approvals.rules()
    assert never.policy("high", kind="set_flags", critical=True).break_glass is None
    nobody = settings().approvals.rules().policy("high", kind="set_flags", critical=True)
    assert (nobody.break_glass, nobody.escalate_to) == (None, None)


def test_floors_name_verbs_and_risks() -> None:
    assert settings(APPROVALS_RISK_FLOORS="scale=medium").approvals.rules().risk_floors == {"scale": "medium"}


def test_the_approvers_are_the_operators_when_nobody_else_is_named() -> None:
    assert operators_of(settings()) == Demand(team="operators", user_group="S0SERVING")
    assert operators_of(settings(SLACK_OPERATOR_USERS="U0LEA")) == Demand(team="operators", users=("U0LEA",))
    both = operators_of(settings(APPROVALS_HIGH_USERS="U0LEA,U0BEN"))
    assert [source.users or source.user_group for source in both.sources] == ["S0SERVING", ("U0LEA", "U0BEN")]


CHAT = {"targets": ["chat/*"], "user_group": "S0CHAT"}


def with_approvers(*own: Mapping[str, object], **more: str) -> Approvals:
    return Approvals.model_validate(settings(**more).approvals.model_dump(exclude_unset=True) | {"approvers": own})


@pytest.mark.parametrize(
    ("name", "kind", "asked"),
    [
        pytest.param("chat/llm", "scale", ["S0CHAT"], id="its-own"),
        pytest.param("chat/llm", "rollback", ["S0CHAT"], id="at-every-level"),
        pytest.param("chat/llm", "cordon_node", ["S0CHAT", "C0PLATFORM"], id="in-place-of-a-team-without-people"),
        pytest.param("chat/llm", "uncordon_node", ["C0PLATFORM"], id="teams-stay"),
        pytest.param("serving/llm", "scale", ["S0SERVING"], id="another-target"),
    ],
)
def test_a_target_may_have_approvers_of_its_own(name: str, kind: str, asked: list[str]) -> None:
    namespace, _, workload = name.partition("/")
    rules = with_approvers(CHAT, APPROVALS_TEAMS_PLATFORM_CHANNEL="C0PLATFORM").rules()
    policy = rules.for_target(Target(namespace=namespace, name=workload)).policy("low", kind=kind)
    sources = [source for demand in policy.demands for source in demand.sources]
    assert sorted(source.user_group or source.channel for source in sources) == sorted(asked)
    assert policy.approvers_of == ("chat/*" if "S0CHAT" in asked else "")


def test_people_of_one_risk_level_decide_about_every_target() -> None:
    rules = with_approvers(CHAT, APPROVALS_HIGH_USERS="U0LEA").rules().for_target(Target(namespace="chat", name="llm"))
    assert [level.demands[0].user_group for level in (rules.low, rules.medium)] == ["S0CHAT", "S0CHAT"]
    assert rules.high.demands == (Demand(users=("U0LEA",)),)


def test_the_first_approvers_that_match_a_target_count() -> None:
    rules = with_approvers({"targets": ["chat/llm-70b"], "users": ["U0ANA"]}, CHAT).rules()
    assert rules.for_target(Target(namespace="chat", name="llm-70b")).low.demands[0].users == ("U0ANA",)
    assert rules.for_target(Target(namespace="chat", name="llm-8b")).low.demands[0].user_group == "S0CHAT"


@pytest.mark.parametrize(
    ("own", "more", "what"),
    [
        ({"targets": ["chat/*"]}, {}, "name nobody"),
        (
            {"targets": ["chat/*"], "users": ["U0ANA"]},
            {"APPROVALS_HIGH_NEEDED": "2"},
            "for chat/\\* need 2 people for high risk and name 1",
        ),
        (
            {"targets": ["chat/*"], "users": ["U0ANA"]},
            {"APPROVALS_FOUR_EYES": "scale"},
            "for chat/\\* name too few people for scale",
        ),
    ],
)
def test_approvers_of_a_target_who_are_too_few_are_an_error(
    own: dict[str, object], more: dict[str, str], what: str
) -> None:
    with pytest.raises(ValidationError, match=what):
        with_approvers(own, **more)


def test_approvers_of_a_target_may_operate_incidents_and_are_invited_to_its_own_only() -> None:
    approvals = with_approvers(CHAT)
    found = settings().model_copy(update={"approvals": approvals})
    assert [source.user_group for source in operators_of(found).sources] == ["S0SERVING", "S0CHAT"]
    rules = channel_rules_of(found)
    assert rules.invited(Target(namespace="chat", name="llm")) == ((), ("S0SERVING", "S0CHAT"))
    assert rules.invited(Target(namespace="serving", name="llm")) == ((), ("S0SERVING",))


def test_the_pace_in_slack_is_slacks_own_unless_the_workspace_was_granted_more() -> None:
    rest = {"home": (0.1, 1.0)}
    assert paces_of(settings().slack) == {"post": (1.0, 3.0), "update": (50 / 60, 10.0), **rest}
    granted = settings(SLACK_POSTS_PER_SECOND="4", SLACK_POSTS_BURST="20", SLACK_UPDATES_PER_MINUTE="120")
    assert paces_of(granted.slack) == {"post": (4.0, 20.0), "update": (2.0, 10.0), **rest}


def test_there_are_no_more_cards_in_any_minute_than_people_can_read() -> None:
    assert cards_in_a_period(settings().slack.cards_per_minute) == (10, 60.0)
    assert cards_in_a_period(2.5) == (2, 48.0)


def test_the_prefixed_name_wins_over_the_plain_one() -> None:
    assert settings(REDIS_URL="rediss://other:6380").redis_url.get_secret_value() == "rediss://other:6380"


def test_an_empty_variable_counts_as_unset() -> None:
    assert settings(HTTP_PORT=" ").http.port == 8080


def test_a_secret_with_the_newline_of_its_file_is_the_secret() -> None:
    token = settings(ALERTMANAGER_BEARER_TOKEN="abc\n").alertmanager.bearer_token
    assert token is not None
    assert token.get_secret_value() == "abc"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("ALERTMANAGER_BEARER_TOKEN", "alertmanager.bearer_token"),
        ("SLACK_SIGNING_SECRET", "slack.signing_secret"),
    ],
)
def test_a_secret_in_a_file_is_read_again_after_it_was_rotated(name: str, field: str, tmp_path: Path) -> None:
    file = written(tmp_path, "old\n")
    secret = operator.attrgetter(field)(settings(**{name: f"file:{file}"}))
    assert secret.get_secret_value() == "old"
    file.write_text("new\n")
    assert secret.get_secret_value() == "new"
    assert str(file) not in repr(secret)
    file.write_text("\n")
    with pytest.raises(SecretFileError, match="is empty"):
        secret.get_secret_value()


@pytest.mark.parametrize(("content", "reason"), [(None, "cannot be read: No such file or directory"), ("", "is empty")])
def test_a_secret_whose_file_holds_none_is_a_fault(content: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    for name in ("INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN", "SLACK_SIGNING_SECRET"):
        (fault,) = faults(ENOUGH | {name: f"file:{file}"})
        assert fault.startswith(f"{name}: '{file}' {reason}")


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "http: {port: 1}\nlog: {level: debug}\noverrides: [{settings: {window: 1m, calm: 2m, ratio: 0.1, on: true}}]\n",
    )
    environ = ENOUGH | {"INCIDENT_BOT_HTTP_PORT": "2", "INCIDENT_BOT_SETTINGS": str(path)}
    read = load_settings(environ, overrides=["calm=3m"])
    assert (read.http.port, read.log.level) == (2, "debug")
    assert [each.settings for each in read.overrides] == [
        {"window": "1m", "calm": "2m", "ratio": "0.1", "on": "true"},
        {"calm": "3m"},
    ]


def test_every_setting_has_one_name_in_the_environment() -> None:
    assert len(VARIABLES) == len(LEAVES)
    assert set(PLAIN_NAMES.values()) <= set(LEAVES)


def test_nothing_that_is_missing_is_kept_for_a_second_error() -> None:
    listed = faults({})
    for name in ("REDIS_URL", "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET", "SLACK_CHANNEL", "ALERTMANAGER_BEARER_TOKEN"):
        assert any(name in fault for fault in listed), name
    assert any(fault.startswith("kubernetes: must name one cluster") for fault in listed)
    assert any(fault.startswith("approvals: name nobody who may approve low, medium, high") for fault in listed)
    assert len(listed) == 7
    assert listed[0] == "REDIS_URL (redis_url in the file) is not set; example: redis://localhost:6379/0"


def test_a_secret_that_a_file_leaves_out_is_named_by_its_variable(tmp_path: Path) -> None:
    environ = {name: value for name, value in ENOUGH.items() if "SLACK_" not in name}
    path = written(tmp_path, "slack: {channel: C0123456789}\n")
    assert faults(environ, path) == (
        f"{path}:1:1 (slack): SLACK_BOT_TOKEN (slack.bot_token in the file) is not set; example: xoxb-…",
        f"{path}:1:1 (slack): SLACK_APP_TOKEN (slack.app_token in the file) is not set, nor is SLACK_SIGNING_SECRET; "
        "set the latter to the Signing Secret of the app's Basic Information page, or this one for Socket Mode; "
        "example: xapp-…",
    )


def test_a_fault_of_one_setting_hides_none_of_the_whole_part() -> None:
    environ = ENOUGH | {
        "INCIDENT_BOT_APPROVALS_USER_GROUP": "",
        "INCIDENT_BOT_APPROVALS_USERS": "U0ANA",
        "INCIDENT_BOT_APPROVALS_HIGH_NEEDED": "2",
        "INCIDENT_BOT_APPROVALS_WHO": "set_flag=lead",
        "INCIDENT_BOT_ALERTMANAGER_URL": "alertmanager:9093",
        "INCIDENT_BOT_ALERTMANAGER_OPEN": "true",
    }
    reported = "\n".join(faults(environ))
    assert "'set_flag' is not a kind of change" in reported
    assert "approvals: need 2 people for high risk and name 1" in reported
    assert "INCIDENT_BOT_ALERTMANAGER_URL: is not of the right form" in reported
    assert "alertmanager: has more than one way to prove a sender" in reported
    assert len(faults(environ)) == 4


@pytest.mark.parametrize(
    ("text", "places"),
    [
        pytest.param("1: x\n", ["1:1"], id="number"),
        pytest.param("log: {level: info}\nnull: 3\n", ["2:1"], id="null"),
        pytest.param("? [a, b]\n: z\n", ["1:3"], id="list"),
        pytest.param("? {a: b}\n: z\n", ["1:3"], id="mapping"),
        pytest.param("slack:\n  2: y\noverrides: [{settings: {true: 1}}]\n", ["2:3", "3:25"], id="inside"),
    ],
)
def test_a_key_that_is_no_text_is_reported_with_its_place(text: str, places: list[str], tmp_path: Path) -> None:
    file = written(tmp_path, text)
    assert faults(ENOUGH, file) == tuple(
        f"{file}:{place}: the name of a setting must be a text; write it in quotes" for place in places
    )


def test_a_settings_file_may_merge_what_it_repeats(tmp_path: Path) -> None:
    file = written(tmp_path, "log: &log {level: debug}\nslack: {channel: C0X}\noverrides: [{settings: {<<: *log}}]\n")
    assert load_settings(ENOUGH, file).overrides[0].settings == {"level": "debug"}


def test_a_kubeconfig_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    environ = ENOUGH | {
        "INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "",
        "INCIDENT_BOT_KUBERNETES_KUBECONFIG": str(tmp_path / "none"),
    }
    (only,) = faults(environ)
    assert only == f"kubernetes: has a kubeconfig that cannot be read: {tmp_path / 'none'}: No such file or directory"


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("HTTP_PORT", "http", "INCIDENT_BOT_HTTP_PORT: must be a whole number"),
        ("HTTP_PORT", "70000", "INCIDENT_BOT_HTTP_PORT: must be at most 65535"),
        ("BREAKER_PER", "500ms", "INCIDENT_BOT_BREAKER_PER: must be at least 1 minute"),
        ("REDIS_URL", "localhost:6379", "INCIDENT_BOT_REDIS_URL: is not a Redis address; example: redis://"),
        (
            "REDIS_URL",
            "redis://:s3c/ret@host:6379",
            "INCIDENT_BOT_REDIS_URL: has a host or a port that is not valid; in a",
        ),
        (
            "REDIS_URL",
            "redis://:12#s3cret@host",
            "INCIDENT_BOT_REDIS_URL: has a host or a port that is not valid; in a",
        ),
        ("REDIS_URL", "redis://:s3[cret@host", "INCIDENT_BOT_REDIS_URL: has a host or a port that is not valid; in a"),
        ("REDIS_TAG", "{bot}", "INCIDENT_BOT_REDIS_TAG: is not of the right form; example: bot"),
        ("SLACK_CHANNEL", "#incidents", "INCIDENT_BOT_SLACK_CHANNEL: is not of the right form; example: C0123456789"),
        ("SLACK_BASE_URL", "http://slack.example/api/", "would send a token in clear"),
        ("SLACK_POSTS_PER_SECOND", "0", "INCIDENT_BOT_SLACK_POSTS_PER_SECOND: must be more than 0"),
        ("SLACK_POSTS_BURST", "0", "INCIDENT_BOT_SLACK_POSTS_BURST: must be at least 1"),
        ("SLACK_UPDATES_PER_MINUTE", "-1", "INCIDENT_BOT_SLACK_UPDATES_PER_MINUTE: must be more than 0"),
        ("PROMETHEUS_URL", "http://prometheus:90x", "INCIDENT_BOT_PROMETHEUS_URL: is not a web address"),
        ("ALERTMANAGER_URL", "http://u:s3/cret@alertmanager", "INCIDENT_BOT_ALERTMANAGER_URL: is not a web address"),
        ("SLACK_BASE_URL", "https://slack.com:44x/", "INCIDENT_BOT_SLACK_BASE_URL: is not a web address"),
        ("SLACK_BASE_URL", "slack.com", "INCIDENT_BOT_SLACK_BASE_URL: is not a web address; example: https://"),
        ("APPROVALS_USER_GROUP", "@serving", "INCIDENT_BOT_APPROVALS_USER_GROUP: is not of the right form"),
        ("APPROVALS_HIGH_EXPIRES", "15", "INCIDENT_BOT_APPROVALS_HIGH_EXPIRES: '15' is not a duration"),
        ("APPROVALS_HIGH_EXPIRES", "0s", "INCIDENT_BOT_APPROVALS_HIGH_EXPIRES: must be more than"),
        (
            "APPROVALS_RISK_FLOORS",
            "scael=high",
            "INCIDENT_BOT_APPROVALS_RISK_FLOORS: 'scael' is not a kind of change; did you mean scale?",
        ),
        ("APPROVALS_WHO", "scale=servers", "INCIDENT_BOT_APPROVALS_WHO: 'servers' names no team; write for example"),
        ("APPROVALS_WHO", "scale=lead + lead", "INCIDENT_BOT_APPROVALS_WHO: 'lead + lead' names a team twice"),
        (
            "APPROVALS_WHO",
            "set_flag=lead",
            "INCIDENT_BOT_APPROVALS_WHO: 'set_flag' is not a kind of change; did you mean",
        ),
        ("APPROVALS_EXPIRES", "scale=soon", "INCIDENT_BOT_APPROVALS_EXPIRES: 'soon' is not a duration"),
        ("APPROVALS_TEAMS_LEAD_CHANNEL", "#leads", "INCIDENT_BOT_APPROVALS_TEAMS_LEAD_CHANNEL: is not of the right"),
        ("APPROVALS_RISK_FLOORS", "scale=huge", "INCIDENT_BOT_APPROVALS_RISK_FLOORS: must be 'low'"),
        ("APPROVALS_HIGH_USERS", "ben", "INCIDENT_BOT_APPROVALS_HIGH_USERS: is not of the right form"),
        ("OVERRIDES", "window", "INCIDENT_BOT_OVERRIDES: write name=value"),
        (
            "PLANNED_WINDOWS",
            "[{kind: freeze}]",
            "INCIDENT_BOT_PLANNED_WINDOWS: is a list, which only a settings file can hold; example: [{kind: ",
        ),
        (
            "APPROVALS_ON_CALL",
            "[{name: chat}]",
            "INCIDENT_BOT_APPROVALS_ON_CALL: is a list, which only a settings file can hold; example: [{name: chat, ",
        ),
        (
            "APPROVALS_APPROVERS",
            "S0CHAT",
            "INCIDENT_BOT_APPROVALS_APPROVERS: is a list, which only a settings file can hold; example: [{targets: ",
        ),
        ("LOG_FORMAT", "xml", "INCIDENT_BOT_LOG_FORMAT: must be 'json' or 'console'"),
        ("PLAYBOOKS", "/no/such/folder", "INCIDENT_BOT_PLAYBOOKS: '/no/such/folder' is not a folder"),
        (
            "SLACK_CHANEL",
            "C0INC",
            "INCIDENT_BOT_SLACK_CHANEL is not a setting; did you mean INCIDENT_BOT_SLACK_CHANNEL?",
        ),
        ("KUBERNETES_KUBECONFIG", "/k", "kubernetes: must name one cluster in one way"),
        (
            "REPORTS_WEBHOOK",
            "https://wiki.example.com/r",
            "(reports.webhook_secret in the file): is needed with a webhook",
        ),
        ("REPORTS_STORE", "/srv", "INCIDENT_BOT_REPORTS_STORE: is not of the right form; example: file:///var/lib"),
        ("KUBERNETES_CONTEXT", "prod", "kubernetes: has a context without a kubeconfig"),
        ("KUBERNETES_TOKEN", "t", "kubernetes: has a token without a url"),
        ("ALERTMANAGER_OPEN", "true", "alertmanager: has more than one way to prove a sender"),
        ("ALERTMANAGER_USER", "am", "alertmanager: has more than one way to prove a sender"),
    ],
)
def test_a_fault_says_where_what_and_an_example(name: str, value: str, fault: str) -> None:
    (only,) = faults(ENOUGH | {f"INCIDENT_BOT_{name}": value})
    assert fault in only


def test_a_window_that_never_ends_is_reported_with_an_example(tmp_path: Path) -> None:
    (only,) = faults(ENOUGH, written(tmp_path, "planned_windows: [{kind: freeze}]"))
    assert only.endswith(
        "(planned_windows.0): never ends; write days, hours or ends; "
        "example: [{kind: maintenance, targets: llm/*, days: tue, hours: 02:00-04:00}]"
    )


@pytest.mark.parametrize(
    ("empty", "setting"),
    [
        ('prometheus: {url: "http://p", bearer_token: ""}', "prometheus.bearer_token"),
        ("approvals: {approvers: [{targets: [], users: U0ANA}]}", "approvals.approvers.0.targets"),
    ],
)
def test_an_empty_value_of_the_file_is_said_to_be_empty(tmp_path: Path, empty: str, setting: str) -> None:
    (only,) = faults(ENOUGH, written(tmp_path, empty))
    assert f"({setting}): must not be empty" in only


def test_the_prefix_of_all_settings_makes_none_of_them_alike() -> None:
    assert faults(ENOUGH | {"INCIDENT_BOT_X": "1"}) == ("INCIDENT_BOT_X is not a setting",)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        pytest.param({"HIGH_USERS": "U0ANA", "HIGH_NEEDED": "2"}, "need 2 people for high risk and name 1", id="few"),
        pytest.param(
            {"FOUR_EYES": "set_flags", "USER_GROUP": "", "USERS": "U0ANA"},
            "name too few people for set_flags: 1 of lead missing",
            id="four-eyes-of-one-person",
        ),
        pytest.param(
            {"FOUR_EYES": "all", "TEAMS_SERVING_USERS": "U0ANA", "TEAMS_LEAD_USERS": "U0ANA"},
            "name too few people for replace_busy_replica, restart, set_flags: 1 of lead missing",
            id="one-person-in-both-teams",
        ),
    ],
)
def test_approvals_that_could_never_be_met_are_refused(changes: dict[str, str], fault: str) -> None:
    (only,) = faults(ENOUGH | {f"INCIDENT_BOT_APPROVALS_{name}": value for name, value in changes.items()})
    assert only.startswith(f"approvals: {fault}")


def test_half_of_user_and_password_is_refused() -> None:
    environ = ENOUGH | {"INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "", "INCIDENT_BOT_ALERTMANAGER_USER": "am"}
    assert faults(environ) == ("alertmanager: has only one of user and password; set both",)


def test_files_of_workloads_need_a_token_and_whole_names(tmp_path: Path) -> None:
    entry = "{targets: serving/llm, repository: example/deploy, path: production/llm.yaml}"
    file = written(tmp_path, f"github:\n  files: [{entry}]\n")
    (only,) = faults(ENOUGH, file)
    assert "has files and no token; set INCIDENT_BOT_GITHUB_TOKEN" in only
    token = ENOUGH | {"INCIDENT_BOT_GITHUB_TOKEN": "github_pat_1"}
    assert load_settings(token, file).github.files[0].repository == "example/deploy"
    for wrong in ("repository: deploy", "path: /llm.yaml", "path: a?b", "flags: a..b", "targets: llm", "brunch: main"):
        other = (
            "{" + ", ".join([*(part for part in entry.strip("{}").split(", ") if part[:4] != wrong[:4]), wrong]) + "}"
        )
        found = faults(token, written(tmp_path, f"github:\n  files: [{other}]\n"))
        assert wrong.partition(":")[0] in " ".join(found), wrong


def test_an_open_receiver_must_be_asked_for() -> None:
    environ = ENOUGH | {"INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "", "INCIDENT_BOT_ALERTMANAGER_OPEN": "true"}
    assert load_settings(environ).alertmanager.open


def test_variables_that_kubernetes_makes_from_a_service_are_not_taken_for_settings() -> None:
    address = "tcp://10.0.0.7:80"
    read = settings(PORT=address, SERVICE_HOST="10.0.0.7", SERVICE_PORT="80", PORT_80_TCP=address, REDIS_PORT=address)
    assert read.http.port == 8080


def test_a_mistyped_port_is_not_taken_for_what_kubernetes_makes() -> None:
    assert faults(ENOUGH | {"INCIDENT_BOT_HTPP_PORT": "8081"}) == (
        "INCIDENT_BOT_HTPP_PORT is not a setting; did you mean INCIDENT_BOT_HTTP_PORT?",
    )


def test_a_fault_in_the_file_has_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "http:\n  prt: 80\nlog:\n  level: loud\napprovals:\n  high:\n    users: [U0ANA, ben]\n")
    listed = faults(ENOUGH, path)
    assert listed[0].startswith(f"{path}:2:3 (http.prt) is not a setting; did you mean port?")
    assert listed[1].startswith(f"{path}:7:5 (approvals.high.users): is not of the right form")
    assert listed[2].startswith(f"{path}:4:3 (log.level): must be 'debug'")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("overrides: [{target: llm, observe_only: true}]", "1:14 (overrides.0.target)", id="observe-only"),
        pytest.param(
            "approvals: {approvers: [{targets: llm, user_group: S0}]}", "1:26 (approvals.approvers.0.targets)", id="who"
        ),
        pytest.param(
            "approvals: {on_call: [{name: a, targets: [llm], user_group: S0}]}",
            "1:33 (approvals.on_call.0.targets)",
            id="on-call",
        ),
        pytest.param(
            "approvals: {pre_approved: [{change: scale, targets: [llm]}]}",
            "1:44 (approvals.pre_approved.0.targets)",
            id="pre-approved",
        ),
        pytest.param("dashboard: {targets: {llm: https://g.example/d}}", "1:13 (dashboard.targets)", id="dashboard"),
        pytest.param(
            "planned_windows: [{kind: freeze, targets: llm, hours: 02:00-03:00}]",
            "1:34 (planned_windows.0.targets)",
            id="window",
        ),
    ],
)
def test_a_pattern_that_matches_no_target_is_refused_wherever_targets_are_named(
    tmp_path: Path, text: str, place: str
) -> None:
    (only,) = faults(ENOUGH, path := written(tmp_path, f"{text}\n"))
    wanted = "'llm' matches no target; write NAMESPACE/WORKLOAD, with * for anything, such as llm/*"
    assert only.startswith(f"{path}:{place}: {wanted}")


@pytest.mark.parametrize("key", ["planned_windows: [{kind: freeze, ", "approvals: {pre_approved: [{change: scale, "])
def test_hours_that_are_no_span_are_refused_with_an_example(tmp_path: Path, key: str) -> None:
    ends = "}]" + "}" * key.startswith("approvals")
    (only,) = faults(ENOUGH, written(tmp_path, f"{key}hours: 22-6{ends}\n"))
    assert only.endswith("'22-6' is not a span of hours; write 22:00-06:00")
    (only,) = faults(ENOUGH, written(tmp_path, f"{key}hours: 08:00-08:00{ends}\n"))
    assert only.endswith("'08:00-08:00' ends when it begins; leave the hours out for the whole day")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("http: [", ":1:8: not YAML", id="unfinished"),
        pytest.param("- 1\n", ": must hold settings by name", id="a-list"),
        pytest.param("slack: {bot_token: s3cret-a, bot_token: s3cret-b}", "a key is written twice", id="twice"),
        pytest.param("slack: s3cret-x", "slack): must be settings by name", id="no-mapping"),
        pytest.param("http: {1: 2}", "1:8: the name of a setting must be a text", id="number-as-key"),
        pytest.param("http: &loop {port: *loop}", "http.port): must be a whole number", id="holds-itself"),
    ],
)
def test_a_file_that_is_no_settings_file_says_so_without_its_values(tmp_path: Path, text: str, fault: str) -> None:
    (only,) = faults(ENOUGH, written(tmp_path, text))
    assert fault in only
    assert "s3cret" not in only


def test_what_a_broken_file_may_hold_is_not_called_missing(tmp_path: Path) -> None:
    (only,) = faults({}, written(tmp_path, "redis: {url: redis://r}\nhttp: ["))
    assert ":2:8: not YAML" in only


def test_what_a_file_that_is_not_there_may_hold_is_not_called_missing(tmp_path: Path) -> None:
    (only,) = faults({"INCIDENT_BOT_SETTINGS": str(tmp_path / "none.yaml")})
    assert only.endswith(
        "none.yaml cannot be read: No such file or directory; correct --settings or INCIDENT_BOT_SETTINGS"
    )


def test_a_wrong_override_of_the_command_line_is_a_fault() -> None:
    assert faults(ENOUGH, overrides=("window",)) == (
        "--set: write name=value, several of them with commas between; example: window=15s",
    )


def test_no_secret_is_ever_shown() -> None:
    read = load_settings(ENOUGH)
    assert "s3cret" not in repr(read)
    assert "s3cret" not in str(read.model_dump())
    broken = {name: value.replace("redis://", "s3cret://") for name, value in ENOUGH.items()}
    assert "s3cret" not in str(faults(broken | {"INCIDENT_BOT_KUBERNETES_TOKEN": "s3cret-token"}))


def test_a_sampled_workload_is_a_deployment_unless_it_names_its_kind() -> None:
    named = load_settings(ENOUGH | {"INCIDENT_BOT_SAMPLING_WORKLOADS": "serving/llm,serving/LeaderWorkerSet/big"})
    assert named.sampling.named == (("serving", "Deployment", "llm"), ("serving", "LeaderWorkerSet", "big"))


@pytest.mark.parametrize("strange", ["serving/DaemonSet/llm", "llm", "serving/statefulset/llm"])
def test_a_kind_that_cannot_be_sampled_is_refused(strange: str) -> None:
    with pytest.raises(SettingsError, match="SAMPLING_WORKLOADS"):
        load_settings(ENOUGH | {"INCIDENT_BOT_SAMPLING_WORKLOADS": strange})


def test_playbooks_are_tuned_as_a_whole_and_for_targets(tmp_path: Path) -> None:
    text = """
overrides:
  - {playbook: kv-cache-oom, settings: {kv_ceiling: 0.85, careful: true}}
  - {playbook: kv-cache-oom, target: llm/chat-*, settings: {window: 10m}}
"""
    assert load_settings(ENOUGH | {"INCIDENT_BOT_OVERRIDES": "calm=1m"}, written(tmp_path, text)).overrides == (
        Override(playbook="kv-cache-oom", settings={"kv_ceiling": "0.85", "careful": "true"}),
        Override(playbook="kv-cache-oom", target="llm/chat-*", settings={"window": "10m"}),
        Override(settings={"calm": "1m"}),
    )


@pytest.mark.parametrize("command_line", [(), ("window=15s",)])
def test_a_fault_of_an_override_is_found_where_it_is_written(tmp_path: Path, command_line: tuple[str, ...]) -> None:
    path = written(tmp_path, "overrides:\n  - {settings: {window: 1m}}\n  - {playbok: small, settings: {window: 2m}}\n")
    assert faults(ENOUGH, path, overrides=command_line) == (
        f"{path}:3:6 (overrides.1.playbok) is not a setting; did you mean playbook?",
    )


def test_an_override_without_settings_is_found_where_it_is_written(tmp_path: Path) -> None:
    (fault,) = faults(ENOUGH, written(tmp_path, "overrides:\n  - {playbook: small}\n"))
    what = "sets nothing; write settings, observe_only or channel; example: window=15s,calm_for=20s"
    assert fault == f"{tmp_path}/settings.yaml:2:5 (overrides.0): {what}"


def test_slack_is_listened_to_over_http_or_in_socket_mode() -> None:
    without = {name: value for name, value in ENOUGH.items() if name != "SLACK_SIGNING_SECRET"}
    settings = load_settings({**without, "SLACK_APP_TOKEN": "xapp-1"})
    assert settings.slack.app_token is not None
    assert settings.slack.signing_secret is None
    with pytest.raises(SettingsError, match="SLACK_SIGNING_SECRET"):
        load_settings(without)


def test_folders_of_playbooks_are_listed_and_the_packaged_one_has_a_name(tmp_path: Path) -> None:
    read = load_settings(ENOUGH | {"INCIDENT_BOT_PLAYBOOKS": f"packaged,{tmp_path}"})
    assert read.playbooks == (packaged_playbooks(), tmp_path)


def test_a_variable_changes_only_its_own_place_of_a_yaml_alias(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("approvals:\n  low: &people {users: [U1]}\n  high: *people\n")
    found = load_settings(ENOUGH | {"INCIDENT_BOT_APPROVALS_LOW_USERS": "U7"}, file).approvals
    assert (found.low.users, found.high.users) == (("U7",), ("U1",))
