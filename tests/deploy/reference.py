"""`python -m tests.deploy.reference` writes what is made from the declarations in the code.

The pages of `deploy/reference`, and the schemas of playbooks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bot.adapters.slack.inbound.command_table import SLASH_COMMANDS
from bot.cli.playbook_words import words
from bot.domain.playbooks.loading.schema import fragment_schema, playbook_schema
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.reports.page import Exported
from bot.probes.catalogue import PROBES
from bot.sandbox.scenarios import SCENARIOS
from bot.settings import LEAVES, PLAIN_NAMES, PREFIX
from tests.deploy.files import DEPLOY

FOLDER = DEPLOY / "reference"
MADE = "<!-- Made by `python -m tests.deploy.reference`; a test keeps it true. -->\n"
WHO = {
    "anybody": "anybody in the channel",
    "members": "full members of the workspace",
    "operators": "operators",
    "halters": "operators",
}


def commands() -> str:
    rows = [
        (f"`/incident {name}{' ' if word.arguments else ''}{word.arguments}`", word.does, WHO[word.who])
        for name, word in SLASH_COMMANDS.items()
    ]
    about = (
        "`INC` may be left out while only one incident is open. `slack.operator_users` and `slack.operator_user_group` "
        "name the operators; by default they are the approvers."
    )
    return _page("Slack commands", about, ("command", "what it does", "who"), rows)


def scenarios() -> str:
    rows = [(f"`{scenario.name}`", scenario.what) for scenario in SCENARIOS.values()]
    about = "`incident-bot demo --scenario NAME [--unattended]` plays one branch of a runbook, to where its flow ends."
    return _page("Demo scenarios", about, ("scenario", "what goes wrong"), rows)


def settings() -> str:
    plain = {path: name for name, path in PLAIN_NAMES.items()}
    rows = [
        (f"`{plain.get(path) or PREFIX + '_'.join(path).upper()}`", f"`{'.'.join(path)}`", _default(info), _about(info))
        for path, info in LEAVES.items()
    ]
    about = (
        "Every setting is an environment variable, or a key of the YAML file given by `--settings`; the environment "
        "wins. `incident-bot doctor` checks them. Lists are separated by commas."
    )
    return _page("Settings", about, ("variable", "in the file", "default", "what it does"), rows)


def language() -> str:
    listed = "\n".join(words("")).strip()
    return (
        f"# The words of playbooks\n\n{MADE}\nAs `incident-bot playbook words` lists them.\n\n```text\n{listed}\n```\n"
    )


def report_schema() -> str:
    """The JSON that `incident-bot export --format json` writes."""
    return json.dumps(Exported.model_json_schema(mode="serialization"), indent=2) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands,
    "scenarios.md": scenarios,
    "settings.md": settings,
    "playbook-words.md": language,
    "report.schema.json": report_schema,
}

SCHEMAS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "playbook": lambda: playbook_schema(PROBES),
    "fragment": fragment_schema,
}


def _page(title: str, about: str, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    table = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {line} |" for line in lines)]
    return f"# {title}\n\n{MADE}\n{about}\n\n" + "\n".join(table) + "\n"


def _default(info: FieldInfo) -> str:
    value: Any = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "needed"
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        return f"{seconds / 60:g}m" if seconds >= 60 else f"{seconds:g}s"
    if value in (None, "", (), {}):
        return ""
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _about(info: FieldInfo) -> str:
    about = " ".join((info.description or "").split())
    written = str(info.examples[0]) if info.examples else ""
    # A note follows a comma; an expression and a list have commas of their own.
    value, _, note = (written, "", "") if "(" in written or written.startswith("[") else written.partition(", ")
    example = f"For example `{value}`{f' ({note})' if note else ''}." if value else ""
    return " ".join(filter(None, (about, example)))


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
    for kind, schema in SCHEMAS.items():
        made = json.dumps(schema(), indent=2, ensure_ascii=False)
        (packaged_playbooks() / f"{kind}.schema.json").write_text(f"{made}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
