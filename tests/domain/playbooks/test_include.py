"""Fragments: the playbook after expansion, refusals, and the locations of faults."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.adapters.yaml_playbooks import StoredPlaybooks, check_text, fragments_of, load_text
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.edges import successors
from bot.domain.playbooks.language import AskState, ReadState, WatchState
from tests.domain.playbooks.including import HOST, VERIFY, marked

pytestmark = pytest.mark.fast


def faults(host: str = HOST, **fragments: str) -> list[str]:
    found = check_text(host, {}, file="p.yaml", fragments=fragments_of({"verify": VERIFY} | fragments)).faults
    return [str(fault) for fault in found]


def test_a_fragment_becomes_states_of_the_playbook() -> None:
    playbook = load_text(HOST, fragments={"verify": VERIFY})
    load, wait, ask = (playbook.state(f"calm_{name}") for name in ("load", "wait", "ask"))
    assert isinstance(load, ReadState)
    assert isinstance(wait, WatchState)
    assert isinstance(ask, AskState)
    assert load.title == "Is thrash < 0.01 && usage < baseline.usage?"
    assert successors(playbook.playbook, "calm_load") == ("calm_wait", "calm_ask")
    assert wait.watch == {"calm": "(thrash < 0.01 && usage < baseline.usage) && results.calm_load.load > 1"}
    assert (wait.for_, wait.held, wait.not_held) == ("settings.calm_for", "over", "question")
    assert ask.choices["again"].to == "look"
    assert successors(playbook.playbook, "cap") == ("calm_load", "question")
    assert playbook.settings["calm_for"] == 300


def test_what_the_playbook_defines_counts_more_than_what_the_fragment_brings() -> None:
    own = HOST.replace("settings:\n", "settings:\n  calm_for: {default: 7m}\n")
    assert load_text(own, fragments={"verify": VERIFY}).settings["calm_for"] == 420


def test_a_limit_of_the_include_is_one_of_its_start() -> None:
    playbook = load_text(LIMITED, fragments={"verify": VERIFY})
    load, wait = playbook.state("calm_load"), playbook.state("calm_wait")
    assert isinstance(load, ReadState)
    assert isinstance(wait, WatchState)
    assert (load.at_most, load.beyond, wait.at_most) == (3, "question", None)


LIMITED = HOST.replace("    # more\n", "    at_most: 3\n    beyond: question\n")


def test_a_limit_of_the_include_is_handed_on_to_a_start_that_is_an_include() -> None:
    inner = VERIFY.replace("fragment: verify", "fragment: inner")
    outer = """\
language: 1
fragment: verify
parameters: {calm: {}, choices: {}}
exits: {verified: it is fine, bad: it is not}
start: first
states:
  first:
    include: inner
    with: {calm: parameters.calm, choices: parameters.choices}
    exits: {verified: exits.verified, bad: exits.bad}
