"""A real Prometheus and a real Alertmanager over the simulated fleet, with the rules and the route of `deploy/`.

Only addresses and what a test cannot wait for are changed: minutes become seconds.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import yaml

from bot.sandbox import valkey
from bot.sandbox.plain_http import http
from tests.servers import required
from tests.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "alerts/vllm.rules.yaml"
SNIPPET = DEPLOY / "alertmanager-snippet.yaml"
WINDOW = "10s"
HOLD = "9s"
"""As in the demo: or else the burst of a rising load would be taken for its level."""


@dataclass(frozen=True)
class Monitoring:
    prometheus: str
    alertmanager: str

    def firing(self) -> list[str]:
        """The names of the alerts that Alertmanager holds as active now."""
        active = http().get(f"{self.alertmanager}/api/v2/alerts", params={"active": "true"}).json()
        return [each["labels"]["alertname"] for each in active]


def shortened(rules: str) -> str:
    """Every range in minutes, in seconds that a test can wait for; every alert holds as long as such a range."""
    ranges = re.sub(r"\[\d+m\]", f"[{WINDOW}]", rules)
    without = re.sub(r"\n +for: \d+m", "", ranges)
    return re.sub(r"\n( +)- alert: \w+", rf"\g<0>\n\1  for: {HOLD}", without)


def replicas(kubernetes_url: str) -> list[dict[str, Any]]:
    """The running replicas with the labels that a PodMonitor gives them, as Prometheus' HTTP discovery wants them."""
    asked = {"labelSelector": "app=llm"}
    pods = http().get(f"{kubernetes_url}/api/v1/namespaces/serving/pods", params=asked).json()["items"]
    return [
        {
            "targets": [f"{pod['status']['podIP']}:8000"],
            "labels": {"namespace": "serving", "pod": pod["metadata"]["name"], "service": "llm"},
        }
        for pod in pods
        if pod["status"].get("phase") == "Running" and pod["status"].get("podIP")
    ]


@contextlib.contextmanager
def discovery(kubernetes_url: str) -> Iterator[str]:
    """Where Prometheus asks for its targets: Debian's cannot ask Kubernetes itself."""

    class Targets(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(replicas(kubernetes_url)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nothing: each second one more line that nobody reads."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Targets)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def prometheus_config(targets_url: str, alertmanager: str) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": "1s",
            "scrape_timeout": "1s",
            "evaluation_interval": "1s",
            "external_labels": {"cluster": "sandbox"},
        },
        "rule_files": ["vllm.rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "vllm", "http_sd_configs": [{"url": targets_url, "refresh_interval": "1s"}]}],
    }


def alertmanager_config(bot_url: str, token_file: Path) -> dict[str, Any]:
    """The shipped snippet. Only the bot's address, the token's file and the times are changed."""
    config: dict[str, Any] = yaml.safe_load(SNIPPET.read_text())
    (route,) = config["route"]["routes"]
    route |= {"group_wait": "0s", "group_interval": "1s", "repeat_interval": "1h"}
    (receiver,) = [each for each in config["receivers"] if each["name"] == route["receiver"]]
    (webhook,) = receiver["webhook_configs"]
    webhook["url"] = f"{bot_url}/alertmanager"
    webhook["http_config"]["authorization"]["credentials_file"] = str(token_file)
    return config


@contextlib.contextmanager
def monitoring(folder: Path, *, kubernetes_url: str, bot_url: str, token: str) -> Iterator[Monitoring]:
    ports = [valkey.free_port(), valkey.free_port()]
    prometheus, alertmanager = (f"127.0.0.1:{port}" for port in ports)
    # JSON is YAML; both servers read it.
    token_file = folder / "bearer-token"
    token_file.write_text(token)
    (folder / "alertmanager.yml").write_text(json.dumps(alertmanager_config(bot_url, token_file)))
    (folder / "vllm.rules.yaml").write_text(shortened(RULES.read_text()))
    with contextlib.ExitStack() as running:
        targets = running.enter_context(discovery(kubernetes_url))
        (folder / "prometheus.yml").write_text(json.dumps(prometheus_config(targets, alertmanager)))
        running.enter_context(
            served(
                folder / "alertmanager",
                f"http://{alertmanager}/-/ready",
                required("alertmanager"),
                f"--config.file={folder / 'alertmanager.yml'}",
                f"--storage.path={folder / 'alertmanager'}",
                f"--web.listen-address={alertmanager}",
                "--cluster.listen-address=",
            )
        )
        running.enter_context(
            served(
                folder / "prometheus",
                f"http://{prometheus}/-/ready",
                required("prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'prometheus'}",
                f"--web.listen-address={prometheus}",
                "--rules.alert.resend-delay=1s",
            )
        )
        yield Monitoring(f"http://{prometheus}", f"http://{alertmanager}")


@contextlib.contextmanager
def served(folder: Path, ready_url: str, *command: str) -> Iterator[None]:
    """A server with its data and its log in `folder`, from the moment at which it says that it is ready."""
    folder.mkdir()
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
    try:
        until(
            lambda: answers(ready_url) or process.poll() is not None, f"{command[0]} is ready", 30, seen=log.read_text
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(timeout=20)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
