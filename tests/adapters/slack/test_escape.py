"""External text is shown literally: it pings nobody, links nowhere, hides nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.adapters.slack.escape import (
    announcement,
    code,
    code_block,
    group_mention,
    line,
    mention,
    mentioned,
    plain,
    prose,
    whisper,
)

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("outside", "shown"),
    [
        pytest.param("<!channel> look", "&lt;!channel&gt; look", id="broadcast"),
        pytest.param("<https://evil.test|dashboard>", "&lt;https://evil.test|dashboard&gt;", id="disguised-link"),
        pytest.param("a & b &amp; c", "a &amp; b &amp;amp; c", id="ampersand"),
        pytest.param("@channel and @Here", "@\u2060channel and @\u2060Here", id="typed-broadcast"),
        pytest.param("mail@example.test", "mail@example.test", id="an-address-stays"),
        pytest.param("one\r\ntwo\n*three*", "one two *three*", id="one-line"),
        pytest.param("a\u202egnp.exe", "agnp.exe", id="right-to-left-override"),
        pytest.param("ad\u200bmin\ufeff", "admin", id="zero-width"),
        pytest.param("bell\x07 \x1b[31mred", "bell [31mred", id="control-characters"),
        pytest.param("\ud83d half", " half".strip(), id="lone-surrogate"),
        pytest.param("`rm -rf`", "ˋrm -rfˋ", id="backticks"),
    ],
)
def test_a_line_from_outside_is_only_read(outside: str, shown: str) -> None:
    assert line(outside) == shown


def test_a_code_span_cannot_be_ended_from_inside() -> None:
    assert code("a` *b* `c") == "`aˋ *b* ˋc`"
    assert code("") == "`–`"


def test_a_code_block_cannot_be_ended_from_inside_and_keeps_whole_lines() -> None:
    block = code_block(["```", "x" * 50, "y" * 50], 100)
    assert block == "```\nˋˋˋ\n" + "x" * 50 + "\n… 1 more\n```"


def test_a_mention_stays_only_for_people_whom_the_run_knows() -> None:
    assert prose("<@U0ANA> and <@U0EVE>", people={"U0ANA"}) == "<@U0ANA> and &lt;@U0EVE&gt;"


def test_a_code_span_in_prose_stays_one() -> None:
    assert prose("the queue moves into `waiting`") == "the queue moves into `waiting`"


def test_a_whisper_keeps_mentions_of_people_and_nothing_else() -> None:
    assert whisper("by <@U0ANA>, <!here>") == "by <@U0ANA>, &lt;!here&gt;"


@pytest.mark.parametrize(("user", "shown"), [("U0ANA", "<@U0ANA>"), ("!channel", "!channel"), ("", "somebody")])
def test_only_an_id_becomes_a_mention(user: str, shown: str) -> None:
    assert mention(user) == shown


def test_only_a_group_id_becomes_a_group_mention() -> None:
    assert group_mention("S0SERVING") == "<!subteam^S0SERVING>"
    assert group_mention("<!channel>") == "&lt;!channel&gt;"


def test_a_plain_text_has_no_brackets_and_is_never_empty() -> None:
    assert plain("<!channel> now", 50) == "‹!channel› now"
    assert plain("\u200b", 50) == "–"


def test_an_announcement_keeps_the_mentions_of_those_whom_it_may_notify() -> None:
    assert announcement("`x` by <@U0ANA> of <@U0EVE>", people={"U0ANA"}) == "`x` by <@U0ANA> of &lt;@U0EVE&gt;"
    assert mentioned("by <@U0ANA> of &lt;@U0EVE&gt;") == {"U0ANA"}


@pytest.mark.parametrize("escaping", [announcement, line, prose, whisper])
@given(text=st.text(st.sampled_from("&<>`\n @channelU0")), limit=st.integers(2, 40))
def test_cutting_never_splits_an_escape(escaping: Callable[[str, int], str], text: str, limit: int) -> None:
    shown = escaping(text, limit)
    assert len(shown) <= limit
    rest = shown.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "")
    assert "&" not in rest
