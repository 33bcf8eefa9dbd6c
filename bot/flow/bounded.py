"""Reads bodies that others wrote, which may be of any size."""

from __future__ import annotations

from collections.abc import AsyncIterable


class TooLargeError(ValueError):
    """The rest of the body was not read."""


async def at_most(fragments: AsyncIterable[bytes], max_bytes: int) -> bytes:
    """The whole body. Raises `TooLargeError` as soon as it is larger."""
    body = bytearray()
    async for fragment in fragments:
        body += fragment
        if len(body) > max_bytes:
            raise TooLargeError(f"larger than {max_bytes >> 20} MiB")
    return bytes(body)
