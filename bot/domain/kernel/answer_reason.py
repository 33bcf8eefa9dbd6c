"""Why a service refused a request, from the text of its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

MAX_CHARACTERS = 200


def answer_reason(text: str) -> str:
    """Returns `message` and `errors` of a JSON object, else the text itself; at most 200 characters, never empty."""
    try:
        body = json.loads(text)
    except ValueError:
        return text[:MAX_CHARACTERS] or "no reason"
    if not isinstance(body, Mapping):
        return str(body)[:MAX_CHARACTERS]
    errors = body.get("errors")
    reasons = [str(body.get("message") or ""), *(map(_in_words, errors) if isinstance(errors, list) else ())]
    return "; ".join(filter(None, reasons))[:MAX_CHARACTERS] or "no reason"


def _in_words(error: object) -> str:
    return str(error["message"]) if isinstance(error, Mapping) and error.get("message") else str(error)
