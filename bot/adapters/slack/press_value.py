"""The value of a button: the incident, the request or question, the whole digest that was shown, and the choice."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bot.adapters.slack import limits

APPROVE = "approve"
APPROVE_WITH_REASON = "approve_with_reason"
"""Opens a form: a repeated request needs a new reason."""
REFUSE = "refuse"
EDIT = "edit"
MORE_TIME = "more_time"
BREAK_GLASS = "break_glass"
CARRY_OUT = "carry_out"
DO_ELSE = "do_else"
"""A person does what the bot only advises, or something else, which a form asks for."""
CHOOSE = "choose:"
"""Followed by the place of the choice, since ids must differ within a message; the choice itself is in the value."""
MENU = "menu"
"""In place of a number: a menu of choices."""
MORE = "more"
"""The menu of what is seldom needed; the value's choice names it: `DETAILS`, `EDIT` or `MORE_TIME`."""
DETAILS = "details"
OPEN_FORM = "fill:"
"""The same for a choice with a form: pressing it opens the form."""
RUN_COMMAND = "say:"
"""Followed by a command of `/incident`, which the button runs on its incident."""
PULL_REQUEST = "pull_request"
"""Opens a pull request with the patch that the message shows."""
LINK = "see"
"""A link; Slack still sends an event when it is pressed."""


@dataclass(frozen=True)
class ButtonValue:
    incident_id: str
    about: str
    digest: str = ""
    choice: str = ""

    def packed(self) -> str | None:
        """Compact JSON, or None when it is too long for Slack."""
        parts = {"i": self.incident_id, "a": self.about, "d": self.digest, "c": self.choice}
        text = json.dumps({key: part for key, part in parts.items() if part}, separators=(",", ":"))
        return text if len(text) <= limits.BUTTON_VALUE else None

    def packed_for_a_menu(self) -> str | None:
        """The same, or None when it is too long for an option of a menu."""
        text = self.packed()
        return text if text is not None and len(text) <= limits.OPTION_VALUE else None

    @classmethod
    def unpacked(cls, text: str) -> ButtonValue | None:
        """None for a value of another format: buttons may be older than this code."""
        try:
            parts = json.loads(text)
        except ValueError:
            return None
        if not isinstance(parts, dict) or not all(isinstance(part, str) for part in parts.values()):
            return None
        if not parts.get("i") or not parts.get("a"):
            return None
        return cls(parts["i"], parts["a"], parts.get("d", ""), parts.get("c", ""))
