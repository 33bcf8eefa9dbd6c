"""The form in which runs, events and effects are stored, with its number: two versions of the bot may share them.

An earlier form is upgraded when it is read. A later one is refused and left as it is: in a rolling upgrade, the
replicas of the newer version go on with it. The number comes first in the text: `{"form":2,…`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel

from bot.domain.incidents.effect import EFFECT, Effect
from bot.domain.incidents.event import EVENT, Event
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import NewerFormError

FORMS: Mapping[int, str] = {
    1: "not numbered yet",
    2: "the number itself",
    3: "`otherwise` of changes, recommendations and watches in playbooks",
    4: "`kind: time` of fields in forms, and the reason of a halt",
    5: "`otherwise` of reads, reads without `read`, and the bare reason of a halt",
    6: "the `freeze` command, and how far a patch is in the probe `handed_out`",
    7: "the probe `own_changes`",
    8: "the verb of each later change that an approval covers",
    9: "`kind: integer` of fields in forms",
    10: "`at_equal_lengths` of means",
    11: "the parts of a run (`visit`, `halt`, `status_update`, `in_slack`, `timeline`), `decisions`, and `notify`",
    12: "the `pull_request` command, its effect and its event, and `owners_edit` of planning",
    13: "`for` of a `broke` clause, and the request whose leases are released",
    14: "`return` in playbooks, what it leaves to do, the undo that closes an incident, and the wait of a skip",
}
"""What each form brought. A test fails if the documents, or the words of playbooks, change without a new one."""
UNNUMBERED = 1

Document = Literal["run", "event", "effect"]
Upgrade = Callable[[Document, dict[str, Any]], dict[str, Any]]
"""Turns a document of one form into the next form."""


def _bare_reason(what: Document, document: dict[str, Any]) -> dict[str, Any]:
    """The reason of a halt was stored as `halted: WHY`, or `everything is halted: WHY`."""
    if what == "event" and document.get("command") == "halt":
        return document | {"text": document.get("text", "").partition("halted: ")[2]}
    return document


_PARTS_OF_A_RUN: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "visit": {
            "visit": "number", "state": "state", "at_state": "machine_state", "doing": "doing", "runbook": "runbook",
            "entered_at": "entered_at", "readings": "readings",
        },
        "halt": {"halted_by": "by", "halt_reason": "reason", "halted_with_all": "with_all"},
        "status_update": {"status": "text", "status_by": "by", "status_at": "at"},
        "in_slack": {"card_posted": "card_posted", "places": "places", "anchored": "anchored"},
        "timeline": {"timeline_head": "hash", "timeline_length": "length"},
    }
)  # fmt: skip
"""Part to its fields: the name that the run itself had, and the name in the part."""


def _in_parts(what: Document, document: dict[str, Any]) -> dict[str, Any]:
    """The parts of a run were fields of the run, the decisions of `looked` were `ways`, and `notify` was `tell`."""
    if what != "run":
        return {name: "notify" if value == "tell" and "kind" in name else value for name, value in document.items()}
    for looked in (document.get("looked"), *(post["data"].get("looked") for post in document.get("posts", ()))):
        if looked and "ways" in looked:
            looked["decisions"] = looked.pop("ways")
    moved = {name for fields in _PARTS_OF_A_RUN.values() for name in fields}
    parts: dict[str, Any] = {
        part: {name: document[before] for before, name in fields.items() if before in document}
        for part, fields in _PARTS_OF_A_RUN.items()
    }
    if not parts["halt"].get("by"):
        del parts["halt"]
    return {name: value for name, value in document.items() if name not in moved} | parts


UPGRADES: Mapping[int, Upgrade] = MappingProxyType({4: _bare_reason, 10: _in_parts})
"""By the form that it upgrades from. None is needed where the next form only has more fields, each with a default."""

_NUMBER = re.compile(r'\{"form":(\d+),')
_INCIDENT = re.compile(r'"incident_id":"([^"]+)"')


@dataclass(frozen=True)
class StoredForm:
    """Reads and writes the form of one version of the bot; by default, of this one."""

    number: int = max(FORMS)
    upgrades: Mapping[int, Upgrade] = field(default_factory=lambda: UPGRADES)

    def text(self, document: BaseModel) -> str:
        return f'{{"form":{self.number},{document.model_dump_json()[1:]}'

    def run(self, text: str) -> Run:
        """Raises `NewerFormError`, as the others do."""
        return Run.model_validate_json(self._present("run", text))

    def event(self, text: str) -> Event:
        return EVENT.validate_json(self._present("event", text))

    def effect(self, text: str) -> Effect:
        return EFFECT.validate_json(self._present("effect", text))

    def is_newer(self, text: str) -> bool:
        return _number_of(text) > self.number

    def _present(self, what: Document, text: str) -> str:
        """The document in the present form."""
        number = _number_of(text)
        if number > self.number:
            found = _INCIDENT.search(text) if what == "run" else None
            forms = f"form {number}, and this version knows forms up to {self.number}"
            raise NewerFormError(found[1] if found else f"an {what}", forms)
        steps = [self.upgrades[form] for form in range(number, self.number) if form in self.upgrades]
        if not steps:
            return text
        document = json.loads(text)
        for step in steps:
            document = step(what, document)
        return json.dumps(document)


def _number_of(text: str) -> int:
    found = _NUMBER.match(text)
    return int(found[1]) if found else UNNUMBERED
