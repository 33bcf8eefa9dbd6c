"""The alert rules hold under promtool, and playbooks and the target finder understand their alerts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bot.adapters.alertmanager import NAMING_LABELS
from bot.adapters.yaml_playbooks import load_folder
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.sandbox.alerting.rule import THRASH_RATIO
from tests.deploy.files import DEPLOY, document

ALERTS = DEPLOY / "alerts"
UNMATCHED_ON_PURPOSE = {
    "VllmRequestBacklog": "a queue alone may be the traffic's fault; people get it from Alertmanager",
}


def rules() -> list[dict[str, Any]]:
    groups = document("alerts/vllm.rules.yaml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def labels_of(rule: dict[str, Any]) -> dict[str, str]:
    return {"alertname": rule["alert"], "namespace": "serving", "deployment": "llm", **rule["labels"]}


@pytest.mark.needs_server("promtool")
@pytest.mark.parametrize(
    "arguments", [("check", "rules", "vllm.rules.yaml"), ("test", "rules", "vllm.rules.test.yaml")]
)
def test_the_rules_are_valid_and_their_scenarios_hold(arguments: tuple[str, ...]) -> None:
    ended = subprocess.run(
        ["promtool", *arguments], cwd=ALERTS, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.needs_server("promtool")
@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("> 0.1\n", "> 3\n"),
        ("> 0.95\n", "> 0.92\n"),
        ("> 20\n", "> 40\n"),
        ("> 1.5\n", "> 0.5\n"),
        ('and on (uid) kube_pod_container_info{image=~".*vllm.*"}', "and on (uid) kube_pod_container_info"),
        ("[10m]) > 0)", "[10m]) >= 0)"),
        ("for: 3m", "for: 30m"),
        ("[5m])) > 0\n", "[5m])) >= 0\n"),
        ("(increase(vllm:generation_tokens_total[5m])) == 0", "(increase(vllm:generation_tokens_total[5m])) >= 0"),
    ],
)
def test_the_scenarios_notice_another_threshold(rule: str, other: str, tmp_path: Path) -> None:
    text = (ALERTS / "vllm.rules.yaml").read_text()
    assert rule in text
    (tmp_path / "vllm.rules.yaml").write_text(text.replace(rule, other))
    (tmp_path / "vllm.rules.test.yaml").write_text((ALERTS / "vllm.rules.test.yaml").read_text())
    command = ["promtool", "test", "rules", "vllm.rules.test.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "FAILED" in ended.stdout + ended.stderr


@pytest.mark.fast
def test_every_alert_opens_a_playbook_or_is_left_out_on_purpose() -> None:
    library = load_folder(packaged_playbooks())
    unmatched = {rule["alert"] for rule in rules() if not library.match(labels_of(rule))}
    assert unmatched == set(UNMATCHED_ON_PURPOSE)


@pytest.mark.fast
def test_an_alert_opens_the_playbook_that_it_names() -> None:
    library = load_folder(packaged_playbooks())
    named = {rule["alert"]: rule["annotations"]["playbook"] for rule in rules() if "playbook" in rule["annotations"]}
    opened = {rule["alert"]: [found.name for found in library.match(labels_of(rule))][:1] for rule in rules()}
    assert {alert: opened[alert] for alert in named} == {alert: [name] for alert, name in named.items()}
    assert {"VllmNothingServed", "VllmReplicaStalled"} <= named.keys()


@pytest.mark.fast
def test_every_alert_names_the_workload_by_labels_that_the_bot_reads() -> None:
    for rule in rules():
        groupings = set(re.findall(r"by \(([^)]*)\)", rule["expr"]))
        assert len(groupings) == 1, f"{rule['alert']} groups in more than one way"
        assert set(groupings.pop().split(", ")) <= set(NAMING_LABELS)


@pytest.mark.fast
def test_every_alert_says_how_grave_it_is_and_what_it_means() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert {"summary", "description"} <= rule["annotations"].keys()


@pytest.mark.fast
def test_the_demo_fires_by_the_same_threshold() -> None:
    (thrash,) = [rule for rule in rules() if rule["alert"] == "VllmKVCacheThrash"]
    assert thrash["expr"].rstrip().endswith(f"> {THRASH_RATIO}")
