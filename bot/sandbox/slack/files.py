"""Files: an upload address is given, the bytes come, then the upload is completed and perhaps shared.

As in Slack a file then needs a moment before other people can use it, and before an image block may name it. The bot
that posts the block must have access to the file; whether it was shared does not matter.
"""

from __future__ import annotations

import base64
import mimetypes
import secrets
from dataclasses import dataclass, field

from bot.sandbox.slack.block_kit import files_in
from bot.sandbox.slack.directory import BOT_USER
from bot.sandbox.slack.errors import ApiError, Json
from bot.sandbox.slack.messages import Clock

PROCESSING_SECONDS = 0.3


@dataclass
class StoredFile:
    id: str
    name: str
    length: int
    upload_key: str
    title: str = ""
    content: bytes | None = None
    completed_at: float | None = None
    shares: list[Json] = field(default_factory=list)

    @property
    def mimetype(self) -> str:
        return mimetypes.guess_type(self.name)[0] or "application/octet-stream"


class Files:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[str, StoredFile] = {}
        self.base_url = ""

    def reset(self) -> None:
        self._files.clear()

    def expect(self, name: str, length: int) -> tuple[str, str]:
        """Announces an upload; the file's id and the address for its bytes."""
        if length < 1:
            raise ApiError("invalid_arguments", "[ERROR] length must be a positive number")
        file_id = f"F{secrets.token_hex(5).upper()}"
        self._files[file_id] = StoredFile(file_id, name, length, secrets.token_urlsafe(16), title=name)
        return file_id, f"{self.base_url}/upload/v1/{self._files[file_id].upload_key}"

    def receive(self, upload_key: str, content: bytes) -> StoredFile | None:
        """The file, or None if the address is unknown or the length differs from the announced one."""
        for stored in self._files.values():
            if stored.upload_key == upload_key and len(content) == stored.length:
                stored.content = content
                return stored
        return None

    def complete(self, file_id: str, title: str | None) -> StoredFile:
        stored = self.get(file_id)
        if stored.content is None:
            raise ApiError("file_not_found")
        stored.title = title or stored.name
        if stored.completed_at is None:
            stored.completed_at = self._clock()
        return stored

    def get(self, file_id: str) -> StoredFile:
        if file_id not in self._files:
            raise ApiError("file_not_found")
        return self._files[file_id]

    def is_ready(self, stored: StoredFile) -> bool:
        return stored.completed_at is not None and self._clock() - stored.completed_at >= PROCESSING_SECONDS

    def described(self, stored: StoredFile, *, is_shown: bool = False) -> Json:
        """`is_shown`: as part of a message, where it is not visible before it is ready."""
        is_ready = is_shown or self.is_ready(stored)
        mimetype = stored.mimetype if is_ready else ""
        shares: Json = {}
        if is_ready:
            for share in stored.shares:
                shares.setdefault("public", {}).setdefault(share["channel"], []).append(
                    {name: share[name] for name in ("ts", "thread_ts") if share.get(name)}
                )
        return {
            "id": stored.id,
            "created": int(stored.completed_at or 0),
            "timestamp": int(stored.completed_at or 0),
            "name": stored.name,
            "title": stored.title,
            "mimetype": mimetype,
            "filetype": stored.name.rpartition(".")[2] if is_ready else "",
            "user": BOT_USER,
            "size": stored.length,
            "mode": "hosted",
            "is_external": False,
            "is_public": bool(stored.shares),
            "url_private": self.url(stored),
            "url_private_download": f"{self.url(stored)}?download=1",
            "permalink": self.url(stored),
            "channels": sorted({share["channel"] for share in stored.shares}) if is_ready else [],
            "shares": shares,
        }

    def url(self, stored: StoredFile) -> str:
        return f"{self.base_url}/files-pri/{stored.id}/{stored.name}"

    def resolve(self, blocks: list[Json]) -> list[Json]:
        """Points image blocks at their files; raises `invalid_blocks` for a file that is unknown or not ready."""
        for reference, at in files_in(blocks):
            stored = self._referenced(reference)
            if stored is None or not self.is_ready(stored):
                raise ApiError("invalid_blocks", f"[ERROR] invalid slack file [json-pointer:{at}]")
            reference |= {"id": stored.id, "url": self.url(stored)}
        return blocks

    def _referenced(self, reference: Json) -> StoredFile | None:
        for stored in self._files.values():
            if reference.get("id") == stored.id or reference.get("url") == self.url(stored):
                return stored
        return None

    def saved(self) -> list[Json]:
        return [
            {**vars(stored), "content": base64.b64encode(stored.content or b"").decode()}
            for stored in self._files.values()
            if stored.completed_at is not None
        ]

    def restore(self, saved: list[Json]) -> None:
        self.reset()
        for entry in saved:
            stored = StoredFile(**{**entry, "content": base64.b64decode(entry["content"])})
            self._files[stored.id] = stored
