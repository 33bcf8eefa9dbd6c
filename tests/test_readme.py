"""The contents of the README exist: two commands, the settings, the slash commands, the files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import check_text
from bot.sandbox.scenarios import SCENARIOS
from bot.settings import load_settings

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.fast


def test_the_first_screen_has_exactly_two_commands() -> None:
    first_screen = "\n".join(README.splitlines()[:25])
    commands = re.findall(r"```sh\n(.+?)\n```", first_screen, re.DOTALL)
    ran = [command.split("uv run ")[1] for command in commands]
    assert ran == ["--no-dev incident-bot demo", "pytest -n 6 --dist loadfile"]


def test_where_pip_refuses_python3_is_that_of_an_environment_of_its_own(tmp_path: Path) -> None:
    (command,) = re.findall(r"run `(python3 -m venv .+?)` first", README)
    # Its pip is what takes the time.
    asks = ["sh", "-c", f"{command.replace(' venv ', ' venv --without-pip ')} && command -v python3"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    output = subprocess.run(asks, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout
    assert output.startswith(f"{tmp_path}/")


def test_the_number_of_scenarios_is_right() -> None:
    assert f"there are [{len(SCENARIOS)} of them](deploy/reference/scenarios.md)" in README


def test_every_shipped_playbook_is_in_the_table() -> None:
    written = re.findall(r"^\| \[([\w-]+)\]\(playbooks/\1\.yaml\) \|", README, re.MULTILINE)
    files = (ROOT / "playbooks").glob("*.yaml")
    assert sorted(written) == sorted(file.stem for file in files if not file.name.endswith(".test.yaml"))


@pytest.mark.parametrize("linked", sorted(set(re.findall(r"\]\(([\w./-]+)\)", README))))
def test_every_linked_file_exists(linked: str) -> None:
    assert (ROOT / linked).exists()


def test_the_example_of_a_playbook_is_sound_and_proposes_what_it_says() -> None:
    (example,) = re.findall(r"```yaml\n(.+?)```", README, re.DOTALL)
    checked = check_text(example, {}, file="slow-queue.yaml")
    assert [*checked.faults, *checked.warnings] == []
    assert checked.compiled is not None
    assert checked.compiled.options("relieve", {"room.free_gpus": 1.0}) == {
        "grow": True,
        "bound": True,
        "hand_over": True,
    }


def test_the_settings_shown_are_enough_and_known() -> None:
    shown = dict(re.findall(r"(?<=[\s`])((?:INCIDENT_BOT|SLACK|REDIS)_\w+)=(\S+)", README))
    values = shown | {"INCIDENT_BOT_KUBERNETES_KUBECONFIG": __file__}
    assert load_settings(values).cluster == ""


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(INCIDENT_BOT_\w+)`", README))))
def test_every_setting_of_the_table_is_known(name: str) -> None:
    examples = {
        "INCIDENT_BOT_OVERRIDES": "kv_ceiling=0.92,calm_for=15m",
        "INCIDENT_BOT_SAMPLING_WORKLOADS": "serving/llm",
        "INCIDENT_BOT_SAMPLING_THROUGH": "proxy",
        "INCIDENT_BOT_GPU_EXEC": "true",
        "INCIDENT_BOT_PROMETHEUS_URL": "http://localhost:9090",
        "INCIDENT_BOT_APPROVALS_FOUR_EYES": "high,rollback",
        "INCIDENT_BOT_APPROVALS_TEAMS_LEAD_USER_GROUP": "S0123456780",
        "INCIDENT_BOT_APPROVALS_TEAMS_SERVING_PAGERDUTY": "0123456789abcdef0123456789abcdef",
        "INCIDENT_BOT_PAGING_OPSGENIE_URL": "https://api.atlassian.com/jsm/ops/integration",
        "INCIDENT_BOT_APPROVALS_WHO": "scale=2 serving,set_flags=serving + lead,cordon_node=serving or platform",
        "INCIDENT_BOT_APPROVALS_EXPIRES": "scale=20m",
        "INCIDENT_BOT_REDIS_REPLICAS": "1",
        "INCIDENT_BOT_CLUSTER": "here",
        "INCIDENT_BOT_DASHBOARD_URL": "https://grafana.example/d/incident-bot-vllm?var-namespace=$namespace"
        "&var-workload=$workload&from=$from&to=$to",
        "INCIDENT_BOT_ALERTMANAGER_URL": "http://alertmanager.monitoring:9093",
        "INCIDENT_BOT_PLAYBOOKS": "packaged",
        "INCIDENT_BOT_SLACK_CARDS_PER_MINUTE": "5",
        "INCIDENT_BOT_SLACK_ARCHIVE_CHANNELS": "true",
        "INCIDENT_BOT_SLACK_INCIDENT_CHANNELS": "true",
        "INCIDENT_BOT_HTTP_PUBLIC_URL": "https://incidents.example.com",
        "INCIDENT_BOT_REPORTS_STORE": "s3://incidents/reports",
        "INCIDENT_BOT_REPORTS_WEBHOOK": "https://wiki.example.com/reports",
    }
    enough = dict(re.findall(r"(?<=[\s`])((?:INCIDENT_BOT|SLACK|REDIS)_\w+)=(\S+)", README))
    beside = {"INCIDENT_BOT_KUBERNETES_KUBECONFIG": __file__, "INCIDENT_BOT_REPORTS_WEBHOOK_SECRET": "a-secret"}
    load_settings(enough | beside | {name: examples[name]})
