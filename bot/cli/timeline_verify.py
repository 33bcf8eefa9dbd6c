"""`incident-bot timeline verify`: is this timeline the one that was written? Compared with its store and with Slack."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bot.adapters.slack.client import web_client, web_session
from bot.adapters.slack.outbound.posted_heads import posted_heads
from bot.cli import stored
from bot.cli.failures import CommandError
from bot.domain.kernel.errors import MessengerError, SettingsError, StorageUnavailableError
from bot.domain.kernel.timeline import Chained, StoredHead
from bot.domain.kernel.timeline_check import Compared, Verdict, of_chain, of_slack, of_store
from bot.domain.reports import report_of
from bot.domain.reports.facts import Report
from bot.domain.reports.page import Exported
from bot.settings import StorageSettings, load_settings, load_storage_settings

MARKS: dict[Verdict, str] = {"agrees": "✔", "differs": "✖", "not_compared": "?"}
SUMMARY = {
    "incident", "target", "severity", "opened_at", "first_act_at", "closed_at", "ending", "applied", "decisions",
    "calls", "entries",
}  # fmt: skip
"""What a report says of an incident in the same way in every version."""
MATCHES, DIFFERS, NOT_CHECKED = 0, 1, 2


@dataclass(frozen=True)
class Given:
    """The timeline to check."""

    incident: str
    entries: Sequence[Chained]
    is_whole: bool
    """Nothing was written after its last entry; more may have followed an exported file."""


async def verified(incident: str, file: Path | None) -> tuple[Given, list[Compared]]:
    settings = load_storage_settings(os.environ, file)
    kept, head = await _stored(incident, settings)
    if not kept and head is None:
        raise CommandError(f"{incident}: not in this Redis (tag '{settings.redis_tag}')")
    given = Given(incident, kept, is_whole=True)
    return given, [of_chain(kept), of_store(kept, kept, head), await _slack(given, file)]


async def verified_file(path: Path, file: Path | None) -> tuple[Given, list[Compared]]:
    given, report = _read(path)
    return given, [
        of_chain(given.entries),
        _of_report(report, given.entries),
        await _store(given, file),
        await _slack(given, file),
    ]


def _of_report(report: Report, entries: Sequence[Chained]) -> Compared:
    """Whether what the file says beside its entries is what they say. A program may read only the former."""
    own, found = report.model_dump(include=SUMMARY), report_of(entries).model_dump(include=SUMMARY)
    wrong = [name.replace("_", " ") for name in sorted(SUMMARY) if own[name] != found[name]]
    if wrong:
        return Compared("report", "differs", f"its entries do not say so: {', '.join(wrong)}")
    return Compared("report", "agrees", "says what its entries say")


def _incomplete(error: SettingsError) -> str:
    return f"the settings are not complete ({error.problems[0]})"


def _read(path: Path) -> tuple[Given, Report]:
    try:
        exported = Exported.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        hint = "Only the JSON report can be compared: incident-bot export INC-1 --format json --out INC-1.json"
        raise CommandError(f"{path} is not an exported timeline in JSON. {hint}") from error
    return Given(exported.report.incident, exported.timeline, is_whole=False), exported.report


async def _stored(incident: str, settings: StorageSettings) -> tuple[Sequence[Chained], StoredHead | None]:
    redis_url = settings.redis_url.get_secret_value()
    return await stored.load_whole_timeline(redis_url, incident, tag=settings.redis_tag)


async def _store(given: Given, file: Path | None) -> Compared:
    try:
        kept, head = await _stored(given.incident, load_storage_settings(os.environ, file))
    except SettingsError as error:
        return Compared("store", "not_compared", _incomplete(error))
    except StorageUnavailableError as error:
        return Compared("store", "not_compared", str(error))
    return of_store(given.entries, kept, head)


async def _slack(given: Given, file: Path | None) -> Compared:
    if not given.entries:
        return Compared("Slack", "not_compared", "there is no entry")
    report = report_of(given.entries)
    try:
        settings = load_settings(os.environ, file)
        async with web_session() as session:
            token = settings.slack.bot_token.get_secret_value()
            posted = await posted_heads(
                web_client(token, session, base_url=settings.slack.base_url),
                deployment=settings.redis_tag,
                incident_id=given.incident,
                channels=(*settings.every_channel, *(head.channel for head in report.heads)),
                since=report.opened_at,
            )
    except SettingsError as error:
        return Compared("Slack", "not_compared", _incomplete(error))
    except MessengerError as error:
        return Compared("Slack", "not_compared", str(error))
    return of_slack(given.entries, posted, is_whole=given.is_whole)


def comparison_lines(compared: Sequence[Compared]) -> Iterator[str]:
    for each in compared:
        yield f"{MARKS[each.verdict]} {each.about:<5}  {'not compared: ' * (each.verdict == 'not_compared')}{each.text}"
    yield ("verified", "it does not match", "not everything could be compared")[exit_code(compared)]


def exit_code(compared: Sequence[Compared]) -> int:
    verdicts = {each.verdict for each in compared}
    if "differs" in verdicts:
        return DIFFERS
    return NOT_CHECKED if "not_compared" in verdicts else MATCHES
