"""The doctor checks every dependency and gives advice; an unavailable one does not hide the others."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.adapters import alertmanager_api, pagers
from bot.adapters.kubernetes.doctor import judge
from bot.adapters.kubernetes.permissions import Checked, Permission
from bot.adapters.prometheus.doctor import reachable
from bot.adapters.report_sinks import ReportWebhook
from bot.adapters.slack.doctor import installation
from bot.adapters.yaml_playbooks import load_folders, load_text
from bot.cli.doctor import (
    examine,
    of_mode,
    of_playbooks,
    of_reach,
    of_settings,
    of_teams,
    options_of,
    pager_urls,
    rendered,
    reports,
)
from bot.cli.who_approves import who_approves
from bot.domain.approvals.advice import ObserveRule, Observing
from bot.domain.approvals.configuration import TargetApprovers
from bot.domain.approvals.grant import Demand
from bot.domain.kernel.finding import Finding, broken, fine, weak
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.sandbox import valkey
from bot.settings import Settings, load_settings
from tests.kit.settings import ENOUGH
from tests.processes import running

CLOSED_PORT = "http://127.0.0.1:1"
NOWHERE = {
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "INCIDENT_BOT_SLACK_BASE_URL": f"{CLOSED_PORT}/api/",
    "INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "",
    "INCIDENT_BOT_KUBERNETES_URL": CLOSED_PORT,
    "INCIDENT_BOT_PROMETHEUS_URL": CLOSED_PORT,
    "INCIDENT_BOT_ALERTMANAGER_URL": CLOSED_PORT,
}


def about(findings: list[Finding], what: str) -> list[Finding]:
    return [finding for finding in findings if finding.about == what]


@pytest.mark.fast
async def test_no_login_and_no_key_of_an_address_is_shown() -> None:
    async with httpx.AsyncClient() as client:
        webhook = await pagers.reachable(
            client, "the webhook of serving", "http://u:s3cret@127.0.0.1:1/s3cret?t=s3cret"
        )
        prometheus = await reachable(client, "http://u:s3cret@127.0.0.1:1")
        sink = ReportWebhook(client, "https://u:s3cret@wiki.example/s3cret", "k")
    shown = rendered([webhook, prometheus, fine("reports", f"are kept at {sink.name}")])
    assert "s3cret" not in shown
    assert "the webhook of serving does not answer at http://127.0.0.1:1: ConnectError" in shown
    assert "are kept at https://wiki.example\n" in shown


@pytest.mark.fast
def test_a_finding_is_one_line_and_its_remedy_the_next() -> None:
    findings = [fine("redis", "answers"), weak("slack", "half", "Do this."), broken("kubernetes", "away", "Do that.")]
    assert rendered(findings) == (
        "✔ redis       answers\n"
        "! slack       half\n"
        "              → Do this.\n"
        "✖ kubernetes  away\n"
        "              → Do that.\n"
        "\n"
        "✔ 1, ! 1, ✖ 1\n"
    )


@pytest.mark.fast
def test_settings_that_allow_more_than_usual_are_reported() -> None:
    usual = {
        "INCIDENT_BOT_CLUSTER": "prod",
        "INCIDENT_BOT_HTTP_HOST": "0.0.0.0",
        "INCIDENT_BOT_GPU_EXPORTER_NAMESPACES": "gpu-operator",
        "INCIDENT_BOT_APPROVALS_TEAMS_PLATFORM_USER_GROUP": "S0PLATFORM",
        "INCIDENT_BOT_APPROVALS_TEAMS_SERVING_USER_GROUP": "S0SERVING",
        "INCIDENT_BOT_APPROVALS_TEAMS_MODEL_USER_GROUP": "S0MODEL",
        "INCIDENT_BOT_APPROVALS_TEAMS_LEAD_USERS": "U0LEA",
    }
    open_to_all = {
        "INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "",
        "INCIDENT_BOT_ALERTMANAGER_OPEN": "true",
    }
    assert [finding.grade for finding in of_settings(load_settings(ENOUGH | usual))] == ["fine"]
    assert [finding.grade for finding in of_settings(load_settings(ENOUGH | usual | open_to_all))] == [
        "fine",
        "weak",
    ]
    assert len(of_settings(load_settings(ENOUGH))) == 5


@pytest.mark.fast
def test_the_doctor_says_that_any_pod_may_pose_as_a_gpu_exporter() -> None:
    (only,) = [each for each in of_settings(load_settings(ENOUGH)) if "exporter" in each.what]
    assert only.what == "any pod with the labels of a GPU exporter is believed, also a tenant's"
    assert only.remedy == "Set gpu.exporter_namespaces to the namespaces of the exporters."


@pytest.mark.fast
def test_the_doctor_says_where_the_bot_only_observes() -> None:
    assert of_mode(load_settings(ENOUGH).observing) == []
    (all_of_it,) = of_mode(load_settings(ENOUGH | {"INCIDENT_BOT_OBSERVE_ONLY": "true"}).observing)
    assert "observe-only: the bot changes nothing in the cluster" in all_of_it.what
    (in_part,) = of_mode(Observing([ObserveRule(True), ObserveRule(False, "kv-cache-oom", "serving/*")]))
    assert "only observes every target; may change serving/* in kv-cache-oom" in in_part.what


@pytest.mark.fast
def test_a_bot_that_only_observes_needs_no_permission_to_run_programs() -> None:
    (only,) = load_settings(ENOUGH | {"INCIDENT_BOT_GPU_EXEC": "true"}).every_cluster
    assert options_of(only) == ["exec"]
    assert options_of(only, reads_only=True) == []


@pytest.mark.fast
def test_a_team_that_nobody_is_named_for_is_reported() -> None:
    (only,) = [each for each in of_settings(load_settings(ENOUGH)) if "decide instead" in each.what]
    assert only.what == (
        "no people are set for lead, model, platform, serving: the approvers decide instead, "
        "nobody else is asked at half time, and nobody can break glass"
    )
    assert only.remedy == "Set INCIDENT_BOT_APPROVALS_TEAMS_LEAD_USER_GROUP."


@pytest.mark.fast
def test_the_doctor_names_what_replaces_a_playbook_that_came_with_the_bot(tmp_path: Path) -> None:
    mine = tmp_path / "gpu-fault.yaml"
    packaged = packaged_playbooks() / "gpu-fault.yaml"
    mine.write_text(packaged.read_text(encoding="utf-8"), encoding="utf-8")
    finding = of_playbooks(load_folders((packaged_playbooks(), tmp_path), ()))[0]
    assert f"gpu-fault ({mine} replaces the packaged one), inference-slo-breach, kv-cache-oom" in finding.what


@pytest.mark.fast
def test_the_doctor_says_who_is_paged_and_whom_playbooks_call_in_vain() -> None:
    library = load_folders((packaged_playbooks(),), ())
    nobody, missing = of_teams(load_settings(ENOUGH), library)
    assert nobody.what == "nobody is paged: an urgent incident only mentions people in Slack"
    assert missing.what.startswith("playbooks call facilities, platform, router, but nobody is set for them")
    all_set = {
        "INCIDENT_BOT_APPROVALS_TEAMS_SERVING_PAGERDUTY": "0123456789abcdef0123456789abcdef",
        "INCIDENT_BOT_APPROVALS_TEAMS_FACILITIES_PHONE": "+49 30 1",
        "INCIDENT_BOT_APPROVALS_TEAMS_ROUTER_USER_GROUP": "S0ROUTER",
        "INCIDENT_BOT_APPROVALS_TEAMS_PLATFORM_USER_GROUP": "S0PLATFORM",
    }
    settings = load_settings(ENOUGH | all_set)
    assert [(each.grade, each.what) for each in of_teams(settings, library)] == [("fine", "paged: serving")]
    assert pager_urls(settings) == {"PagerDuty": "https://events.pagerduty.com"}


@pytest.mark.fast
async def test_the_doctor_tries_whether_reports_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    stored = {name: {"INCIDENT_BOT_REPORTS_STORE": f"file://{tmp_path}/{name}"} for name in ("kept", "taken")}
    kept, taken = [await reports(load_settings(ENOUGH | each)) for each in stored.values()]
    assert [each.grade for each in kept] == ["fine"]
    assert [each.grade for each in taken] == ["broken"]
    assert "no report can be kept at" in taken[0].what


@pytest.mark.fast
async def test_what_helps_names_the_webhook_that_does_not_answer() -> None:
    hook = {"INCIDENT_BOT_REPORTS_WEBHOOK": CLOSED_PORT, "INCIDENT_BOT_REPORTS_WEBHOOK_SECRET": "any"}
    (finding,) = await reports(load_settings(ENOUGH | hook))
    assert (finding.grade, finding.remedy) == ("broken", "Let the bot write there, or correct the reports settings.")


@pytest.mark.fast
async def test_the_doctor_reads_the_files_of_workloads_on_github(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("github: {files: [{targets: serving/llm, repository: example/deploy, path: llm.yaml}]}\n")
    away = {"INCIDENT_BOT_GITHUB_URL": CLOSED_PORT, "INCIDENT_BOT_GITHUB_TOKEN": "github_pat_1"}
    (finding,) = about(await examine(load_settings(ENOUGH | NOWHERE | away, file)), "github")
    assert (finding.grade, finding.what) == (
        "broken", "example/deploy: llm.yaml: GitHub does not answer: ConnectError",
    )  # fmt: skip
    assert "contents and pull requests (read and write)" in finding.remedy


CHANGES = """
language: 1
playbook: small
title: A small playbook
opens_on: ['alertname=~".+"']
settings: {soon: {default: 5m, why: a test}}
signals: {usage: {metric: kv_cache_usage_perc}}
start: grow
states:
  grow: {change: scale, with: {by: 1}, why: a test, still: usage > 0.9, risk: medium, done: shorten}
  shorten:
    change: set_flags
    with: {edits: [{flag: --max-model-len, value: 4096}]}
    why: a test
    still: usage > 0.9
    against: no_kv_room
    expires: settings.soon
    done: cap
  cap:
    change: set_flags
    with: {edits: [{flag: --max-num-seqs, value: 6}]}
    why: a test
    still: usage > 0.9
    against: no_kv_room
    done: calm
  calm: {end: fixed}
