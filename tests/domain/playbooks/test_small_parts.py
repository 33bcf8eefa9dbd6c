"""Durations, settings, templates and matchers: the small parts of the language."""

from __future__ import annotations

import pytest

from bot.domain.kernel.durations import seconds
from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.expression import Scope, Unknown
from bot.domain.playbooks.expressions.template import compile_template
from bot.domain.playbooks.language import Setting
from bot.domain.playbooks.matchers import MatcherError, parse_matchers
from bot.domain.playbooks.mistakes import Mistake
from bot.domain.playbooks.settings import SettingValue, effective_settings
from bot.domain.signals.signal import Value

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1.5h", 5400), ("2d", 172800), ("0s", 0)],
)
def test_a_duration_reads_as_people_write_it(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "-5m", "5m ", "1e3s", "5x", "5m3", "٥m"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(text)


# --- settings --------------------------------------------------------------------------------------------------------

DECLARED = {
    "window": Setting(default="5m", min="10s"),
    "ratio": Setting(default=0.1, min=0.02, max=1.0, why="captures"),
    "depth": Setting(default=8.0),
    "careful": Setting(default=True),
    "model": Setting(default="tiny"),
}


def effective(**overrides: str) -> tuple[dict[str, SettingValue], list[Mistake]]:
    mistakes: list[Mistake] = []
    return effective_settings(DECLARED, overrides, mistakes.append), mistakes


def test_settings_have_their_defaults_and_durations_become_seconds() -> None:
    assert effective() == ({"window": 300.0, "ratio": 0.1, "depth": 8.0, "careful": True, "model": "tiny"}, [])


def test_an_override_wins() -> None:
    values, mistakes = effective(window="12s", ratio="0.5", depth="9", careful="false", model="big")
    expected = {"window": 12.0, "ratio": 0.5, "depth": 9.0, "careful": False, "model": "big"}
    assert (values, mistakes) == (expected, [])


@pytest.mark.parametrize(
    ("override", "what", "hint"),
    [
        ({"window": "5s"}, "5s is below the least allowed, 10s", "Write at least 10s."),
        ({"ratio": "2"}, "2 is above the most allowed, 1", "Write a value from 0.02 to 1."),
        ({"window": "300"}, "'300' is not a duration", "Write 90s, 5m or 1h30m."),
        ({"ratio": "much"}, "'much' is not a number", ""),
        ({"ratio": "nan"}, "'nan' is not a number", ""),
        ({"depth": "inf"}, "'inf' is not a number", ""),
        ({"depth": "1e999"}, "'1e999' is not a number", ""),
        ({"careful": "maybe"}, "'maybe' is neither true nor false", ""),
        ({"windw": "5m"}, "no setting 'windw' to override", "Did you mean 'window'?"),
    ],
)
def test_an_override_that_cannot_be_says_why(override: dict[str, str], what: str, hint: str) -> None:
    _, mistakes = effective(**override)
    assert [(mistake.what, mistake.hint) for mistake in mistakes] == [(what, hint)]


def test_overrides_of_unknown_settings_are_reported_in_the_same_order_each_time() -> None:
    _, mistakes = effective(**dict.fromkeys("fbdaec", "1"))
    assert [mistake.what[len("no setting '")] for mistake in mistakes] == [*"abcdef"]


@pytest.mark.parametrize("limit", ["nan", "inf", "-inf"])
def test_a_limit_is_a_finite_number(limit: str) -> None:
    mistakes: list[Mistake] = []
    effective_settings({"depth": Setting(default=8.0, max=limit)}, {}, mistakes.append)
    assert [mistake.what for mistake in mistakes] == [f"'{limit}' is not a number, as the default is"]


# --- templates -------------------------------------------------------------------------------------------------------

SCOPE: Scope = {"cap": "number", "picked.replica": "text"}
DATA: dict[str, Value] = {"cap": 6.0, "picked.replica": "llm-1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param("", "", id="empty"),
        pytest.param("${cap}", 6, id="whole-value-keeps-its-type"),
        pytest.param("${cap / 4}", 1.5, id="fraction"),
        pytest.param("${cap > 5}", True, id="flag"),
        pytest.param("--max=${cap} on ${picked.replica}", "--max=6 on llm-1", id="embedded-gives-a-text"),
        pytest.param("${picked.replica == '}' ? 'a' : 'b'}", "b", id="a-brace-in-a-text-does-not-end-it"),
        pytest.param("$${cap} $5", "${cap} $5", id="escaped"),
    ],
)
def test_a_template_renders(text: str, expected: object) -> None:
    rendered = compile_template(text, SCOPE).render(DATA)
    assert rendered == expected
    assert type(rendered) is type(expected)


