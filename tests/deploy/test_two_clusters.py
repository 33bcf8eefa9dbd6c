"""The example of settings for two clusters is valid, and its targets mean the cluster that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_folders
from bot.cli.doctor import of_reach, of_settings, patterns_astray
from bot.domain.kernel.target import Target
from bot.domain.playbooks.settings import Override
from bot.settings import Settings, load_settings
from tests.deploy.files import DEPLOY
from tests.deploy.test_one_target import SECRETS

pytestmark = pytest.mark.fast

EAST = Target(cluster="east", namespace="serving", name="llm-70b")
WEST = EAST.model_copy(update={"cluster": "west"})


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The example, with the kubeconfig in a place that exists here."""
    folder = tmp_path_factory.mktemp("two")
    kubeconfig, file = folder / "west.kubeconfig", folder / "settings.yaml"
    kubeconfig.touch()
    example = (DEPLOY / "two-clusters.example.yaml").read_text()
    file.write_text(example.replace(str(Path("/etc/incident-bot/west.kubeconfig")), str(kubeconfig)))
    return load_settings(SECRETS, file)


def test_each_cluster_is_reached_and_read_in_its_own_way(settings: Settings) -> None:
    east, west = settings.every_cluster
    assert (east.name, east.kubernetes.in_cluster, east.sampling.through) == ("east", True, "address")
    assert (west.name, west.kubernetes.context, west.sampling.through) == ("west", "west", "proxy")
    assert (east.prometheus.labels, west.prometheus.labels) == ({}, {"cluster": "west"})
    assert west.sampling.named == (("serving", "Deployment", "llm-70b"),)


@pytest.mark.parametrize(
    ("target", "startup_seconds"), [pytest.param(EAST, 1200.0, id="east"), pytest.param(WEST, 1800.0, id="west")]
)
def test_a_setting_of_one_cluster_holds_there_only(settings: Settings, target: Target, startup_seconds: float) -> None:
    library = load_folders(settings.playbooks, settings.overrides)
    assert not library.faults
    bundle = library.bundle("kv-cache-oom", target)
    assert bundle is not None
    assert bundle.entry_playbook.settings["startup_budget"] == startup_seconds
    assert bundle.entry_playbook.settings["ttft_target"] == 2.0


def test_the_doctor_names_the_clusters_whose_exporters_may_be_in_any_namespace(settings: Settings) -> None:
    (only,) = [finding for finding in of_settings(settings) if "exporter" in finding.what]
    assert only.what.startswith("any pod in east, west with the labels of a GPU exporter")


def test_who_is_called_and_what_is_pre_approved_depends_on_the_cluster(settings: Settings) -> None:
    contacts, (rule,) = settings.approvals.contacts(), settings.approvals.rules().pre_approved
    assert [contacts.on_call_for(target).team for target in (EAST, WEST)] == ["approvers", "west-serving"]
    assert [any(map(target.matches, rule.targets)) for target in (EAST, WEST)] == [True, False]


def test_the_doctor_names_the_clusters_and_finds_a_target_in_none_of_them(settings: Settings) -> None:
    assert "name 2 clusters: east, west" in [finding.what for finding in of_settings(settings)]
    assert patterns_astray(settings) == []
    slip = settings.model_copy(update={"overrides": (Override(target="wets/*/*", settings={"ttft_target": "2s"}),)})
    (astray,) = [finding for finding in of_settings(slip) if finding.what.startswith("targets")]
    assert astray.what == "targets in no cluster of these settings: wets/*/*"
    dashboard = settings.dashboard.model_validate({"targets": {"wets/chat/*": "https://g.example/d"}})
    assert patterns_astray(settings.model_copy(update={"dashboard": dashboard})) == ["wets/chat/*"]
    (refused,) = of_reach(settings, {"probe_request"})
    assert refused.what.startswith("probe_request is refused in west:")
