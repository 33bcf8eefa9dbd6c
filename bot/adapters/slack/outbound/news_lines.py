"""What happened since people were last addressed, one line for each verdict and outcome."""

from __future__ import annotations

from collections.abc import Sequence

from bot.adapters.slack.escape import line, prose
from bot.adapters.slack.outbound.words import OUTCOMES, RESULTS, capitalized
from bot.domain.incidents.run import News

VERDICTS = {
    "held": ("✅", "Yes", "confirmed"),
    "not_held": ("❌", "No", "not confirmed"),
    "broke": ("❌", "No", "stopped"),
    "unknown": ("❓", "Not known", "not known"),
    "none_possible": ("•", "No change is recommended", "no change is recommended"),
}
"""Of a watch or a recommendation: the sign, the answer if its title is a question, and what became of it if not."""
WARNS = "⚠️ "
"""A playbook's text about a verdict begins with this where something is bad although the verdict holds."""


def news_lines(news: Sequence[News]) -> list[str]:
    """What happened since people were last addressed."""
    return [news_line(each) for each in news]


def news_line(each: News) -> str:
    title = line(each.title, 160)
    text = prose(each.text, 700).replace("\n", " ")
    if each.result not in VERDICTS:
        result = RESULTS.get(each.result, each.result.replace("_", " "))
        return f"{OUTCOMES.get(each.result, '•')} *{title}*: {line(result, 60)}" + (
            f". {capitalized(text)}" if text else ""
        )
    sign, answer, became = VERDICTS[each.result]
    if text.startswith(WARNS):
        sign, text = WARNS.strip(), text.removeprefix(WARNS)
        answer = "In part" if answer == "Yes" else answer
    if each.title.endswith("?"):
        return f"{sign} *{title}* {answer}" + (f": {text}" if text else ".")
    return f"{sign} *{title}*: {became}" + (f". {capitalized(text)}" if text else ".")
