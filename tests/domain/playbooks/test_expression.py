"""Expressions: their results, their unknowns, and their error messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.domain.kernel.errors import ExpressionError
from bot.domain.playbooks.expressions.expression import Scope, Unknown, compile_expression, names_in
from bot.domain.signals.signal import Kind, Value

pytestmark = pytest.mark.fast

ONE_KIND = "Both sides must be of one kind; a number has no quotes."
TOO_EARLY = "Close each bracket, and write what follows the last sign."
SCOPE: Scope = {
    "kv_usage": "number",
    "thrash": "number",
    "by_replica": "by_replica",
    "stall": "flag",
    "restarts.oom": "flag",
    "restarts.count": "number",
    "picked.replica": "text",
    "settings.kv_ceiling": "number",
    "target.namespace": "text",
}


def value(source: str, **data: Value) -> Value | Unknown:
    dotted = {name.replace("__", "."): given for name, given in data.items()}
    return compile_expression(source, SCOPE, None).evaluate(dotted)


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        pytest.param("thrash > 0", {"thrash": 0.2}, True, id="whole-number-against-float"),
        pytest.param("thrash > 0", {"thrash": 1}, True, id="whole-number-in-data"),
        pytest.param(
            "kv_usage > settings.kv_ceiling", {"kv_usage": 0.95, "settings__kv_ceiling": 0.9}, True, id="dots"
        ),
        pytest.param("-thrash * 2 + 1 < 0 && !stall", {"thrash": 2.0, "stall": False}, True, id="arithmetic"),
        pytest.param("thrash / 2 / 2", {"thrash": 8.0}, 2.0, id="division-goes-left"),
        pytest.param("8 / (thrash / 2)", {"thrash": 4.0}, 4.0, id="division-by-brackets"),
        pytest.param("8 / -thrash", {"thrash": 4.0}, -2.0, id="division-by-a-negative"),
        pytest.param("thrash > 1 ? 'bad' : 'fine'", {"thrash": 2.0}, "bad", id="choice"),
        pytest.param("target.namespace == 'a b/2'", {"target__namespace": "a b/2"}, True, id="numbers-in-texts-stay"),
        pytest.param("picked.replica.startsWith('llm-1')", {"picked__replica": "llm-10"}, True, id="method"),
        pytest.param("picked.replica in ['a', 'b']", {"picked__replica": "b"}, True, id="one-of"),
        pytest.param("worst(by_replica)", {"by_replica": {"a": 1.0, "b": 2.0}}, "b", id="worst"),
        pytest.param("worst(by_replica)", {"by_replica": {"b": 2.0, "a": 2.0}}, "a", id="worst-of-equals-by-name"),
        pytest.param("best(by_replica)", {"by_replica": {"a": 1.0, "b": 2.0}}, "a", id="best"),
        pytest.param("median(by_replica)", {"by_replica": {"a": 1.0, "b": 2.0, "c": 9.0}}, 2.0, id="median"),
        pytest.param("count_above(by_replica, 1.0)", {"by_replica": {"a": 1.0, "b": 2.0, "c": 9.0}}, 2.0, id="count"),
        pytest.param("share(by_replica, 'a')", {"by_replica": {"a": 1.0, "b": 3.0}}, 0.25, id="share"),
        pytest.param("value_of(by_replica, 'b') + 1", {"by_replica": {"b": 3.0}}, 4.0, id="value-of"),
        pytest.param("size(by_replica) > 1", {"by_replica": {"a": 1.0, "b": 3.0}}, True, id="size-compares"),
        pytest.param("max(by_replica) + min(1, thrash)", {"by_replica": {"a": 5.0}, "thrash": 0.5}, 5.5, id="max-min"),
        pytest.param("round(2.5) + floor(1.9) + ceil(0.1) + abs(-1)", {}, 6.0, id="rounding"),
        pytest.param("cap_from_pool(0.9, 4064, 608)", {}, 6.0, id="the-cap-that-worked-in-the-captures"),
        pytest.param(
            "cap_from_lengths(0.9, 4064, 96, 513, 1.8, 0.33)", {}, 7.0, id="a-cap-from-the-lengths-of-the-captures"
        ),
    ],
)
def test_an_expression_gives_what_a_person_expects(source: str, data: Mapping[str, Value], expected: Value) -> None:
    assert value(source, **data) == expected


@pytest.mark.parametrize(
    ("source", "data", "expected"),
    [
        pytest.param("stall && thrash > 1", {"stall": False}, False, id="false-and-unknown-is-false"),
        pytest.param("thrash > 1 && stall", {"stall": False}, False, id="unknown-and-false-is-false"),
        pytest.param("thrash > 1 || stall", {"stall": True}, True, id="unknown-or-true-is-true"),
        pytest.param("stall || by_replica == by_replica", {"stall": True}, True, id="true-or-unknown-is-true"),
    ],
)
def test_what_is_missing_only_matters_where_the_answer_depends_on_it(
    source: str, data: Mapping[str, Value], expected: bool
) -> None:
    assert value(source, **data) is expected


@pytest.mark.parametrize(
    ("source", "data", "reason"),
    [
        pytest.param("thrash > 1", {}, "not known: thrash", id="missing"),
        pytest.param("!(thrash > 1)", {}, "not known: thrash", id="not-of-missing"),
        pytest.param("stall || thrash > 1", {"stall": False}, "not known: thrash", id="or-of-missing"),
        pytest.param("worst(by_replica) == 'a'", {}, "not known: by_replica", id="function-of-missing"),
        pytest.param("thrash > 1", {"thrash": math.nan}, "not known: thrash", id="nan-is-not-known"),
        pytest.param("thrash > 1", {"thrash": "much"}, "not known: thrash", id="wrong-kind-is-not-known"),
        pytest.param("thrash > 1", {"thrash": True}, "not known: thrash", id="a-flag-is-no-number"),
        pytest.param("thrash / thrash > 1", {"thrash": 0.0}, "division by zero", id="zero-by-zero"),
        pytest.param("1 / thrash > 1", {"thrash": 0.0}, "division by zero", id="one-by-zero"),
        pytest.param("worst(by_replica)", {"by_replica": {}}, "no replica could be read", id="worst-of-none"),
        pytest.param("median(by_replica)", {"by_replica": {}}, "no replica could be read", id="median-of-none"),
        pytest.param("count_above(by_replica, 1.0)", {"by_replica": {}}, "no replica could be read", id="count-none"),
        pytest.param("share(by_replica, 'a')", {"by_replica": {"a": 0.0}}, "there is no share", id="share-of-zero"),
        pytest.param(
            "value_of(by_replica, 'x')", {"by_replica": {"a": 0.0}}, "nothing is known of replica x", id="who"
        ),
        pytest.param("by_replica['x']", {"by_replica": {"a": 0.0}}, "Key not found", id="no-such-key"),
        pytest.param("cap_from_pool(0.9, 4064, thrash)", {"thrash": 0.0}, "no request finished", id="cap-of-nothing"),
        pytest.param("cap_from_pool(0.9, 100, 608)", {}, "not even one request", id="cap-below-one"),
        pytest.param(
            "cap_from_lengths(0.9, 4064, 96, 513, 1.8, thrash)", {}, "not known: thrash", id="cap-without-hit-share"
        ),
        pytest.param(
            "cap_from_lengths(0.9, 4064, 96, thrash, 1.8, 0)", {"thrash": 0.0}, "no request finished", id="no-lengths"
        ),
        pytest.param("thrash * 1e308 * 1e308", {"thrash": 1.0}, "not a number", id="overflow"),
    ],
)
def test_what_cannot_be_decided_is_unknown_with_its_reason(source: str, data: Mapping[str, Value], reason: str) -> None:
    answer = value(source, **data)
    assert isinstance(answer, Unknown)
    assert reason in answer.reason


def test_an_unknown_names_what_was_missing() -> None:
    answer = value("thrash > kv_usage && !stall", kv_usage=0.5)
    assert isinstance(answer, Unknown)
    assert answer.missing == ("stall", "thrash")


@pytest.mark.parametrize(
    ("source", "column", "what", "hint"),
    [
        ("", 1, "the expression is empty", ""),
        ("kv_usge > 1", 1, "unknown name 'kv_usge'", "Did you mean 'kv_usage'?"),
        ("1 < kv_usge", 5, "unknown name 'kv_usge'", "Did you mean 'kv_usage'?"),
        ("'é' == 'é' && kv_usge > 1", 15, "unknown name 'kv_usge'", "Did you mean 'kv_usage'?"),
        ("restarts.omo", 1, "unknown name 'restarts.omo'", "Did you mean 'restarts.oom'?"),
        ("restarts", 1, "'restarts' has parts: name one of them", "Did you mean 'restarts.oom'?"),
        ("stall and thrash > 1", 7, "unknown name 'and'", "Write &&."),
        ("not stall", 1, "unknown name 'not'", "Write !."),
        ("thrash = 1", 8, "'=' has no meaning here", "Write ==."),
        ("thrash > 1 and (usage > 1)", 12, "unknown word 'and'", "Write &&."),
        ("wurst(by_replica)", 1, "unknown function 'wurst'", "Did you mean 'worst'?"),
        ("picked.replica.startswith('a')", 16, "unknown method 'startswith'", "Did you mean 'startsWith'?"),
        ("worst(thrash) == 'a'", 6, "'worst' does not work with a number", "It takes numbers by replica."),
        ("thrash > 'a'", 8, "'>' does not work with a number and a text", ONE_KIND),
        ("thrash > 5m", 10, "'5m' has a unit", "Write seconds, or name a setting."),
        ("thrash > 'a", 10, "the text that begins here is not closed", "Close it with '."),
        ("(thrash > 1", 11, "the expression ends too early", TOO_EARLY),
        ("thrash > 1)", 11, "')' does not fit here", "Open and close each bracket."),
        ("worst(by_replica / (2", 20, "this bracket is not closed", "Write its end."),
        ("size__(by_replica)", 1, "unknown function 'size__'", "Did you mean 'size'?"),
        ("(" * 30 + "stall" + ")" * 30, 21, "more than 20 brackets inside each other", ""),
        ("+".join(["thrash"] * 100), 1, "the expression is too deep", "Split it over two states."),
        ("x" * 1001, 1, "the expression is longer than 1000 characters", "Split it over two states."),
        ("[1, 2]", 1, "the expression gives LIST<DOUBLE>, which nothing here can use", ""),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_column_and_a_hint(source: str, column: int, what: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source, SCOPE, None)
    assert (caught.value.column, caught.value.what, caught.value.hint) == (column, what, hint)


@pytest.mark.parametrize(
    ("source", "wants", "what"),
    [
        ("thrash", "flag", "the expression gives a number, but true or false is needed here"),
        ("stall", "number", "the expression gives true or false, but a number is needed here"),
        ("worst(by_replica)", "flag", "the expression gives a text, but true or false is needed here"),
    ],
)
def test_an_expression_must_give_what_its_place_needs(source: str, wants: Kind, what: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source, SCOPE, wants)
    assert caught.value.what == what


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("has_flag('0.32.0', '--max-num-seqs')", True, id="in-the-table"),
        pytest.param("has_flag('v0.32.1+cu129', '--max-num-active-seqs')", True, id="a-build-is-its-release"),
        pytest.param("has_flag('0.30.0', '--max-num-active-seqs')", False, id="yet-to-come"),
        pytest.param("has_flag('0.6.6', '--swap-space')", True, id="as-long-as-it-was-there"),
        pytest.param("has_flag('0.12.0', '--swap-space')", False, id="taken-and-not-heeded"),
        pytest.param("has_flag('0.20.2', '--swap-space')", False, id="removed"),
        pytest.param("version_at_least('0.9.2', '0.12')", False, id="numbers-not-texts"),
        pytest.param("version_at_least('0.12.0', '0.12')", True, id="the-same"),
        pytest.param("version_at_least('1.0', '0.12')", True, id="newer"),
    ],
)
def test_what_an_engine_version_has_is_known(source: str, expected: bool) -> None:
    assert value(source) is expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param("has_flag('', '--max-num-seqs')", "'' names no release", id="no-version"),
        pytest.param("has_flag('0.31.0', '--max-num-active-seqs')", "nothing is known of", id="between-two-releases"),
        pytest.param("has_flag('0.77.0', '--watermark')", "was not checked", id="newer-than-what-was-read"),
        pytest.param("has_flag('0.14.0', '--no-such-flag')", "nothing is known of --no-such-flag", id="strange-flag"),
        pytest.param("version_at_least('nightly', '0.12')", "'nightly' names no release", id="strange-version"),
    ],
)
def test_what_nobody_knows_of_an_engine_version_is_unknown(source: str, reason: str) -> None:
    answer = value(source)
    assert isinstance(answer, Unknown)
    assert reason in answer.reason


def test_only_names_of_the_scope_count_as_names() -> None:
    expression = compile_expression("picked.replica.contains('thrash') && kv_usage > min(1, 2)", SCOPE, "flag")
    assert expression.names == {"picked.replica", "kv_usage"}
    assert names_in("kv_usage > 1 && 'thrash' != picked.replica").keys() == {"kv_usage", "picked.replica"}


@given(st.text(max_size=60))
def test_no_text_crashes_the_compiler(text: str) -> None:
    with suppress(ExpressionError):
        compile_expression(text, SCOPE, None)


WORDS = (
    "thrash stall by_replica picked.replica 1 0 0.5 'a' worst size max value_of in true "
    "( ) [ ] , + - * / % > == && || ! ? : ."
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=14))
def test_whatever_compiles_evaluates_to_its_kind_or_to_unknown(words: list[str]) -> None:
    try:
        expression = compile_expression(" ".join(words), SCOPE, None)
    except ExpressionError:
        return
    full: dict[str, Value] = {"thrash": 0.0, "stall": True, "by_replica": {"a": 1.0}, "picked.replica": "a"}
    kinds = {"number": float, "flag": bool, "text": str, "by_replica": dict}
    for data in (full, {}):
        answer = expression.evaluate(data)
        assert isinstance(answer, Unknown | kinds[expression.kind])