"""
    fragments = {"verify": outer, "inner": inner}
    load = load_text(LIMITED, fragments=fragments).state("calm_first_load")
    assert isinstance(load, ReadState)
    assert (load.at_most, load.beyond) == (3, "question")
    doubled = outer.replace("    include: inner\n", "    include: inner\n    at_most: 2\n    beyond: exits.bad\n")
    text, place = marked(HOST, "    # more\n", "    «at_most: 3\n    beyond: question\n")
    fault = f"p.yaml:{place}: the start of the fragment 'verify' has its own limit. Delete one of the two."
    assert faults(text, **{**fragments, "verify": doubled}) == [fault]


@pytest.mark.parametrize("own", ["at_most: 2, beyond: exits.bad", "at_most: 2", "beyond: exits.bad"])
def test_a_limit_of_the_include_and_one_of_its_start_are_a_fault(own: str) -> None:
    """Only one could hold, and the other would be dropped without a word."""
    lines = "".join(f"    {line}\n" for line in own.split(", "))
    verify = VERIFY.replace("    read: [load]\n", f"    read: [load]\n{lines}")
    text, place = marked(HOST, "    # more\n", "    «at_most: 3\n    beyond: question\n")
    fault = f"p.yaml:{place}: the start of the fragment 'verify' has its own limit. Delete one of the two."
    assert fault in faults(text, verify=verify)


def test_a_run_goes_on_with_an_include_whose_limit_had_no_effect() -> None:
    own = VERIFY.replace("    read: [load]\n", "    read: [load]\n    at_most: 2\n    beyond: exits.bad\n")
    begun = Bundle.of(load_text(HOST, fragments={"verify": own})).stored()
    kept = json.loads(begun["playbooks"])
    kept["small"]["source"] = LIMITED
    again = StoredPlaybooks()({**begun, "playbooks": json.dumps(kept)}).playbooks["small"].state("calm_load")
    assert isinstance(again, ReadState)
    assert again.at_most == 2


def test_the_runbook_of_an_include_is_that_of_its_states_without_one() -> None:
    host = HOST.replace("    # more\n", "    runbook: {step: 4 Verify, url: https://wiki/4}\n")
    verify = VERIFY.replace("    ask: What now?\n", "    ask: What now?\n    runbook: {step: 4.1 Ask}\n")
    playbook = load_text(host, fragments={"verify": verify})
    steps = {name: state.runbook.step for name, state in playbook.playbook.states.items() if state.runbook}
    assert steps == {"calm_load": "4 Verify", "calm_ask": "4.1 Ask", "calm_wait": "4 Verify"}


def test_the_runbook_of_the_innermost_include_counts() -> None:
    outer = """\
language: 1
fragment: outer
exits: {out: done}
start: inner
states:
  inner: {include: leaf, exits: {out: plain}, runbook: {step: inner}}
  plain: {include: leaf, exits: {out: exits.out}}
"""
    leaf = "language: 1\nfragment: leaf\nexits: {out: done}\nstart: a\nstates:\n  a: {ask: A?, choices: {}}\n"
    leaf = leaf.replace("choices: {}", "choices: {b: {label: B, to: exits.out}}")
    host = "language: 1\nplaybook: p\ntitle: t\nopens: by_hand\nstart: a\nstates:\n"
    host += "  a: {include: outer, exits: {out: over}, runbook: {step: outer}}\n  over: {end: fixed}\n"
    states = load_text(host, fragments={"outer": outer, "leaf": leaf}).playbook.states
    steps = {name: state.runbook.step for name, state in states.items() if state.runbook}
    assert steps == {"a_inner_a": "inner", "a_plain_a": "outer"}


def test_a_fault_in_the_runbook_of_an_include_is_reported_once_and_there() -> None:
    text, place = marked(HOST, "    # more\n", "    runbook: {«stp: 4, step: four}\n")
    assert faults(text) == [f"p.yaml:{place}: unknown key 'stp'. Did you mean 'step'?"]


def test_fragments_may_include_fragments() -> None:
    outer = """\
language: 1
fragment: outer
parameters: {good: {}, then: {default: wait}}
exits: {out: done}
start: inner
states:
  inner:
    include: verify
    with: {calm: '!(parameters.good)', choices: {a: {label: Wait, to: parameters.then}}}
    exits: {verified: exits.out, bad: wait}
  wait:
    watch: {calm: results.inner_load.load > 2}
    for: 1s
    within: 5m
    held: exits.out
    unknown: inner
    at_most: 2
    beyond: exits.out
