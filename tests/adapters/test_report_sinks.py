"""Reports are kept in a directory, an S3-compatible bucket and by a signed webhook; refusals are named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp import web

from bot.adapters.report_sinks import CHECK, Files, ReportWebhook
from bot.domain.kernel.errors import SourceError
from bot.domain.kernel.signature import SIGNATURE, TIMESTAMP, signature
from tests.kit.served import served

pytestmark = pytest.mark.fast
FILES = {"INC-7.md": b"# INC-7\n", "INC-7.json": b"{}\n"}
KEY, SECRET = "AKIAEXAMPLE", "a-secret"


class Bucket:
    """An S3 bucket as `PUT` of an object sees it: the key must be known and the body must match its hash."""

    def __init__(self) -> None:
        self.url, self.objects = "", dict[str, bytes]()

    def routes(self) -> list[web.RouteDef]:
        return [web.put("/incidents/{key:.+}", self._put)]

    async def _put(self, request: web.Request) -> web.Response:
        body, found = await request.read(), request.headers
        if f"AWS4-HMAC-SHA256 Credential={KEY}/" not in found.get("Authorization", ""):
            error = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
            return web.Response(status=403, text=error, content_type="application/xml")
        if found["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            return web.Response(status=400, text="<Error><Code>XAmzContentSHA256Mismatch</Code></Error>")
        self.objects[request.match_info["key"]] = body
        return web.Response(headers={"ETag": '"1"'})


@pytest.fixture
async def bucket(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bucket]:
    bucket = Bucket()
    async with served(bucket.routes()) as bucket.url:
        for name, value in {"ENDPOINT_URL": bucket.url, "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_REGION", "eu-central-1")
        yield bucket


async def test_a_directory_gets_a_folder_for_each_incident_and_a_second_close_replaces(tmp_path: Path) -> None:
    sink = Files(f"file://{tmp_path}/kept/reports")
    await sink.put("INC-7", FILES, at=1.0)
    await sink.put("INC-7", FILES | {"INC-7.md": b"# newer\n"}, at=2.0)
    found = {path.name: path.read_bytes() for path in (tmp_path / "kept/reports/INC-7").iterdir()}
    assert found == FILES | {"INC-7.md": b"# newer\n"}


async def test_a_bucket_gets_signed_puts_below_the_prefix(bucket: Bucket) -> None:
    await Files("s3://incidents/reports").put("INC-7", FILES, at=1.0)
    assert bucket.objects == {f"reports/INC-7/{name}": content for name, content in FILES.items()}


async def test_the_check_writes_one_small_file(bucket: Bucket) -> None:
    await Files("s3://incidents/reports").check()
    assert list(bucket.objects) == [f"reports/{CHECK}"]


async def test_a_refused_put_is_named_in_one_line(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    with pytest.raises(SourceError, match=r"InvalidAccessKeyId|403|permission|privileges") as refused:
        await Files("s3://incidents/reports").put("INC-7", FILES, at=1.0)
    assert "\n" not in str(refused.value)
    assert SECRET not in str(refused.value)


async def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SourceError):
        await Files(f"file://{tmp_path}/taken/reports").check()


@pytest.fixture
async def posted() -> AsyncIterator[tuple[str, list[web.Request]]]:
    got: list[web.Request] = []

    async def take(request: web.Request) -> web.Response:
        await request.read()
        got.append(request)
        return web.Response(status=204 if request.path == "/reports" else 500, text="" if got else "no")

    async with served([web.post("/{path:.*}", take)]) as url:
        yield url, got


async def test_the_webhook_is_signed_and_differs_from_that_of_an_earlier_close(
    posted: tuple[str, list[web.Request]],
) -> None:
    url, got = posted
    async with httpx.AsyncClient() as http:
        await ReportWebhook(http, f"{url}/reports", SECRET).put("INC-7", FILES, at=1_800_000_000.0)
    (request,) = got
    body = await request.read()
    assert request.headers[SIGNATURE] == signature(SECRET, request.headers[TIMESTAMP], body)
    assert request.headers["Idempotency-Key"] == "INC-7:1800000000"
    assert json.loads(body) == {"incident": "INC-7", "files": {"INC-7.md": "# INC-7\n", "INC-7.json": "{}\n"}}


async def test_a_webhook_that_refuses_or_is_away_is_named(posted: tuple[str, list[web.Request]]) -> None:
    url, _ = posted
    async with httpx.AsyncClient() as http:
        with pytest.raises(SourceError, match="answers HTTP 500"):
            await ReportWebhook(http, f"{url}/broken", SECRET).put("INC-7", FILES, at=1.0)
        with pytest.raises(SourceError, match="does not answer: ConnectError"):
            await ReportWebhook(http, "http://127.0.0.1:9/", SECRET).put("INC-7", FILES, at=1.0)
