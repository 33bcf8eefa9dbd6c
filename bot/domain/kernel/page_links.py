"""Signed links to an incident's page: anyone who has one may read that incident until it expires, and nothing else."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from urllib.parse import quote

WITHIN_SECONDS = 7 * 24 * 3600.0
"""How long a link works after the incident last entered a state; the card then has a newer one."""


@dataclass(frozen=True, repr=False)
class PageLinks:
    """`base`: the address at which people reach the bot; empty: no links are made."""

    base: str
    secret: bytes

    def of(self, incident_id: str, since: float) -> str:
        """Returns the address of the page; the same for the same moment, so that a card does not change by itself."""
        if not self.base:
            return ""
        until = int(since + WITHIN_SECONDS)
        signature = self._signature(incident_id, until)
        return f"{self.base.rstrip('/')}/incidents/{quote(incident_id)}?until={until}&signature={signature}"

    def permits(self, incident_id: str, until: str, signature: str, *, at: float) -> bool:
        """Whether this link is ours and has not expired."""
        if not (until.isascii() and until.isdigit() and len(until) < 16):
            return False
        expected = self._signature(incident_id, int(until)).encode()
        return hmac.compare_digest(expected, signature.encode("utf-8", "replace")) and at < int(until)

    def _signature(self, incident_id: str, until: int) -> str:
        return hmac.new(self.secret, f"{incident_id}\n{until}".encode(), hashlib.sha256).hexdigest()
