"""The HTTP side, through its ASGI interface: permitted senders, limits, and the promise of each answer."""

import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from structlog.testing import capture_logs

from bot.adapters.alertmanager import read_webhook
from bot.adapters.web import Credentials, Endpoints, create_app
from bot.domain.kernel.alert import LIMIT_ALERTS, Alert
from bot.domain.kernel.errors import SecretFileError, StorageUnavailableError

pytestmark = pytest.mark.fast

LIMIT = 10_000
TOKEN = "s3cret-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BODY = json.dumps(
    {
        "version": "4",
        "truncatedAlerts": 2,
        "alerts": [{"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-11-21T07:58:03Z"}],
    }
)


@dataclass
class Stored:
    """What was accepted; `away` makes the storage unavailable."""

    alerts: list[Alert] = field(default_factory=list)
    truncated: int = 0
    away: bool = False
    faults: Mapping[str, str] = field(default_factory=dict)

    async def accept(self, alerts: list[Alert], truncated: int) -> int:
        if self.away:
            raise StorageUnavailableError("Redis did not answer")
        self.alerts += alerts
        self.truncated += truncated
        return len(alerts)

    async def not_ready(self) -> Mapping[str, str]:
        return self.faults


async def metrics() -> str:
    return "bot_alerts_total 3\n"


async def slack(request: Request) -> Response:
    return PlainTextResponse(f"slack read {len(await request.body())}")


def client(stored: Stored, credentials: Credentials | None = None) -> httpx.AsyncClient:
    endpoints = Endpoints(read_webhook, stored.accept, stored.not_ready, metrics, slack)
    app = create_app(endpoints, credentials=credentials or Credentials.bearer(lambda: TOKEN), body_limit_bytes=LIMIT)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bot")


async def test_an_accepted_webhook_is_stored_before_the_200() -> None:
    stored = Stored()
    answer = await client(stored).post("/alertmanager", content=BODY, headers=BEARER)
    assert (answer.status_code, answer.json()) == (200, {"accepted": 1, "new": 1})
    assert [alert.name for alert in stored.alerts] == ["A"]
    assert stored.truncated == 2


async def test_any_content_type_is_accepted() -> None:
    answer = await client(Stored()).post("/alertmanager", content=BODY, headers=BEARER | {"Content-Type": "text/plain"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        pytest.param({}, id="none"),
        pytest.param({"Authorization": "Bearer wrong"}, id="wrong"),
        pytest.param({"Authorization": f"Basic {TOKEN}"}, id="other-scheme"),
        pytest.param({"Authorization": f"Bearer {TOKEN} "[:-2]}, id="one-short"),
        pytest.param({"Authorization": "Bearer \xff".encode("latin-1")}, id="no-ascii"),
    ],
)
async def test_who_does_not_prove_itself_stores_nothing(header: dict[str, str]) -> None:
    stored = Stored()
    answer = await client(stored).post("/alertmanager", content=BODY, headers=header)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="alerts"'
    assert stored.alerts == []


async def test_user_and_password_are_another_way() -> None:
    credentials = Credentials.basic("alertmanager", lambda: "pa:ß")
    right = base64.b64encode("alertmanager:pa:ß".encode()).decode()
    for shown, status in ((f"basic {right}", 200), ("Basic d3Jvbmc=", 401)):
        answer = await client(Stored(), credentials).post(
            "/alertmanager", content=BODY, headers={"Authorization": shown}
        )
        assert answer.status_code == status


async def test_a_rotated_token_counts_without_a_restart() -> None:
    tokens = iter(["old", "new", "new"])
    app = client(Stored(), Credentials.bearer(lambda: next(tokens)))
    for shown, status in (("old", 200), ("old", 401), ("new", 200)):
        header = {"Authorization": f"Bearer {shown}"}
        assert (await app.post("/alertmanager", content=BODY, headers=header)).status_code == status


