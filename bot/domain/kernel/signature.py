"""How a POST to somebody else's webhook is signed, so that its receiver can verify that the bot sent it."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE, TIMESTAMP = "X-Incident-Bot-Signature", "X-Incident-Bot-Timestamp"
"""The headers; the timestamp is in seconds."""


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Returns what the header `X-Incident-Bot-Signature` has to be: HMAC-SHA256 of `timestamp.body` after `v1=`."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"
