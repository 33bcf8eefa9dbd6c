"""Every `/incident` command: what it does, who may use it, and how its text is read.

`Commands` has a handler for each. Those that an incident carries out are declared in `bot.domain.incidents.event` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bot.domain.incidents.event import COMMANDS

NOTHING = "now"
"""The command that `/incident` alone stands for."""
ENTRIES_SHOWN = 20

Group = Literal["See", "Look up", "Update", "Operate", "Stop"]


@dataclass(frozen=True)
class SlashCommand:
    group: Group
    """Where `/incident help` lists it."""
    arguments: str
    does: str
    who: Literal["anybody", "members", "operators", "halters"] = "operators"
    """Members are everyone except guests, bots, deactivated accounts and people of other workspaces. Halters are the
    operators; while Slack does not answer, the last known ones."""
    example: str = ""
    """What people type, where the arguments are not obvious."""
    number: Literal["incident", "open incident", "incident or text", "text"] = "incident"
    """What a number at the beginning is. "incident or text": before other text an incident only if the command works on
    one of that number: `/incident note 2 replicas are back`. "open incident": such a text needs its incident before it,
    because the command must never work on another one than the number names."""
    counts_twice: bool = False
    """Whether it is done again when it is sent again."""
    in_a_hurry: bool = False
    """`/incident help` explains it at once: a phone shows no more than five without scrolling."""


SLASH_COMMANDS: Mapping[str, SlashCommand] = {
    # --- See ---
    NOTHING: SlashCommand("See", "", "show what waits for people, and what you can do", "anybody", in_a_hurry=True),
    "list": SlashCommand("See", "", "list the open incidents", "anybody"),
    "show": SlashCommand("See", "[INC]", "show the state of an incident", "anybody", in_a_hurry=True),
    "timeline": SlashCommand("See", "[INC]", f"show the last {ENTRIES_SHOWN} findings and decisions", "members"),
    "export": SlashCommand("See", "[INC] [md|json|html]", "upload the whole timeline to the thread", "members"),
    "graph": SlashCommand("See", "[INC|PLAYBOOK]", "draw a playbook, with the path that an incident took", "members"),
    "stats": SlashCommand(
        "See", "[DAYS]", "show how fast incidents were answered and ended", "members", example="30", number="text",
    ),
    # --- Look up ---
    "playbooks": SlashCommand("Look up", "", "list the playbooks and the alerts that open them", "members"),
    "settings": SlashCommand(
        "Look up", "[INC|PLAYBOOK]", "show a playbook's settings, their ranges and reasons", "members"
    ),
    "unmatched": SlashCommand("Look up", "", "list the alerts that opened no incident", "members"),
    "help": SlashCommand("Look up", "[COMMAND]", "list the commands, or explain one", "anybody"),
    # --- Update ---
    "note": SlashCommand(
        "Update", "[INC] TEXT", "add a note to the timeline", "members", example="INC-7 the load test is ours",
        number="incident or text", counts_twice=True,
    ),
    "followup": SlashCommand(
        "Update", "[INC] TEXT", "write down what is to be done later; the report lists it", "members",
        example="INC-7 raise the limit when the new nodes are there",
        number="incident or text", counts_twice=True,
    ),
    "status": SlashCommand(
        "Update", "[INC] [TEXT]", "post a status update",
        example="INC-7 The rollout runs; answers are slow until about 14:30.",
        number="incident or text", counts_twice=True,
    ),
    "lead": SlashCommand(
        "Update", "[INC] [@PERSON]", "take the lead, or name another incident lead", example="INC-7 @Ben",
        in_a_hurry=True,
    ),
    "handover": SlashCommand(
        "Update", "[INC] [@PERSON] [NOTE]", "hand over one incident or all, with what is open and promised",
        example="INC-7 @Ben the rollout runs, please watch it", number="open incident", counts_twice=True,
    ),
    # --- Operate ---
    "open": SlashCommand(
        "Operate", "[PLAYBOOK] [NAMESPACE/WORKLOAD]", "open an incident without an alert",
        example="kv-cache-oom serving/llm", number="text",
    ),
    "skip": SlashCommand("Operate", "[INC] [STATE WHY]", "stop waiting and take another exit", counts_twice=True),
    "divert": SlashCommand(
        "Operate", "[INC] PLAYBOOK", "switch to another playbook that matches one of its alerts",
        example="INC-7 gpu-fault",
    ),
    "undo": SlashCommand("Operate", "[INC]", "propose to undo the last change", counts_twice=True, in_a_hurry=True),
    # `Silencing.begin` checks who may approve a silence.
    "silence": SlashCommand(
        "Operate", "[INC] 30m WHY|off", "silence its alerts in Alertmanager for at most two hours", "members",
        example="INC-7 30m the load test goes on until noon",
    ),
    "maintenance": SlashCommand(
        "Operate", "[NAMESPACE/WORKLOAD for 1h WHY|off]", "hold back its alerts that are not urgent",
        example="serving/llm for 1h new drivers", number="text",
    ),
    "reset": SlashCommand("Operate", "[INC]", "reset the circuit breakers of its workload and of nodes"),
    "resolve": SlashCommand(
        "Operate", "[INC] [WHY]", "close an incident", example="INC-7 the load test has ended", number="open incident",
    ),
    "reopen": SlashCommand("Operate", "INC WHY", "reopen a closed incident", example="INC-7 it came back"),
    # --- Stop ---
    "halt": SlashCommand(
        "Stop", "[INC|all] [WHY]", "stop sending changes until it is resumed", "halters",
        example="INC-7 we repair the node ourselves", number="incident or text", in_a_hurry=True,
    ),
    "resume": SlashCommand("Stop", "[INC|all]", "lift a halt"),
    "freeze": SlashCommand(
        "Stop", "[NAMESPACE/WORKLOAD|all for 1h WHY|off]", "only advise changes",
        example="serving/llm for 2h the launch", number="text",
    ),
}  # fmt: skip


_ENDS_WITH_THE_INCIDENT = frozenset(name for name, command in COMMANDS.items() if not command.when_closed)


def works_when_closed(word: str) -> bool:
    """Whether the command works on a closed incident, or needs no incident."""
    return "INC" not in SLASH_COMMANDS[word].arguments or word not in _ENDS_WITH_THE_INCIDENT
