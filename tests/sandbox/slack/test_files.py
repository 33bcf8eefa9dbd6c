"""Uploads in three steps, and image blocks that use them."""

from typing import Any

import pytest
from slack_sdk.errors import SlackApiError

from tests.sandbox.slack.stand_in import StandIn, until

pytestmark = pytest.mark.fast


def image_of(file_id: str) -> dict[str, Any]:
    return {"type": "image", "alt_text": "a chart", "slack_file": {"id": file_id}}


async def is_processed(slack: StandIn, file_id: str) -> bool:
    return bool((await slack.client.files_info(file=file_id))["file"]["mimetype"])


async def test_the_sdk_uploads_into_a_thread(slack: StandIn) -> None:
    root = await slack.post()
    uploaded = await slack.client.files_upload_v2(
        channel="C0INC",
        thread_ts=root,
        content="# Timeline",
        filename="INC-1.md",
        title="Timeline",
        initial_comment="done",
    )
    message = (await slack.read("messages"))[1]
    assert (message["thread_ts"], message["text"], message["files"][0]["title"]) == (root, "done", "Timeline")
    shown = await slack.http.get(uploaded["file"]["url_private"])
    assert shown.text == "# Timeline"


async def test_shares_are_listed_once_the_file_is_processed(slack: StandIn) -> None:
    uploaded = await slack.client.files_upload_v2(channel="C0INC", content="x", filename="x.txt")
    file_id = uploaded["file"]["id"]
    assert uploaded["file"]["shares"] == {}
    await until(lambda: is_processed(slack, file_id), "the file is processed")
    described = (await slack.client.files_info(file=file_id))["file"]
    assert [share["ts"] for share in described["shares"]["public"]["C0INC"]] == [
        message["ts"] for message in await slack.read("messages")
    ]


async def test_an_image_block_may_use_a_file_once_it_is_processed(slack: StandIn) -> None:
    uploaded = await slack.client.files_upload_v2(channel="C0INC", content="png", filename="x.png")
    file_id = uploaded["file"]["id"]
    with pytest.raises(SlackApiError, match="invalid_blocks"):
        await slack.post(image_of(file_id))
    await until(lambda: is_processed(slack, file_id), "the file is processed")
    ts = await slack.post(image_of(file_id))
    posted = (await slack.client.reactions_get(channel="C0INC", timestamp=ts))["message"]
    assert posted["blocks"][0]["slack_file"]["url"].endswith(f"{file_id}/x.png")


async def test_an_image_block_may_use_a_file_that_was_never_shared(slack: StandIn) -> None:
    uploaded = await slack.client.files_upload_v2(content="png", filename="x.png")
    await until(lambda: is_processed(slack, uploaded["file"]["id"]), "the file is processed")
    await slack.post(image_of(uploaded["file"]["id"]))
    assert [message.get("files") for message in await slack.read("messages")] == [None]


async def test_bytes_of_another_length_than_announced_are_refused(slack: StandIn) -> None:
    announced = await slack.client.files_getUploadURLExternal(filename="x.txt", length=5)
    answer = await slack.http.post(announced["upload_url"], content=b"four")
    assert answer.status_code == 400
    with pytest.raises(SlackApiError, match="file_not_found"):
        await slack.client.files_completeUploadExternal(files=[{"id": announced["file_id"]}], channel_id="C0INC")


async def test_a_page_that_was_uploaded_is_only_downloaded(slack: StandIn) -> None:
    uploaded = await slack.client.files_upload_v2(channel="C0INC", content="<script>", filename="x.html")
    shown = await slack.http.get(uploaded["file"]["url_private"])
    assert shown.headers["content-disposition"] == "attachment"
    assert "sandbox" in shown.headers["content-security-policy"]