@pytest.mark.parametrize(
    ("picked", "read"),
    [("engine_died", "It was engine died"), ("llm-7f_x", "It was llm-7f_x"), ("num of a_b", "It was num of a_b")],
)
def test_a_kind_that_a_probe_names_is_read_as_words(picked: str, read: str) -> None:
    assert compile_template("It was ${picked.replica}", SCOPE).in_words({"picked.replica": picked}) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("It crashed.${cap > 1 ? ' Often.' : ''} What now?", "It crashed. What now?", id="or nothing"),
        pytest.param("It crashed.${cap > 1 ? '' : ' Once.'} What now?", "It crashed. What now?", id="nothing, or"),
        pytest.param("The cost is ${cap > 1 ? 'high' : 'low'}.", "The cost is not known.", id="one word or another"),
        pytest.param("${cap} requests", "not known requests", id="a value"),
    ],
)
def test_words_that_an_unknown_condition_adds_are_left_out(text: str, read: str) -> None:
    assert compile_template(text, SCOPE).in_words({}) == read


@pytest.mark.parametrize(
    ("text", "read"),
    [
        pytest.param("KV cache 99% (${cap} before), now", "KV cache 99%, now", id="one value"),
        pytest.param("Full (${cap} of ${cap}) now", "Full now", id="two values"),
        pytest.param("Full (${cap} of ${picked.replica}) now", "Full (not known of llm-0) now", id="one is known"),
        pytest.param("${picked.replica} (the worst) has ${cap}", "llm-0 (the worst) has not known", id="none in it"),
        pytest.param("(${cap}) and (${picked.replica})", " and (llm-0)", id="each by itself"),
    ],
)
def test_words_in_parentheses_in_which_nothing_is_known_are_left_out(text: str, read: str) -> None:
    assert compile_template(text, SCOPE).in_words({"picked.replica": "llm-0"}) == read


def test_a_template_with_one_unknown_is_unknown() -> None:
    template = compile_template("${cap} of ${picked.replica}", SCOPE)
    assert template.names == {"cap", "picked.replica"}
    assert template.render({"cap": 6.0}) == Unknown("not known: picked.replica", ("picked.replica",))


@pytest.mark.parametrize(
    ("text", "column", "what"),
    [
        ("a ${cpa} b", 5, "unknown name 'cpa'"),
        ("${cap} ${1 +}", 12, "the expression ends too early"),
        ("a ${cap", 3, "this ${ is not closed"),
        ("${}", 3, "the expression is empty"),
    ],
)
def test_a_fault_in_a_template_has_its_column_in_the_whole_text(text: str, column: int, what: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_template(text, SCOPE)
    assert (caught.value.column, caught.value.what) == (column, what)


# --- matchers --------------------------------------------------------------------------------------------------------

ALERT = {"alertname": "VLLMKVCacheHigh", "severity": "page", "note": 'a "b", c'}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('alertname="VLLMKVCacheHigh"', True),
        ('alertname=~".*KVCache.*",severity!="info"', True),
        ('alertname=~"KVCache"', False),  # anchored at both ends
        ('alertname!~"KVCache"', True),
        ('severity=~"page|ticket"', True),
        ('severity="page", alertname=~"Other.*"', False),
        ('team=""', True),  # an absent label is an empty one
        ('team!=""', False),
        ('note="a \\"b\\", c"', True),
        (' severity = "page" , ', True),
    ],
)
def test_matchers_match_as_in_alertmanager(line: str, expected: bool) -> None:
    assert all(matcher.matches(ALERT) for matcher in parse_matchers(line)) is expected


@pytest.mark.parametrize(
    ("line", "column", "what"),
    [
        ("", 1, "the line has no matcher"),
        ("alertname=KV", 1, "this is not a matcher"),
        ('a="b" c="d"', 1, "this is not a matcher"),
        ('a="b", severity', 8, "this is not a matcher"),
        ('a=~"("', 4, "the regular expression is not valid: missing ): ("),
        ('a=~"(?<=x)y"', 4, "the regular expression is not valid: invalid perl operator: (?<="),
    ],
)
def test_a_line_of_matchers_that_is_none_says_where(line: str, column: int, what: str) -> None:
    with pytest.raises(MatcherError) as caught:
        parse_matchers(line)
    assert (caught.value.column, caught.value.what) == (column, what)


def test_a_backslash_before_the_end_of_a_text_ends_no_expression() -> None:
    source = r't.contains("\\") ? "yes" : "no"'
    assert compile_template(f"${{{source}}}", {"t": "text"}).render({"t": "a\\b"}) == "yes"