"""
    host = HOST.replace("include: verify", "include: outer").replace("verified: over, bad: question", "out: over")
    host = host.replace("      choices: {again: {label: Look again, to: look}}\n", "").replace(
        "  calm: thr", "  good: thr"
    )
    playbook = load_text(host, fragments={"verify": VERIFY, "outer": outer})
    inner, wait = playbook.state("calm_inner_wait"), playbook.state("calm_wait")
    assert isinstance(inner, WatchState)
    assert isinstance(wait, WatchState)
    calm = "!((thrash < 0.01 && usage < baseline.usage))"
    assert inner.watch["calm"] == f"({calm}) && results.calm_inner_load.load > 1"
    assert (inner.held, inner.not_held) == ("over", "calm_wait")
    assert successors(playbook.playbook, "calm_inner_ask") == ("calm_wait",)
    assert (wait.watch["calm"], wait.unknown) == ("results.calm_inner_load.load > 2", "calm_inner_load")


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("include: verify", "include: «verfy", "unknown fragment 'verfy'. Did you mean 'verify'?"),
        ("bad: question", "«bd: question", "the fragment 'verify' has no exit 'bd'. Did you mean 'bad'?"),
        ("to: look}}\n    exits", "to: «lok}}\n    exits", "unknown state 'lok'. Did you mean 'look'?"),
        ("calm: thrash < 0.01", "calm: «trash < 0.01", "unknown name 'trash'. Did you mean 'thrash'?"),
        ("calm: thrash < 0.01", "calm: thrash < «trash", "unknown name 'trash'. Did you mean 'thrash'?"),
        ("  calm:\n    include: verify", "  «calm:\n    includes: verify", "a state needs one of "),
        ("    # more\n", "    «runbok: {step: 3}\n", "unknown key 'runbok'. Did you mean 'runbook'?"),
        ("with:\n      calm: ", "with:\n      «clam: ", "the fragment 'verify' has no parameter 'clam'"),
        ("read: [usage]\n    choices", "read: [«parameters.x]\n    choices", "only a fragment has parameters"),
    ],
)
def test_a_fault_of_an_include_points_into_the_playbook(old: str, new: str, fault: str) -> None:
    text, place = marked(HOST, old, new)
    found = faults(text)
    assert any(line.startswith(f"p.yaml:{place}: {fault}") for line in found), found


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "held: exits.verified",
            "held: «exits.verifid",
            "the fragment has no exit 'verifid'. Did you mean 'verified'?",
        ),
        ("to: wait}", "to: «over}", "the fragment has no state 'over'"),
        ("results.load.load", "«results.load.lod", "unknown name 'results.calm_load.lod'"),
        ("for: parameters.window", "for: «parameters.windw", "the fragment has no parameter 'windw'"),
        ("'parameters.calm &&", "'load > «parameters.clm &&", "the fragment has no parameter 'clm'"),
        ("start: load", "start: «lod", "unknown state 'lod'. Did you mean 'load'?"),
        ("fragment: verify", "fragment: «verfy", "the fragment of this file must be called 'verify'"),
        ("    within: 40m\n", "    «withn: 40m\n", "unknown key 'withn'. Did you mean 'within'?"),
    ],
)
def test_a_fault_of_a_fragment_points_into_the_fragment(old: str, new: str, fault: str) -> None:
    text, place = marked(VERIFY, old, new)
    found = faults(verify=text)
    assert any(line.startswith(f"fragments/verify.yaml:{place}: {fault}") for line in found), found


def test_one_fault_is_reported_once() -> None:
    assert len(faults(HOST.replace("include: verify", "include: verfy"))) == 1
    assert len(faults(verify=VERIFY.replace("parameters.calm &&", "parameters.clm &&"))) == 1
    assert len(faults(verify=VERIFY.replace("to: wait}", "to: over}"))) == 1


def test_two_fragments_must_agree_on_a_signal_that_both_bring() -> None:
    other = VERIFY.replace("fragment: verify", "fragment: other").replace("take: rate", "take: increase")
    again = CALM_AGAIN.replace("include: verify", "include: other")
    found = faults(HOST.replace("  people:\n", again + "  people:\n"), other=other)
    assert found == [
        "fragments/other.yaml:10:3: the signal 'load' differs in fragments/verify.yaml. Define 'load' in the playbook."
    ]
    own = HOST.replace("signals:\n", "signals:\n  load: {metric: arrivals, take: rate}\n")
    again = again.replace("{verified: over, bad: question}", "{verified: over, bad: over}")
    linked = own.replace("  people:\n", again + "  people:\n").replace("bad: question", "bad: again")
    assert faults(linked, other=other) == []


CALM_AGAIN = HOST[HOST.index("  calm:\n") : HOST.index("  people:\n")].replace("  calm:\n", "  again:\n", 1)


def test_a_name_that_would_stand_twice_is_refused() -> None:
    found = faults(HOST.replace("  people:\n", "  calm_load: {end: fixed}\n  people:\n", 1))
    assert any("the state 'calm_load' would exist twice" in text for text in found)


def test_fragments_that_include_each_other_are_refused() -> None:
    ping = VERIFY[: VERIFY.index("  load:\n    title")] + (
        "  load: {include: verify, with: {calm: parameters.calm, choices: {}}, exits: {verified: load, bad: load}}\n"
    )
    assert any("fragments include each other: verify → verify" in one for one in faults(verify=ping))


OF_P0 = "language: 1\nplaybook: p\ntitle: t\nstart: a\nstates:\n  a: {include: p0}\n"


def fragment_of(name: str, count: int, state: str) -> str:
    states = "".join(f"  s{i}: {state}\n" for i in range(count))
    return f"language: 1\nfragment: {name}\nstart: s0\nstates:\n{states}"


def test_more_states_than_anybody_reads_are_refused() -> None:
    found = faults(OF_P0, p0=fragment_of("p0", 301, "{end: fixed}"))
    assert any("with its fragments the playbook has more than 300 states" in one for one in found)


def test_includes_that_multiply_at_every_level_are_refused() -> None:
    fragments = {f"p{level}": fragment_of(f"p{level}", 40, f"{{include: p{level + 1}}}") for level in range(5)}
    found = faults(OF_P0, **fragments, p5=fragment_of("p5", 1, "{end: fixed}"))
    assert any("with its fragments the playbook has more than 300 includes" in one for one in found)


def test_a_text_that_doubles_at_every_step_is_refused() -> None:
    twice = "'{parameters.x}{parameters.x}{parameters.x}{parameters.x}{parameters.x}{parameters.x}'"

    def level(number: int) -> str:
        inner = f"{{include: p{number + 1}, with: {{x: {twice}}}}}" if number < 3 else f"{{end: fixed, say: {twice}}}"
        return f"language: 1\nfragment: p{number}\nparameters: {{x: {{}}}}\nstart: a\nstates:\n  a: {inner}\n"

    fragments = {f"p{number}": level(number) for number in range(4)}
    host = f"language: 1\nplaybook: p\ntitle: t\nstart: a\nstates:\n  a: {{include: p0, with: {{x: {'y' * 500}}}}}\n"
    assert any("over 4000 characters" in one for one in faults(host, **fragments))


FRAGMENTS = st.sampled_from(
    [
        "",
        " ",
        "\n",
        ": ",
        "- ",
        "{",
        "}",
        "[",
        "'",
        '"',
        "${",
        "null",
        "load",
        "parameters.calm",
        "exits.bad",
        "include: verify",
    ]
)


@given(st.booleans(), st.integers(0, len(HOST)), st.integers(0, 40), FRAGMENTS)
@settings(max_examples=120, deadline=None)
def test_no_slip_of_the_pen_crashes_an_include(in_host: bool, start: int, length: int, instead: str) -> None:
    host, fragment = (
        text[:start] + instead + text[start + length :] if chosen else text
        for text, chosen in ((HOST, in_host), (VERIFY, not in_host))
    )
    checked = check_text(host, {}, file="p.yaml", fragments=fragments_of({"verify": fragment}))
    assert (checked.compiled is None) == bool(checked.faults)


RETURNING = """
language: 1
fragment: back
summary: It returns, and asks afterwards.
exits: {done: it is tidy}
start: give
states:
  give: {return: handed_over, later: ask_it, to_do: Tidy up.}
  ask_it: {ask: Tidy?, choices: {ok: {label: OK, to: exits.done}}}
"""


def test_what_a_return_leaves_to_do_may_be_a_state_of_a_fragment() -> None:
    host = HOST.replace("states:\n", "states:\n  tidy: {include: back, exits: {done: give_back}}\n"
                        "  give_back: {return: fixed, later: tidy, to_do: Tidy up.}\n", 1)  # fmt: skip
    known = {"verify": VERIFY, "back": RETURNING}
    found = check_text(host, {}, fragments=fragments_of(known)).faults
    assert [fault.what for fault in found if "unknown" in fault.what] == []
