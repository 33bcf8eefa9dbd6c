"""The example of settings for one target is valid, and holds for that target only."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bot.adapters.slack.outbound.messenger import Place
from bot.adapters.yaml_playbooks import load_folders
from bot.domain.changes.kept_in import file_of
from bot.domain.kernel.planned_window import open_windows
from bot.domain.kernel.target import Target
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.expressions.expression import Unknown
from bot.domain.playbooks.library import Library
from bot.domain.signals.signal import Value
from bot.settings import Settings, load_settings
from tests.deploy.files import DEPLOY

pytestmark = pytest.mark.fast

SECRETS = {
    "REDIS_URL": "redis://localhost:6379/0",
    "SLACK_BOT_TOKEN": "xoxb-…",
    "SLACK_SIGNING_SECRET": "…",
    "INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "…",
    "INCIDENT_BOT_GITHUB_TOKEN": "…",
}
THE_ONE, ANOTHER = Target(namespace="serving", name="llm-70b"), Target(namespace="batch", name="llm-8b")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(SECRETS, DEPLOY / "one-target.example.yaml")


@pytest.fixture(scope="module")
def library(settings: Settings) -> Library:
    loaded = load_folders(settings.playbooks, settings.overrides)
    assert not loaded.faults
    return loaded


def of(library: Library, playbook: str, target: Target) -> CompiledPlaybook:
    bundle = library.bundle(playbook, target)
    assert bundle is not None
    return bundle.entry_playbook


@pytest.mark.parametrize(
    ("playbook", "name", "here", "elsewhere"),
    [
        pytest.param("kv-cache-oom", "startup_budget", 1800.0, 1200.0, id="by-a-pattern"),
        pytest.param("kv-cache-oom", "ttft_target", 2.0, 0.5, id="slo"),
        pytest.param("kv-cache-oom", "slo_from", "the bot's settings", "the playbook's defaults", id="who-set-the-slo"),
        pytest.param("inference-slo-breach", "objective", 0.995, 0.99, id="objective"),
        pytest.param("kv-cache-oom", "kv_ceiling", 0.85, 0.9, id="one-playbook"),
        pytest.param("vllm-oom-triage", "profile_seqs", 8.0, 16.0, id="conservative-profile"),
    ],
)
def test_each_setting_of_the_example_holds_for_its_target_only(
    library: Library, playbook: str, name: str, here: Value, elsewhere: Value
) -> None:
    assert of(library, playbook, THE_ONE).settings[name] == here
    assert of(library, playbook, ANOTHER).settings[name] == elsewhere


def test_the_conservative_profile_of_the_target_is_what_is_proposed(library: Library) -> None:
    triage = of(library, "vllm-oom-triage", THE_ONE)
    running: dict[str, Value] = {
        "limits.utilization": 0.9, "engine_flags.max_num_seqs": 256.0, "engine_flags.max_num_batched_tokens": 8192.0,
    }  # fmt: skip
    arguments = triage.arguments("way_back_profile", {f"results.way_back.{name}": at for name, at in running.items()})
    assert not isinstance(arguments, Unknown)
    assert [(edit["flag"], edit["value"]) for edit in arguments["edits"]] == [
        ("--gpu-memory-utilization", 0.7), ("--max-num-seqs", 8), ("--max-num-batched-tokens", 2048),
    ]  # fmt: skip


def test_its_incidents_have_a_channel_of_their_own(settings: Settings) -> None:
    place = Place(settings.slack.channel, "bot", of_targets=settings.channels)
    assert place.channels(THE_ONE) == ("C0123456781", "C0123456789")
    assert place.channels(ANOTHER) == ("C0123456789",)


@pytest.mark.parametrize(
    ("playbook", "target", "expected"),
    [
        ("kv-cache-oom", THE_ONE, False),
        ("kv-cache-oom", Target(namespace="research", name="llm"), True),
        ("kv-compression-no-savings", THE_ONE, True),
    ],
)
def test_the_bot_only_observes_what_the_example_says(
    settings: Settings, playbook: str, target: Target, expected: bool
) -> None:
    assert settings.observing.is_on(playbook, target) is expected
    assert not settings.observing.everywhere


def test_its_nightly_deploy_is_maintenance_and_the_holidays_are_a_freeze(settings: Settings) -> None:
    rules = [each.rule() for each in settings.planned_windows]
    night = datetime(2026, 11, 24, 2, 30, tzinfo=UTC).timestamp()
    assert [(each.kind, each.covers(THE_ONE), each.covers(ANOTHER)) for each in open_windows([], rules, night)] == [
        ("maintenance", True, False)
    ]
    holidays = datetime(2026, 12, 26, tzinfo=UTC).timestamp()
    assert [(each.kind, each.covers(ANOTHER)) for each in open_windows([], rules, holidays)] == [("freeze", True)]


def test_its_patches_may_become_pull_requests(settings: Settings) -> None:
    manifest = file_of(THE_ONE, settings.github.files)
    values = file_of(Target(namespace="serving", name="llm-8b"), settings.github.files)
    assert str(manifest) == "example/deploy: production/llm-70b.yaml"
    assert values is not None
    assert (values.path, values.is_values, values.branch) == ("production/values.yaml", True, "")
    assert file_of(ANOTHER, settings.github.files) is None


def test_its_people_are_called(settings: Settings) -> None:
    contacts = settings.approvals.contacts()
    assert contacts.on_call_for(THE_ONE).mentions == ("S0123456781",)


def test_its_approvers_are_a_group_of_its_own(settings: Settings) -> None:
    rules = settings.approvals.rules()
    groups = [rules.for_target(target).low.demands[0].user_group for target in (THE_ONE, ANOTHER)]
    assert groups == ["S0123456782", "S0123456789"]


def test_what_is_pre_approved_for_it_is_for_no_other(settings: Settings) -> None:
    (rule,) = settings.approvals.pre_approved
    assert rule.targets == (str(THE_ONE),)
    assert (rule.change, rule.hours, rule.most_replicas) == ("scale", "22:00-06:00", 8)


def test_the_example_links_a_dashboard_of_its_own(settings: Settings) -> None:
    dashboards = settings.dashboard.dashboards
    assert dashboards.of(THE_ONE) == "https://grafana.example/d/llm-70b?from=$from&to=$to"
    assert "var-namespace=batch&var-workload=llm-8b&" in dashboards.of(ANOTHER)
