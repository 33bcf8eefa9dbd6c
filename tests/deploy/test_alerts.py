"""The alert rules hold under promtool, and playbooks and the target finder understand their alerts."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.adapters.alertmanager import NAMING_LABELS
from bot.adapters.logs import LEVELS_SHOWN, Facts
from bot.domain.kernel.target import WORKLOAD_LABELS, Target
from bot.domain.playbooks.files import playbooks_in
from bot.domain.playbooks.matchers import parse_matchers
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.slo_targets import LABEL, SOURCE, with_slo
from bot.sandbox.alerting.rule import THRASH_RATIO
from tests import builders
from tests.deploy.files import DEPLOY, document
from tests.kit.packaged import library as packaged_library

ALERTS = DEPLOY / "alerts"
SNIPPET = DEPLOY / "alertmanager-snippet.yaml"
WORKLOAD = Target(namespace="serving", name="llm")
ANY_OF_THE_ENGINES = "(Vllm|VLLM).*"
"""Rules of others about vLLM reach the bot too; it lists those that open no playbook."""
OF_THE_RUNBOOKS = ("VLLMHighMemoryUsage", "VLLMCriticalMemoryUsage", "VLLMQueueBacklog", "VLLMNoRequests")


def rules(file: str = "vllm") -> list[dict[str, Any]]:
    groups = document(f"alerts/{file}.rules.yaml")["groups"]
    return [rule for group in groups for rule in group["rules"]]


def labels_of(rule: dict[str, Any]) -> dict[str, str]:
    return {"alertname": rule["alert"], "namespace": "serving", "deployment": "llm", **rule["labels"]}


def test_the_shipped_alerts_are_about_models_and_open_incidents_for_any_workload() -> None:
    assert [rule["alert"] for rule in rules() if not builders.alert(alertname=rule["alert"]).names_models] == []


@pytest.mark.needs_server("promtool")
@pytest.mark.parametrize("file", ["vllm", "incident-bot"])
@pytest.mark.parametrize(("command", "ending"), [("check", "rules.yaml"), ("test", "rules.test.yaml")])
def test_the_rules_are_valid_and_their_scenarios_hold(command: str, ending: str, file: str) -> None:
    arguments = ["promtool", command, "rules", f"{file}.{ending}"]
    ended = subprocess.run(arguments, cwd=ALERTS, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.needs_server("promtool")
@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("> 0.1\n", "> 3\n"),
        ("> 0.9\n", "> 0.95\n"),
        (">= 1000\n", ">= 100\n"),
        (" or increase(vllm:time_per_output_token_seconds", " or increase(vllm:no_such_name"),
        ("> 20\n", "> 40\n"),
        ("> 1.5\n", "> 0.5\n"),
        ('and on (uid) kube_pod_container_info{image=~".*vllm.*"}', "and on (uid) kube_pod_container_info"),
        ("[10m:30s]) > 0)", "[10m:30s]) >= 0)"),
        ("(changes(max without (err_code, err_msg)", "(changes(max without ()"),
        ("for: 3m", "for: 30m"),
        ("[5m])) > 0\n", "[5m])) >= 0\n"),
        ("(increase(vllm:generation_tokens_total[5m])) == 0", "(increase(vllm:generation_tokens_total[5m])) >= 0"),
    ],
)
def test_the_scenarios_notice_another_threshold(rule: str, other: str, tmp_path: Path) -> None:
    text = (ALERTS / "vllm.rules.yaml").read_text()
    assert rule in text
    (tmp_path / "vllm.rules.yaml").write_text(text.replace(rule, other))
    # As texts: a series such as 0x40 would be a hexadecimal number.
    scenarios = yaml.load((ALERTS / "vllm.rules.test.yaml").read_text(), Loader=yaml.BaseLoader)
    changed = _alerts(text) ^ _alerts(text.replace(rule, other))
    # Only what asks about the changed alert: the others take seconds, and hold.
    scenarios["tests"] = [each for each in scenarios["tests"] if any(name in repr(each) for name, _ in changed)]
    (tmp_path / "vllm.rules.test.yaml").write_text(yaml.safe_dump(scenarios))
    command = ["promtool", "test", "rules", "vllm.rules.test.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode != 0
    assert "FAILED" in ended.stdout + ended.stderr


def _alerts(text: str) -> set[tuple[str, str]]:
    """The name of each alert in these rules, and all of its rule."""
    groups = yaml.safe_load(text)["groups"]
    return {(rule["alert"], repr(rule)) for group in groups for rule in group["rules"] if "alert" in rule}


@pytest.mark.fast
def test_every_alert_opens_a_playbook_or_says_that_it_only_informs() -> None:
    library = packaged_library()
    unmatched = {rule["alert"] for rule in rules() if not library.match(labels_of(rule))}
    informing = {rule["alert"] for rule in rules() if "informs_only" in rule["annotations"]}
    assert unmatched == informing == {rule["alert"] for rule in rules() if rule["labels"]["severity"] == "info"}


@pytest.mark.fast
def test_the_rules_about_the_bot_name_only_what_it_exports() -> None:
    facts, used = Facts(), " ".join(rule["expr"] for rule in rules("incident-bot"))
    logged = re.findall(r'fact="([\w.]+)"', used)
    for fact in logged:
        facts.count(None, "", {"event": fact})
    exported = set(re.findall(r"incident_bot_\w+", facts.page(dict.fromkeys(LEVELS_SHOWN, 0))))
    assert set(re.findall(r"incident_bot_\w+", used)) <= exported
    sources = [path.read_text() for path in (DEPLOY.parent / "bot" / "flow").rglob("*.py")]
    assert logged
    assert all(any(f'"{fact}"' in source for source in sources) for fact in logged)


@pytest.mark.needs_server("amtool")
def test_the_shipped_route_sends_the_alerts_about_the_bot_to_people() -> None:
    assert {receiver_of(labels_of(rule)) for rule in rules("incident-bot")} == {"everybody-else"}


@pytest.mark.needs_server("amtool")
def test_the_shipped_route_sends_the_bot_every_alert_but_those_that_only_inform() -> None:
    routed = {rule["alert"]: receiver_of(labels_of(rule)) for rule in rules()}
    informing = {rule["alert"] for rule in rules() if "informs_only" in rule["annotations"]}
    assert {alert for alert, receiver in routed.items() if receiver == "everybody-else"} == informing
    assert {receiver for alert, receiver in routed.items() if alert not in informing} == {"incident-bot"}


@pytest.mark.needs_server("amtool")
@pytest.mark.parametrize("playbook", [path.stem for path in playbooks_in(packaged_playbooks())])
def test_the_shipped_route_sends_the_bot_every_name_that_a_playbook_opens_on(playbook: str) -> None:
    found = packaged_library().playbooks[playbook]
    names = [name for line in found.playbook.opens_on for name in names_in(line)]
    assert names
    for name in names:
        labels = {"alertname": name, "severity": "warning"}
        assert found.opens_on(labels), f"{name} is no example of opens_on"
        assert receiver_of(labels) == "incident-bot", name


@pytest.mark.needs_server("amtool")
@pytest.mark.parametrize("name", OF_THE_RUNBOOKS)
def test_the_shipped_route_knows_the_alerts_of_the_runbooks(name: str) -> None:
    assert receiver_of({"alertname": name, "severity": "warning"}) == "incident-bot"


@pytest.mark.fast
@pytest.mark.parametrize(
    ("name", "playbook"),
    [
        ("VLLMHighMemoryUsage", "kv-cache-oom"),
        ("VLLMCriticalMemoryUsage", "kv-cache-oom"),
        ("VLLMNoRequests", "kv-cache-oom"),
        ("VLLMQueueBacklog", "inference-slo-breach"),
    ],
)
@pytest.mark.parametrize("severity", ["warning", "critical"])
def test_the_alerts_of_the_runbooks_open_a_playbook(name: str, playbook: str, severity: str) -> None:
    labels = {"alertname": name, "severity": severity, "namespace": "serving", "deployment": "llm"}
    assert [found.name for found in packaged_library().match(labels)] == [playbook]
    assert name in OF_THE_RUNBOOKS


@pytest.mark.fast
def test_every_name_that_the_shipped_route_spells_out_opens_a_playbook() -> None:
    (route,) = [each for each in document(SNIPPET.name)["route"]["routes"] if each["receiver"] == "incident-bot"]
    matchers = [each for line in route["matchers"] for each in parse_matchers(line)]
    (pattern,) = [each.value for each in matchers if each.label == "alertname" and each.operator == "=~"]
    alternatives = re.findall(r"(?:\([^)]*\)|[^|(])+", pattern)
    assert ANY_OF_THE_ENGINES in alternatives
    names = [name for each in alternatives if each != ANY_OF_THE_ENGINES for name in names_in(f'alertname=~"{each}"')]
    unmatched = [name for name in names if not packaged_library().match({"alertname": name, "severity": "warning"})]
    assert (len(names) > 20, unmatched) == (True, [])


@pytest.mark.needs_server("amtool")
def test_the_shipped_route_leaves_other_alerts_to_everybody_else() -> None:
    assert receiver_of({"alertname": "KubeNodeNotReady", "severity": "critical"}) == "everybody-else"


@pytest.mark.fast
def test_the_shipped_route_groups_by_every_label_that_names_a_workload() -> None:
    (route,) = [each for each in document(SNIPPET.name)["route"]["routes"] if each["receiver"] == "incident-bot"]
    assert {"cluster", "namespace", *(label for label, _kind in WORKLOAD_LABELS)} <= set(route["group_by"])


@pytest.mark.fast
def test_the_budget_of_the_api_server_opens_no_incident() -> None:
    """kube-prometheus brings the alert, with the severity `critical`: it would page the team that serves models."""
    assert packaged_library().match({"alertname": "KubeAPIErrorBudgetBurn", "severity": "critical"}) == []


@pytest.mark.needs_server("amtool")
def test_the_budget_of_the_api_server_is_not_sent_to_the_bot() -> None:
    labels = {"alertname": "KubeAPIErrorBudgetBurn", "severity": "critical"}
    assert receiver_of(labels) == "everybody-else"


def receiver_of(labels: dict[str, str]) -> str:
    """The receivers that Alertmanager would send an alert with these labels to, by the shipped file."""
    command = ["amtool", "config", "routes", "test", f"--config.file={SNIPPET}"]
    pairs = [f"{name}={value}" for name, value in labels.items()]
    ended = subprocess.run([*command, *pairs], capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout.strip()


def names_in(line: str) -> list[str]:
    """An alert name for each alternative of a matcher such as `alertname=~".*(Thermal|Overheat).*"`."""
    (pattern,) = [each.value for each in parse_matchers(line) if each.label == "alertname" and each.operator == "=~"]
    parts = [part.strip("()").split("|") for part in re.findall(r"\([^)]*\)|[^(]+", pattern.replace(".*", "Some"))]
    return ["".join(chosen) for chosen in itertools.product(*parts)]


@pytest.mark.fast
@pytest.mark.parametrize(
    ("alert", "target"), [("VllmTTFTBudgetBurn", "ttft_target"), ("VllmTPOTBudgetBurn", "tpot_target")]
)
def test_the_bot_judges_by_the_slo_that_the_alert_fired_by(alert: str, target: str) -> None:
    (rule,) = [rule for rule in rules() if rule["alert"] == alert]
    library = packaged_library()
    (playbook, *_) = library.match(labels_of(rule))
    labels = {**labels_of(rule), target: "250ms", "objective": "0.95"}
    assert with_slo(playbook, WORKLOAD, labels).settings[target] == 0.25
    assert with_slo(playbook, WORKLOAD, labels).settings["objective"] == 0.95

    shipped = with_slo(playbook, WORKLOAD, labels_of(rule)).settings
    assert LABEL in str(shipped[SOURCE])
    assert set(re.findall(r'le="([^"]*)"', rule["expr"])) == {str(shipped[target])}
    budget = 1 - float(str(shipped["objective"]))
    assert {float(share) for share in re.findall(r"> [\d.]+ \* ([\d.]+)", rule["expr"])} == {round(budget, 6)}


@pytest.mark.fast
def test_an_alert_opens_the_playbook_that_it_names() -> None:
    library = packaged_library()
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
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert {"summary", "description"} <= rule["annotations"].keys()


@pytest.mark.fast
def test_the_demo_fires_by_the_same_threshold() -> None:
    (thrash,) = [rule for rule in rules() if rule["alert"] == "VllmKVCacheThrash"]
    assert thrash["expr"].rstrip().endswith(f"> {THRASH_RATIO}")