async def test_while_the_token_cannot_be_read_an_alert_is_to_be_sent_again() -> None:
    def gone() -> str:
        raise SecretFileError("'/etc/token' cannot be read: No such file or directory")

    with capture_logs() as logs:
        answer = await client(Stored(), Credentials.bearer(gone)).post("/alertmanager", content=BODY, headers=BEARER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "/etc" not in answer.text
    assert [log["event"] for log in logs] == ["secret.unread"]


async def test_an_open_receiver_asks_nobody() -> None:
    endpoints = Endpoints(read_webhook, Stored().accept, Stored().not_ready, metrics)
    app = create_app(endpoints, credentials=None, body_limit_bytes=LIMIT)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bot") as anybody:
        assert (await anybody.post("/alertmanager", content=BODY)).status_code == 200


async def test_a_bad_payload_is_a_400_that_says_what_to_do() -> None:
    answer = await client(Stored()).post("/alertmanager", content="{}", headers=BEARER)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("version: Field required; alerts: Field required; send ")


async def test_no_storage_is_a_503_that_asks_to_send_again() -> None:
    answer = await client(Stored(away=True)).post("/alertmanager", content=BODY, headers=BEARER)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "this may not be stored" in answer.json()["error"]


@dataclass
class Endless:
    """A body without an end, which remembers how much of it was read."""

    read: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.read += 1_000
            yield b"x" * 1_000


@pytest.mark.parametrize("path", ["/alertmanager", "/slack/events"])
async def test_an_endless_body_is_cut_off_at_the_limit(path: str) -> None:
    endless = Endless()
    app = create_app(
        Endpoints(read_webhook, Stored().accept, Stored().not_ready, metrics, slack),
        credentials=None,
        body_limit_bytes=LIMIT,
    )
    sent: list[dict[str, object]] = []
    fragments = aiter(endless)

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": await anext(fragments), "more_body": True}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "app": app}
    await app(scope, receive, send)  # type: ignore[arg-type]  # plain dicts are what ASGI messages are
    assert sent[0]["status"] == 413
    assert endless.read == LIMIT + 1_000


async def test_a_body_that_announces_too_much_is_not_read() -> None:
    answer = await client(Stored()).post("/alertmanager", content=b"x" * (LIMIT + 1), headers=BEARER)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    assert answer.json()["error"].startswith(f"body: over 10000 bytes; {LIMIT_ALERTS}, or raise")


async def test_a_body_of_exactly_the_limit_is_read() -> None:
    padded = BODY + " " * (LIMIT - len(BODY))
    assert (await client(Stored()).post("/alertmanager", content=padded, headers=BEARER)).status_code == 200


async def test_health_means_that_the_process_is_up_even_without_storage() -> None:
    async with client(Stored(faults={"redis": "no answer"})) as caller:
        assert (await caller.get("/healthz")).status_code == 200


async def test_readiness_names_what_is_missing() -> None:
    answer = await client(Stored(faults={"redis": "no answer"})).get("/readyz")
    away = {"ready": False, "faults": {"redis": "no answer"}, "degraded": {}}
    assert (answer.status_code, answer.json()) == (503, away)
    assert (await client(Stored()).get("/readyz")).json() == {"ready": True, "faults": {}, "degraded": {}}


async def test_a_bot_that_the_cluster_refuses_says_so_and_still_takes_alerts_and_presses() -> None:
    async def degraded() -> Mapping[str, str]:
        return {"kubernetes": "401 Unauthorized"}

    stored = Stored()
    endpoints = Endpoints(read_webhook, stored.accept, stored.not_ready, metrics, slack, degraded)
    app = create_app(endpoints, credentials=Credentials.bearer(lambda: TOKEN), body_limit_bytes=LIMIT)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bot") as caller:
        answer = await caller.get("/readyz")
    assert (answer.status_code, answer.json()["degraded"]) == (200, {"kubernetes": "401 Unauthorized"})


async def test_metrics_are_prometheus_text() -> None:
    answer = await client(Stored()).get("/metrics")
    assert answer.text == "bot_alerts_total 3\n"
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_slack_requests_go_to_slacks_handler() -> None:
    assert (await client(Stored()).post("/slack/events", content=b"abc")).text == "slack read 3"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/alertmanager", 405), ("POST", "/nothing", 404)])
async def test_a_wrong_address_is_answered_in_json(method: str, path: str, status: int) -> None:
    answer = await client(Stored()).request(method, path)
    assert answer.status_code == status
    assert "error" in answer.json()


async def test_logs_hold_no_secret_and_no_payload() -> None:
    with capture_logs() as logs:
        await client(Stored()).post("/alertmanager", content=BODY, headers={"Authorization": "Bearer s3cret-guess"})
        await client(Stored()).post("/alertmanager", content='{"s3cret-key": "s3cret-value"}', headers=BEARER)
        await client(Stored()).post("/alertmanager", content=BODY, headers=BEARER)
    assert [entry["event"] for entry in logs] == ["webhook.refused", "webhook.refused", "webhook.accepted"]
    assert "s3cret" not in repr(logs)
    assert "s3cret" not in repr(Credentials.bearer(lambda: TOKEN))
