"""Slack's errors and their wording: `ok: false`, a code, and for bad arguments a list of reasons."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class ApiError(Exception):
    """A Web API call is answered with HTTP 200 and this error; the caller decides what to do."""

    def __init__(self, code: str, *reasons: str) -> None:
        super().__init__(code, *reasons)
        self.code = code
        self.reasons = reasons

    def answer(self) -> Json:
        body: Json = {"ok": False, "error": self.code}
        if self.reasons:
            plain = [r.removeprefix("[ERROR] ") for r in self.reasons]
            body |= {"errors": plain, "response_metadata": {"messages": list(self.reasons)}}
        return body


class SandboxError(Exception):
    """The sandbox itself has no such thing; answered with HTTP 404 and the available choices."""

    def __init__(self, what: str, choices: object = None) -> None:
        super().__init__(what)
        self.what = what
        self.choices = choices

    def answer(self) -> Json:
        return {"ok": False, "error": self.what, "choices": self.choices}