"""


@pytest.mark.fast
def test_the_doctor_says_who_can_approve_each_change_of_each_playbook() -> None:
    teams = {
        "INCIDENT_BOT_APPROVALS_TEAMS_SERVING_CHANNEL": "C0SERVING",
        "INCIDENT_BOT_APPROVALS_TEAMS_LEAD_USERS": "U0LEA",
    }
    rules = load_settings(ENOUGH | teams).approvals.rules()
    assert [finding.what for finding in who_approves([load_text(CHANGES)], rules)] == [
        "one approver is enough; at half time those who have not approved and U0LEA are asked again; "
        "glass (critical incidents): one of U0LEA may then decide alone, with a reason",
        "/incident silence: low risk: 1 of S0SERVING",
        "pull request: low risk: 1 of S0SERVING",
        "scale (small): medium risk: 1 of S0SERVING; 20 min; "
        "if no accelerator stays free: 1 of approvers or serving or platform (S0SERVING, C0SERVING)",
        "client_contract (small): high risk: 1 of serving or model (C0SERVING, S0SERVING), "
        "with a reason in words; 5 min",
        "set_flags (small): high risk: 1 of serving or lead (C0SERVING, U0LEA), with a reason in words; 10 min",
        "promote (small): high risk: 1 of S0SERVING, with a reason in words; 15 min",
    ]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("more", "kinds"),
    [
        pytest.param({}, "every kind", id="no-team-has-people"),
        pytest.param(
            {f"INCIDENT_BOT_APPROVALS_{name}_USER_GROUP": "S0HIGH" for name in ("HIGH", "MEDIUM")},
            "probe_request, remove_canary, return_replica, run_job, scale, silence, pull_request",
            id="people-of-other-levels",
        ),
    ],
)
def test_the_doctor_names_the_targets_that_have_approvers_of_their_own(more: dict[str, str], kinds: str) -> None:
    own = TargetApprovers(targets=("chat/*",), user_group="S0CHAT")
    rules = load_settings(ENOUGH | more).approvals.model_copy(update={"approvers": (own,)}).rules()
    (line,) = [finding.what for finding in who_approves([], rules) if finding.what.startswith("chat/*: ")]
    assert line == f"chat/*: S0CHAT in place of the approvers, for {kinds}"


@pytest.mark.fast
def test_playbooks_that_ask_the_same_share_a_line_and_changes_that_ask_more_are_named() -> None:
    rules = load_settings(ENOUGH).approvals.rules()
    other = CHANGES.replace("playbook: small", "playbook: other")
    lines = [finding.what for finding in who_approves([load_text(CHANGES), load_text(other)], rules)]
    assert [line.partition(":")[0] for line in lines[3:]] == [
        f"{kind} (small, other)" for kind in ("scale", "client_contract", "set_flags", "promote")
    ]
    sooner = other.replace("risk: medium, done", "risk: medium, expires: settings.soon, done")
    lines = [finding.what for finding in who_approves([load_text(CHANGES), load_text(sooner)], rules)]
    assert [line for line in lines if line.startswith("scale (small): ") and "; 20 min" in line]
    assert [line for line in lines if line.startswith("scale (other): ") and "; 5 min" in line]
    again = (
        "title: Grow again, change: scale, with: {by: 1}, why: a test, still: usage > 0.9, risk: high, done: shorten"
    )
    twice = CHANGES.replace("done: shorten}", f"done: again}}\n  again: {{{again}}}")
    lines = [finding.what for finding in who_approves([load_text(twice)], rules)]
    assert [line.partition(": ")[2].partition(")")[0] for line in lines if line.startswith("scale ")] == [
        "“grow”",
        "“Grow again”",
    ]


@pytest.mark.fast
def test_the_doctor_counts_the_groups_that_a_playbook_adds_to_a_change() -> None:
    four_eyes = {"INCIDENT_BOT_APPROVALS_FOUR_EYES": "scale", "INCIDENT_BOT_APPROVALS_TEAMS_MODEL_USERS": "U0MO"}
    rules = load_settings(ENOUGH | four_eyes).approvals.rules()
    text = CHANGES.replace("risk: medium", "risk: medium, approvers: [model, lead]")
    first = who_approves([load_text(text)], rules)[3].what
    added = "1 of model (U0MO) and 1 of lead (S0SERVING: the approvers decide instead)"
    assert f"scale (small): medium risk: {added};" in first


@pytest.mark.fast
@pytest.mark.parametrize(
    ("chosen", "options"),
    [
        ({}, []),
        ({"INCIDENT_BOT_SAMPLING_THROUGH": "proxy"}, ["proxy"]),
        ({"INCIDENT_BOT_GPU_EXEC": "true"}, ["exec"]),
    ],
)
def test_a_way_into_pods_is_asked_for_only_where_a_setting_takes_it(chosen: dict[str, str], options: list[str]) -> None:
    (only,) = load_settings(ENOUGH | chosen).every_cluster
    assert options_of(only) == options


@pytest.mark.fast
@pytest.mark.parametrize(
    ("through", "verbs", "grades"),
    [
        pytest.param("proxy", {"probe_request"}, ["weak"], id="out-of-reach"),
        pytest.param("address", {"probe_request"}, [], id="in-reach"),
        pytest.param("proxy", {"run_job"}, [], id="not-used"),
    ],
)
def test_a_generation_that_cannot_reach_its_pod_is_reported_beforehand(
    through: str, verbs: set[str], grades: list[str]
) -> None:
    settings = load_settings(ENOUGH | {"INCIDENT_BOT_SAMPLING_THROUGH": through})
    assert [finding.grade for finding in of_reach(settings, verbs)] == grades


@pytest.mark.fast
def test_refused_permissions_are_listed_together() -> None:
    patch, evict = Permission("patch", "apps", "deployments"), Permission("create", "", "pods", "eviction")
    finding = judge([Checked(patch, is_allowed=False), Checked(evict, is_allowed=False)], namespace="serving")
    assert finding.grade == "broken"
    assert finding.what == "may not, in namespace serving: patch deployments.apps, create pods/eviction"
    assert finding.remedy.startswith("Apply deploy/kustomize/serving there (or observe, ")
    assert judge([Checked(patch, is_allowed=True)], namespace="").grade == "fine"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(200, '{"data": {"result": [1000.5, "1000.5"]}}', "answers a query", id="it-is-one"),
        pytest.param(401, "{}", "answers a query with HTTP 401", id="no-token"),
        pytest.param(503, "", "answers a query with HTTP 503", id="not-ready"),
        pytest.param(200, "<html>Sign in</html>", "what answers is not Prometheus", id="a-proxy"),
        pytest.param(200, '{"status": "success"}', "what answers is not Prometheus", id="something-else"),
        pytest.param(200, '{"data": {"result": [700, "700"]}}', "its clock and the bot's differ by 5 min", id="clock"),
    ],
)
async def test_prometheus_is_asked_a_query(status: int, body: str, expected: str) -> None:
    async def query(_request: Request) -> Response:
        return Response(body, status_code=status)

    prometheus = Starlette(routes=[Route("/api/v1/query", query)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(prometheus)) as client:
        finding = await reachable(client, "http://prometheus/", lambda: 1000.0)
    assert expected in finding.what
    assert (finding.grade == "fine") == (expected == "answers a query")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        pytest.param(200, {"versionInfo": {"version": "0.28.1"}}, "answers, version 0.28.1", id="it-is-one"),
        pytest.param(200, {"status": "success"}, "what answers is not Alertmanager", id="something-else"),
        pytest.param(404, {}, "answers /api/v2/status with HTTP 404", id="another-path"),
    ],
)
async def test_alertmanager_is_asked_for_its_status(status: int, body: dict[str, object], expected: str) -> None:
    async def answer(_request: Request) -> JSONResponse:
        return JSONResponse(body, status_code=status)

    alertmanager = Starlette(routes=[Route("/api/v2/status", answer)])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(alertmanager)) as client:
        found = await alertmanager_api.reachable(client, "http://alertmanager")
    assert expected in found.what
    assert (found.grade == "fine") == (found.what == expected)


async def test_a_broken_kubeconfig_hides_no_other_finding(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("clusters: [", encoding="utf-8")
    away = NOWHERE | {"INCIDENT_BOT_KUBERNETES_URL": "", "INCIDENT_BOT_KUBERNETES_KUBECONFIG": str(path)}
    findings = await examine(load_settings(ENOUGH | away))
    (kubernetes,) = about(findings, "kubernetes")
    assert kubernetes.what == f"no way to the cluster: {path} is not a kubeconfig (ParserError)"
    assert [about(findings, name)[0].grade for name in ("redis", "slack", "prometheus")] == ["broken"] * 3


async def test_whatever_is_away_is_broken_with_a_remedy_and_hides_no_other() -> None:
    findings = await examine(load_settings(ENOUGH | NOWHERE))
    for counterpart in ("redis", "slack", "kubernetes", "prometheus", "alertmanager"):
        (finding,) = about(findings, counterpart)
        assert finding.grade == "broken"
        assert "127.0.0.1" in finding.what
        assert finding.remedy
    assert about(findings, "playbooks")[0].grade == "fine"


async def test_faults_come_first_and_connections_before_settings() -> None:
    findings = await examine(load_settings(ENOUGH | NOWHERE))
    assert [each.about for each in findings[:5]] == ["redis", "slack", "kubernetes", "prometheus", "alertmanager"]
    grades = [each.grade for each in findings]
    assert grades == sorted(grades, key=["broken", "weak", "fine"].index)


async def test_who_approves_each_change_is_listed_on_demand() -> None:
    settings = load_settings(ENOUGH | NOWHERE)
    (short,) = about(await examine(settings), "approvals")
    assert short.what.startswith("one approver is enough; ")
    assert short.what.endswith("; `incident-bot doctor --approvals` lists who approves each change")
    listed = [each.what for each in about(await examine(settings, approvals=True), "approvals")]
    assert any(each.startswith("restart (") for each in listed)
    assert not any("--approvals" in each for each in listed)


@pytest.fixture(scope="module")
def world(redis_server: valkey.Embedded) -> Iterator[Settings]:
    """Settings of a bot between the stand-ins of Slack and Kubernetes and a real Redis."""
    with ExitStack() as stack:
        slack = stack.enter_context(
            running("bot.sandbox.slack", "--port", "0", "--bot-url", CLOSED_PORT, "--signing-secret", "s")
        )
        cluster = stack.enter_context(running("bot.sandbox.kubernetes", "--port", "0", "--seed-world", "demo"))
        yield load_settings(
            {
                **ENOUGH,
                "REDIS_URL": redis_server.url,
                "SLACK_BOT_TOKEN": "xoxb-sandbox",
                "INCIDENT_BOT_SLACK_BASE_URL": f"{slack.url}/api/",
                "INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "",
                "INCIDENT_BOT_KUBERNETES_URL": cluster.url,
            }
        )


async def test_a_world_in_order_has_nothing_broken(world: Settings) -> None:
    findings = await examine(world)
    assert [finding for finding in findings if finding.grade == "broken"] == []
    assert any("is in #inference-incidents" in finding.what for finding in about(findings, "slack"))
    assert any("user group S0SERVING has 3 members" in finding.what for finding in about(findings, "slack"))
    assert any("has all" in finding.what for finding in about(findings, "kubernetes"))


async def test_a_wrong_channel_and_an_unknown_group_are_reported(world: Settings) -> None:
    slack = world.slack.model_copy(update={"channel": "C0NOWHERE", "operator_user_group": "S0NOBODY"})
    findings = await examine(world.model_copy(update={"slack": slack}))
    faults = [finding.what for finding in about(findings, "slack") if finding.grade == "broken"]
    assert faults[0].startswith("channel C0NOWHERE: channel_not_found")
    assert faults[1].startswith("user group S0NOBODY: ")


@pytest.mark.parametrize(
    ("user", "grade", "what"),
    [
        ("U0ANA", "fine", "1 person named by id may decide"),
        ("U0NOBODY", "broken", "user U0NOBODY: user_not_found"),
        ("U0OLD", "broken", "user U0OLD may never decide: this account is deactivated"),
        ("U0GUE", "broken", "user U0GUE may never decide: guests do not decide"),
        ("U0BOT", "broken", "user U0BOT may never decide: bots never decide"),
        ("U0EXT", "broken", "user U0EXT may never decide: people of another workspace do not decide here"),
    ],
)
async def test_a_person_whom_the_settings_name_in_vain_is_reported(
    world: Settings, user: str, grade: str, what: str
) -> None:
    approvals = world.approvals.model_copy(update={"users": (user,)})
    findings = about(await examine(world.model_copy(update={"approvals": approvals})), "slack")
    assert (grade, what) in [(finding.grade, finding.what) for finding in findings]


async def test_a_workload_to_sample_that_is_not_there_is_reported(world: Settings) -> None:
    sampling = world.sampling.model_copy(update={"workloads": ("serving/llm", "serving/StatefulSet/llm")})
    findings = about(await examine(world.model_copy(update={"sampling": sampling})), "kubernetes")
    assert [finding.what for finding in findings if finding.grade == "weak"] == [
        "sampling.workloads names workloads that are not there, so they have no history: serving/StatefulSet/llm"
    ]


async def test_a_public_channel_whose_members_may_approve_is_reported(world: Settings) -> None:
    approvals = world.approvals.model_copy(update={"channel": "C0GEN"})
    findings = about(await examine(world.model_copy(update={"approvals": approvals})), "slack")
    (finding,) = [finding for finding in findings if "#general" in finding.what]
    assert (finding.grade, finding.what) == (
        "weak",
        "any member of the workspace can join #general, and may then decide",
    )


@pytest.mark.parametrize(
    ("token", "grade", "words"),
    [
        ("xapp-sandbox", "fine", "Socket Mode can be used"),
        ("xapp-wrong", "broken", "no press or command can arrive: apps.connections.open: invalid_auth"),
    ],
)
async def test_the_token_of_socket_mode_is_tried(world: Settings, token: str, grade: str, words: str) -> None:
    slack = world.slack.model_copy(update={"app_token": SecretStr(token)})
    findings = about(await examine(world.model_copy(update={"slack": slack})), "slack")
    assert (grade, words) in [(finding.grade, finding.what) for finding in findings]


class InstalledInTheOrganization(AsyncWebClient):
    """As Slack answers a token of an Enterprise Grid organization."""

    async def api_call(self, api_method: str, **_: Any) -> AsyncSlackResponse:
        me = {"ok": True, "team_id": "E1", "enterprise_id": "E1", "is_enterprise_install": True}
        data: Any = me if api_method == "auth.test" else {"ok": False, "error": "missing_argument"}
        sent: dict[str, Any] = {"http_verb": "POST", "api_url": api_method, "req_args": {}}
        answer = AsyncSlackResponse(client=self, **sent, data=data, headers={}, status_code=200)
        if not data["ok"]:
            raise SlackApiError("", answer)  # type: ignore[no-untyped-call]  # slack-sdk leaves it untyped
        return answer


@pytest.mark.fast
async def test_an_app_that_is_installed_in_a_whole_organization_is_told_where_it_has_to_be() -> None:
    found = await installation(InstalledInTheOrganization(), channel="C1", deciders=[Demand(user_group="S1")])
    assert ("broken", "the app is installed in an organization, not in a workspace") in [
        (finding.grade, finding.what) for finding in found
    ]


async def test_a_wrong_token_ends_the_look_at_slack(world: Settings) -> None:
    slack = world.slack.model_copy(update={"bot_token": type(world.slack.bot_token)("xoxb-wrong")})
    findings = about(await examine(world.model_copy(update={"slack": slack})), "slack")
    assert [(finding.grade, finding.what) for finding in findings] == [("broken", "auth.test: invalid_auth")]
