"""The manifests match the code: permissions, settings, ports, the user of the image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.adapters.alertmanager import MAX_ALERTS
from bot.adapters.kubernetes.permissions import OPTIONAL, Permission, needed
from bot.domain.changes.catalogue import VERBS
from bot.domain.kernel.alert import MAX_ALERTS_SENT
from bot.settings import FILE_VARIABLE, load_settings
from bot.settings.model import Http
from tests.deploy.files import DEPLOY, ROOT, document, documents

BASE = "kustomize/base"
TMP = PurePosixPath("/tmp")
CLUSTER_WIDE, WORKLOADS, NODES = "incident-bot-cluster", "incident-bot-workloads", "incident-bot-nodes"


def container() -> dict[str, Any]:
    (only,) = pod()["containers"]
    found: dict[str, Any] = only
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = document(f"{BASE}/deployment.yaml")["spec"]["template"]["spec"]
    return found


def mount(name: str) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {each["name"]: each for each in container()["volumeMounts"]}
    return found[name]


def granted(role: str, file: str = f"{BASE}/rbac.yaml") -> list[Permission]:
    """Every permission of a ClusterRole, as often as it is written."""
    (found,) = [each for each in documents(file) if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role)]
    return [
        Permission(verb, group, resource, subresource, is_cluster_wide=role in (CLUSTER_WIDE, NODES), name=name)
        for rule in found["rules"]
        for name in rule.get("resourceNames", [""])
        for group in rule["apiGroups"]
        for resource, _, subresource in (written.partition("/") for written in rule["resources"])
        for verb in rule["verbs"]
    ]


@pytest.mark.fast
def test_the_roles_grant_what_the_bot_needs_and_nothing_else() -> None:
    written = granted(CLUSTER_WIDE) + granted(WORKLOADS) + granted(NODES)
    assert len(written) == len(set(written))
    assert set(written) == set(needed(VERBS))


@pytest.mark.fast
@pytest.mark.parametrize("option", OPTIONAL)
def test_what_only_a_setting_needs_is_a_role_of_its_own_bound_in_single_namespaces(option: str) -> None:
    file = f"kustomize/{option}/rbac.yaml"
    assert set(granted(f"incident-bot-{option}", file)) == set(OPTIONAL[option])
    assert set(OPTIONAL[option]).isdisjoint(needed(VERBS))
    assert set(OPTIONAL[option]) <= set(needed(VERBS, options=[option]))
    role, binding = documents(file)
    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", role["metadata"]["name"])
    assert binding["subjects"] == document("kustomize/serving/rolebinding.yaml")["subjects"]


@pytest.mark.fast
def test_changing_is_bound_in_single_namespaces_only() -> None:
    bindings = {each["kind"]: each for each in documents(f"{BASE}/rbac.yaml") if each["kind"].endswith("Binding")}
    assert bindings["ClusterRoleBinding"]["roleRef"]["name"] == CLUSTER_WIDE
    assert "RoleBinding" not in bindings
    assert all(permission.verb in ("get", "list") for permission in granted(CLUSTER_WIDE))
    nodes = document("kustomize/nodes/clusterrolebinding.yaml")
    assert (nodes["roleRef"]["name"], nodes["subjects"]) == (NODES, bindings["ClusterRoleBinding"]["subjects"])
    serving = document("kustomize/serving/rolebinding.yaml")
    assert (serving["kind"], serving["roleRef"]["name"]) == ("RoleBinding", WORKLOADS)
    assert serving["subjects"] == bindings["ClusterRoleBinding"]["subjects"]


@pytest.mark.fast
def test_a_bot_that_only_observes_may_read_one_namespace_and_change_nothing() -> None:
    file = "kustomize/observe/rbac.yaml"
    reads = {each for each in needed(VERBS) if not each.changes and not each.is_cluster_wide}
    assert set(granted("incident-bot-observe", file)) == reads
    role, binding = documents(file)
    assert (binding["kind"], binding["roleRef"]["name"]) == ("RoleBinding", role["metadata"]["name"])
    assert binding["subjects"] == document("kustomize/serving/rolebinding.yaml")["subjects"]


@pytest.mark.fast
def test_the_settings_of_the_pod_are_settings_of_the_bot() -> None:
    secret = document(f"{BASE}/secret.example.yaml")
    environ = {FILE_VARIABLE: str(DEPLOY / BASE / "settings.yaml")}
    for variable in container()["env"]:
        if variable["name"] == FILE_VARIABLE:
            assert variable["value"] == f"{mount('settings')['mountPath']}/settings.yaml"
        elif "value" in variable:
            environ[variable["name"]] = variable["value"]
        else:
            key = variable["valueFrom"]["secretKeyRef"]
            assert key["name"] == secret["metadata"]["name"]
            environ[variable["name"]] = secret["stringData"][key["key"]]
    settings = load_settings(environ)
    assert settings.observing.everywhere, "whoever applies it as it is changes nothing yet"
    assert settings.http.host == "0.0.0.0"
    assert settings.kubernetes.in_cluster
    assert [each["containerPort"] for each in container()["ports"]] == [settings.http.port]


@pytest.mark.fast
def test_in_socket_mode_the_signing_secret_may_be_empty() -> None:
    environ = {
        FILE_VARIABLE: str(DEPLOY / BASE / "settings.yaml"),
        "REDIS_URL": "redis://r",
        "SLACK_BOT_TOKEN": "xoxb-1",
    }
    environ |= {"INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "t", "SLACK_APP_TOKEN": "xapp-1", "SLACK_SIGNING_SECRET": ""}
    assert load_settings(environ).slack.signing_secret is None


@pytest.mark.fast
def test_the_command_of_the_readme_reaches_the_pod() -> None:
    command = r"`kubectl -n (\S+) exec deploy/(\S+) -- (\S+) doctor --namespace (\S+)`"
    (found,) = re.findall(command, (ROOT / "README.md").read_text())
    namespace = document(f"{BASE}/kustomization.yaml")["namespace"]
    (entry,) = re.findall(r'ENTRYPOINT \["(.+)"\]', (DEPLOY / "Dockerfile").read_text())
    served = document("kustomize/observe/kustomization.yaml")["namespace"]
    assert found == (namespace, document(f"{BASE}/deployment.yaml")["metadata"]["name"], entry, served)


@pytest.mark.fast
@pytest.mark.parametrize("name", sorted(file.name for file in DEPLOY.glob("*.example.yaml")))
def test_an_example_with_secrets_says_that_its_file_belongs_in_a_secret(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    has_secrets = re.search(r"^\s*(\w*token|\w*secret|pagerduty|opsgenie):", text, re.MULTILINE) is not None
    assert ("Mount the file from a Secret" in text) == has_secrets


@pytest.mark.fast
def test_the_service_leads_to_the_pods() -> None:
    service, deployment = document(f"{BASE}/service.yaml"), document(f"{BASE}/deployment.yaml")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert [port["targetPort"] for port in service["spec"]["ports"]] == [port["name"] for port in container()["ports"]]


@pytest.mark.fast
def test_the_pod_runs_with_as_little_as_it_needs() -> None:
    assert pod()["enableServiceLinks"] is False
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def matplotlib_folder(written: dict[str, Any]) -> PurePosixPath:
    (folder,) = [each["value"] for each in written["env"] if each["name"] == "MPLCONFIGDIR"]
    return PurePosixPath(folder)


def only_tmp_is_writable(written: dict[str, Any]) -> bool:
    """Whether a pod's root file system is read-only and /tmp a directory of bounded size, with matplotlib's in it."""
    (only,) = written["containers"]
    empty = {each["name"]: each["emptyDir"] for each in written["volumes"] if "emptyDir" in each}
    places = {each["mountPath"]: empty[each["name"]] for each in only["volumeMounts"] if not each.get("readOnly")}
    return (
        only["securityContext"]["readOnlyRootFilesystem"]
        and places.keys() == {str(TMP)}
        and all("sizeLimit" in each for each in places.values())
        and matplotlib_folder(only).is_relative_to(TMP)
    )


@pytest.mark.fast
def test_the_pod_can_write_to_tmp_and_nowhere_else() -> None:
    assert only_tmp_is_writable(pod())


DRAW = """
import tempfile
tempfile.tempdir = "/dev/null"
from bot.dependencies import chart_png
from tests.adapters.test_charts import chart
assert chart_png(chart()).startswith(b"\\x89PNG")
"""


def test_a_chart_is_drawn_where_only_the_folder_of_matplotlib_is_writable(tmp_path: Path) -> None:
    folder = tmp_path / matplotlib_folder(container()).relative_to(TMP)
    environ = {"HOME": "/dev/null", "PATH": os.environ["PATH"], "MPLCONFIGDIR": str(folder)}
    command = [sys.executable, "-c", DRAW]
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [*folder.iterdir()]


@pytest.mark.fast
def test_the_image_has_what_it_copies_and_the_user_of_the_pod() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY") and "--from" not in line]
    allowed = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for name in (name for names in copied for name in names):
        assert (ROOT / name).exists(), name
        assert f"!{name}" in allowed
    (user,) = [line.removeprefix("USER ") for line in lines if line.startswith("USER")]
    context = pod()["securityContext"]
    assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


@pytest.mark.fast
def test_redis_is_configured_as_doctor_wants_it() -> None:
    text = (DEPLOY / "redis.conf").read_text()
    settings = dict(re.findall(r"^([a-z-]+) (.+)$", text, re.MULTILINE))
    wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
    assert wanted.items() <= settings.items()


def webhook_config() -> dict[str, Any]:
    receivers = {each["name"]: each for each in document("alertmanager-snippet.yaml")["receivers"]}
    found: dict[str, Any]
    (found,) = receivers["incident-bot"]["webhook_configs"]
    return found


@pytest.mark.fast
def test_alertmanager_sends_everything_with_the_bots_token_and_reports_when_it_is_over() -> None:
    webhook, service = webhook_config(), document(f"{BASE}/service.yaml")
    (port,) = service["spec"]["ports"]
    assert webhook["url"] == f"http://{service['metadata']['name']}.incident-bot.svc:{port['port']}/alertmanager"
    assert webhook["send_resolved"] is True
    assert webhook["http_config"]["authorization"]["type"] == "Bearer"


@pytest.mark.fast
def test_a_webhook_of_alertmanager_fits_the_limit_of_the_bot() -> None:
    """A refused webhook is lost: Alertmanager does not send it again after a 413."""
    webhook = webhook_config()
    alert_bytes = 1536  # with its labels, annotations and addresses
    assert webhook["max_alerts"] == MAX_ALERTS_SENT
    assert 0 < MAX_ALERTS_SENT * alert_bytes < Http().body_limit_bytes
    assert MAX_ALERTS_SENT <= MAX_ALERTS


@pytest.mark.needs_server("amtool")
def test_alertmanager_takes_the_snippet() -> None:
    command = ["amtool", "check-config", str(DEPLOY / "alertmanager-snippet.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on PATH: the other tests read the same files"
)
@pytest.mark.parametrize("folder", ["base", "serving", "nodes", "proxy", "exec", "observe"])
def test_kustomize_renders(folder: str) -> None:
    command = ["kubectl", "kustomize", str(DEPLOY / "kustomize" / folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    kinds = {"base": "Deployment", "nodes": "ClusterRoleBinding"}
    rendered = list(YAML(typ="safe", pure=True).load_all(ended.stdout))
    assert kinds.get(folder, "RoleBinding") in {each["kind"] for each in rendered}
    deployments = [each for each in rendered if each["kind"] == "Deployment"]
    assert all(only_tmp_is_writable(each["spec"]["template"]["spec"]) for each in deployments)
