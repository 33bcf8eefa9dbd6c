"""Uploads files to Slack, in its three steps: an address is given, the bytes are sent, the upload is completed."""

from __future__ import annotations

import aiohttp
import structlog

from bot.adapters.slack.client import Refusal, SlackClient, ask, must_try, session_of
from bot.adapters.slack.escape import plain
from bot.adapters.slack.outbound.shown import Shown
from bot.domain.kernel.errors import CircuitOpenError, MessengerError

log = structlog.get_logger()


class Uploads:
    """Every method raises `MessengerError` if Slack refused or did not answer."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client

    def must_try(self) -> None:
        """Call before a file is made: nothing of it is sent while Slack fails."""
        must_try(self._client.circuits.files.must_try)
        must_try(self._client.circuits.uploads.must_try)

    async def send(self, name: str, content: bytes) -> str:
        """Returns the id of the file. Slack drops it unless the upload is completed."""
        result = await ask(self._client.files_getUploadURLExternal(filename=plain(name, 200), length=len(content)))
        if isinstance(result, Refusal):
            raise result.as_error(f"uploading {name}")
        try:
            with self._client.circuits.uploads.asking():
                async with session_of(self._client).post(str(result["upload_url"]), data=content) as response:
                    if response.status >= 300:
                        raise MessengerError(f"uploading {name}: HTTP {response.status}", lasting=False)
        except CircuitOpenError as away:
            raise MessengerError(str(away), lasting=False, retry_after_seconds=away.retry_after_seconds) from away
        except (aiohttp.ClientError, TimeoutError, OSError) as lost:
            raise MessengerError(f"uploading {name}: {type(lost).__name__}", lasting=False) from lost
        return str(result["file_id"])

    async def keep(self, file_id: str, name: str) -> None:
        """Complete the upload without sharing it: a block of a message may show it."""
        result = await ask(
            self._client.files_completeUploadExternal(files=[{"id": file_id, "title": plain(name, 200)}])
        )
        if isinstance(result, Refusal):
            raise result.as_error(f"keeping {name}")

    async def share(self, file_id: str, root: Shown, *, name: str, comment: str) -> None:
        """Complete the upload as a message in the channel of `root`, in its thread if it has one.

        `comment` is mrkdwn.
        """
        result = await ask(
            self._client.files_completeUploadExternal(
                files=[{"id": file_id, "title": plain(name, 200)}],
                channel_id=root.channel,
                thread_ts=root.ts or None,
                initial_comment=comment,
            )
        )
        if isinstance(result, Refusal):
            raise result.as_error(f"sharing {name}")

    async def is_shared(self, file_id: str, channel: str) -> bool:
        """Whether the file is already in the thread; the answer to sharing it may have been lost."""
        return bool(await self._shares(file_id, channel))

    async def keep_first_share(self, file_id: str, channel: str) -> None:
        """Delete the messages that share the file again: two processes may have shared it."""
        for ts in sorted(await self._shares(file_id, channel))[1:]:
            log.warning("slack.late_file_deleted", file=file_id, ts=ts)
            await ask(self._client.chat_delete(channel=channel, ts=ts))

    async def _shares(self, file_id: str, channel: str) -> list[str]:
        """The `ts` of each message in the channel that shares the file."""
        result = await ask(self._client.files_info(file=file_id))
        if isinstance(result, Refusal):
            if result.error == "file_not_found":
                return []
            raise result.as_error("looking for an uploaded file")
        shares = (result.get("file") or {}).get("shares") or {}
        return [share["ts"] for kind in ("public", "private") for share in shares.get(kind, {}).get(channel, ())]

    async def is_processed(self, file_id: str) -> bool:
        """Whether Slack has processed the file: until then it refuses a block that shows it."""
        result = await ask(self._client.files_info(file=file_id))
        return not isinstance(result, Refusal) and bool((result.get("file") or {}).get("mimetype"))
