"""Makes untrusted text harmless: text from an alert, a log, the cluster or a person is only displayed.

Nothing may ping a channel, disguise a link, end a code span, or hide characters. Cutting never splits an escape.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from textwrap import shorten
from typing import TypeGuard

from bot.domain.kernel.runbook import Runbook

# Controls but tab and newline, soft hyphens, bidirectional overrides, zero-width characters, tags, lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAKS = re.compile(r"[\r\n\t\v\f\u0085\u2028\u2029]+")
_BROADCAST = re.compile(r"@(?=(?:channel|here|everyone|group)\b)", re.IGNORECASE)
_BROKEN_AT = "@\u2060"
"""A word joiner keeps `@channel` readable and makes it a word that Slack does not know."""
_USER = re.compile(r"[UW][A-Z0-9]{1,20}")
_CHANNEL = re.compile(r"[CG][A-Z0-9]{1,20}")
_GROUP = re.compile(r"S[A-Z0-9]{1,20}")
_MENTION = re.compile(r"<@([UW][A-Z0-9]{1,20})>")
_ESCAPED_MENTION = re.compile(r"&lt;@([UW][A-Z0-9]{1,20})&gt;")
_ESCAPED_CHANNEL = re.compile(r"&lt;#([CG][A-Z0-9]{1,20})&gt;")
_ESCAPED_DATE = re.compile(r"&lt;(!date\^[0-9]{1,12}\^[{}a-z_ ]{1,60}\|[0-9A-Za-z: -]{1,40})&gt;")
"""Without an address: a date may also carry a link."""
_CODE = re.compile(r"ˋ([^ˋ\n]{1,120})ˋ")
_FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z0-9-]*(?: \d+(?:\.\d+)?)?(?![\w-])")


def line(text: object, limit: int = 300) -> str:
    """One line of mrkdwn."""
    return _cut(_escaped(_on_one_line(text)), limit)


def prose(text: object, limit: int = 2_000, *, people: Collection[str] = ()) -> str:
    """mrkdwn that may have several lines and code spans; mentions of `people`, who take part in the run, stay."""
    lines = (part.strip() for part in _visible(text).replace("\r\n", "\n").split("\n"))
    escaped = _CODE.sub(r"`\1`", _cut(_escaped("\n".join(part for part in lines if part)), limit))
    return _mentioning(escaped, people)


def announcement(text: object, limit: int = 3_000, *, people: Collection[str] = ()) -> str:
    """Text for a channel, where a mention notifies: only mentions of `people` stay; so do code spans and dates."""
    shown = _ESCAPED_DATE.sub(r"<\1>", _CODE.sub(r"`\1`", _cut(_escaped(_visible(text)), limit)))
    return _mentioning(shown, people)


def mentioned(text: str) -> frozenset[str]:
    """The people mentioned in mrkdwn, or in text that is not escaped yet."""
    return frozenset(_MENTION.findall(text))


def whisper(text: object, limit: int = 3_000) -> str:
    """Text that one person alone sees: its mentions notify no one, so they stay; so do code spans."""
    shown = _ESCAPED_MENTION.sub(r"<@\1>", _CODE.sub(r"`\1`", _cut(_escaped(_visible(text)), limit)))
    return _ESCAPED_CHANNEL.sub(r"<#\1>", shown)


def code(text: object, limit: int = 120) -> str:
    """A code span on one line."""
    return f"`{line(text, limit) or '–'}`"


def flags_as_code(shown: str) -> str:
    """Shows each flag, with its number, as code. `shown` is escaped and has no code spans."""
    return _FLAG.sub(r"`\g<0>`", shown)


def code_block(lines: Iterable[str], limit: int) -> str:
    """A code block of whole lines; its last line counts those that do not fit."""
    kept: list[str] = []
    every = [_escaped(_BREAKS.sub(" ", _visible(each))) for each in lines]
    room = limit - len("```\n\n```") - len("… 1000 more")
    for each in every:
        if (room := room - len(each) - 1) < 0:
            kept.append(f"… {len(every) - len(kept)} more")
            break
        kept.append(each)
    return "```\n" + "\n".join(kept) + "\n```"


def plain(text: object, limit: int) -> str:
    """Text of a `plain_text` object. Slack parses no markup in it; angle brackets are still replaced."""
    shown = _on_one_line(text).replace("<", "‹").replace(">", "›")
    shown = _BROADCAST.sub(_BROKEN_AT, shown)
    return (shown if len(shown) <= limit else shown[: limit - 1].rstrip() + "…") or "–"


def cut_at_a_word(text: str, limit: int) -> str:
    """Text that has to be cut ends with a whole word, and says by "…" that more follows."""
    return shorten(text, limit, placeholder=" …") if len(text) > limit else text


def whole_words(text: str, limit: int) -> str:
    """As `line`, cut at a word."""
    return line(cut_at_a_word(text, limit), limit)


def mention(user: str) -> str:
    """A person by id; anything else is shown as text."""
    return f"<@{user}>" if _USER.fullmatch(user) else line(user, 80) or "somebody"


def is_person(user: str) -> bool:
    """Whether it is a Slack user id; a user of the command line has none."""
    return _USER.fullmatch(user) is not None


def channel_mention(channel: str) -> str:
    return f"<#{channel}>" if _CHANNEL.fullmatch(channel) else line(channel, 80)


def of_id(member: str) -> str:
    """Mentions a user or a user group by its id."""
    return group_mention(member) if member.startswith("S") else mention(member)


def group_mention(group: str) -> str:
    return f"<!subteam^{group}>" if _GROUP.fullmatch(group) else line(group, 80)


def is_link(url: str | None) -> TypeGuard[str]:
    """Whether it is safe to use as a link address in Slack."""
    return url is not None and url.startswith(("https://", "http://")) and not set(url) & set("<>| \n")


def link(text: str, url: str | None) -> str:
    """Escaped text as a link if the address is safe, else as it is."""
    if not is_link(url):
        return text
    # Slack unescapes addresses too: without this, `&lt;` in a query would become `<`.
    return f"<{url.replace('&', '&amp;')}|{text.replace('|', '¦')}>"


def runbook_step(runbook: Runbook | None) -> str:
    """The step of the runbook, linked to its text; empty without one."""
    return link(line(runbook.step, 120), runbook.link) if runbook else ""


def _on_one_line(text: object) -> str:
    shown = _visible(text)
    return (_BREAKS.sub(" ", shown) if "\n" in shown else shown).strip()


def _visible(text: object) -> str:
    shown = str(text)
    if shown.isprintable():  # as most are: no break, control or format character
        return shown
    return _UNSEEN.sub("", _BREAKS.sub(lambda found: "\n" if "\n" in found[0] else " ", shown))


def _mentioning(escaped: str, people: Collection[str]) -> str:
    return _ESCAPED_MENTION.sub(lambda found: f"<@{found[1]}>" if found[1] in people else found[0], escaped)


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("`", "ˋ")
    return _BROADCAST.sub(_BROKEN_AT, text) if "@" in text else text


def _cut(escaped: str, limit: int) -> str:
    if len(escaped) <= limit:
        return escaped
    cut = escaped[: limit - 1]
    if cut.rfind("&") > cut.rfind(";"):
        cut = cut[: cut.rfind("&")]
    return cut.rstrip() + "…"
