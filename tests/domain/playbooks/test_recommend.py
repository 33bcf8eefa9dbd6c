"""`recommend`: each option becomes a change, and a mistake in an option is reported at its line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.adapters.yaml_playbooks import check_text, fragments_of, load_text
from bot.domain.playbooks.language import ChangeState, RecommendState
from bot.domain.playbooks.picture.folding import rows_of_fragments
from bot.domain.playbooks.text_sizes import EFFECT, LABEL, WHY_NOT
from tests.domain.incidents.machine.recommendations import EDIT, STAGED, TEXT
from tests.domain.playbooks.including import HOST, marked

pytestmark = pytest.mark.fast

WHEN = (
    "{label: Cap it, change: set_flags, against: kv_thrash, with: {edits: ["
    "{flag: --max-num-seqs, value: 6, when: full}, {first_of: [--max-num-active-seqs, --seed], value: 5, "
    "when: room > 1}]}}"
)
CONDITIONAL = STAGED.replace(EDIT, WHEN)


def faults(text: str) -> list[str]:
    return [str(fault) for fault in check_text(text, {}, file="p.yaml").faults]


def test_a_recommendation_that_leads_nowhere_where_nothing_is_possible_is_a_mistake() -> None:
    text = TEXT.replace("    none_possible: gone\n", "").replace("      people: {label: Hand over, to: gone}\n", "")
    fault = "p.yaml:12:3: 'none_possible' is missing. Add it, or an option with 'to'."
    assert fault in faults(text)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param(
            "possible: room > 0", "«posible: room > 0", "unknown key 'posible'. Did you mean 'possible'?", id="key"
        ),
        pytest.param(
            "possible: room", "possible: «rom", "unknown name 'rom'. Did you mean 'room'?", id="signal-in-possible"
        ),
        pytest.param(
            "why_not: no GPU", "why_not: ${«rom}, no GPU", "unknown name 'rom'. Did you mean 'room'?", id="why_not"
        ),
        pytest.param(
            "Restarts nothing.", "Adds ${«twicee}.", "unknown name 'twicee'. Did you mean 'twice'?", id="effect"
        ),
        pytest.param("Add ${twice}", "Add ${«twicee}", "unknown name 'twicee'. Did you mean 'twice'?", id="label"),
        pytest.param(
            "{by: '${twice}'}", "{by: '${«twicee}'}", "unknown name 'twicee'. Did you mean 'twice'?", id="argument"
        ),
        pytest.param(
            "{by: '${twice}'}",
            "{by: 1, «bz: 1}",
            "scale takes no 'bz'. Known: above_maximum, by, to.",
            id="argument-name",
        ),
        pytest.param(
            "      people: {label: Hand over, to: gone}",
            "      «people: {label: Hand over, to: gone, change: restart}",
            "an option has 'change' or 'to', and not both. Write the change, or the state to go to.",
            id="both",
        ),
        pytest.param(
            "      people: {label: Hand over, to: gone}",
            "      «people: {label: Hand over}",
            "an option has 'change' or 'to', and not both. Write the change, or the state to go to.",
            id="neither",
        ),
        pytest.param(
            "Hand over, to: gone", "Hand over, to: «gon", "unknown state 'gon'. Did you mean 'gone'?", id="to"
        ),
        pytest.param("change: restart", "change: «restrt", "unknown verb 'restrt'. Did you mean 'restart'?", id="verb"),
        pytest.param("risk: high", "risk: «hgh", "'hgh' is not possible here. Did you mean 'high'?", id="risk"),
        pytest.param("risk: high", "risk: high, done: «clm", "unknown state 'clm'. Did you mean 'calm'?", id="outcome"),
        pytest.param(
            "risk: high",
            "risk: high, runbook: {«stp: 3, step: three}",
            "unknown key 'stp'. Did you mean 'step'?",
            id="runbook",
        ),
        pytest.param(
            "    done: calm", "    done: «clm", "unknown state 'clm'. Did you mean 'calm'?", id="outcome-of-all"
        ),
        pytest.param(
            "      restart: {label: Restart it, ",
            "      «restart: {",
            "'label' is missing. Write 'label': the text on the button.",
            id="no-label",
        ),
        pytest.param(
            "      restart: {",
            "      «Re-start: {",
            "'Re-start' is not a valid name. Use small letters, digits and underscores.",
            id="name",
        ),
        pytest.param(
            "  calm: {end", "  relieve_people: {end: fixed}\n  calm: {end", "", id="no-collision-without-a-change"
        ),
        pytest.param("      grow:\n", "      «calm:\n", "", id="an-option-may-be-named-like-a-state"),
    ],
)
def test_a_mistake_in_an_option_is_reported_once_and_at_its_line(old: str, new: str, fault: str) -> None:
    if not fault:
        found = faults(marked(TEXT, old, new)[0])
        assert not any("already" in one or "exist" in one for one in found), found
        return
    text, place = marked(TEXT, old, new)
    assert faults(text) == [f"p.yaml:{place}: {fault}"]


def test_a_change_that_would_be_named_like_a_state_is_reported_at_the_option() -> None:
    text = TEXT.replace("  calm: {end", "  relieve_grow: {end: fixed}\n  calm: {end")
    assert faults(text) == ["p.yaml:21:7: there is a state 'relieve_grow' already. Rename one."]


def test_the_state_that_judges_a_canary_must_exist_and_have_something_to_judge() -> None:
    text, place = marked(STAGED, "try: rolled", "try: «rolld")
    assert faults(text) == [f"p.yaml:{place}: unknown state 'rolld'. Did you mean 'rolled'?"]
    text, place = marked(STAGED, "    try: rolled", "    «try: rolled")
    found = faults(text.replace(f"      cap: {EDIT}\n", ""))
    assert found[0] == f"p.yaml:{place}: no option edits flags, so nothing is tried. Delete 'try'."


def test_a_mistake_in_an_option_hides_no_other_mistake_and_makes_none() -> None:
    text = STAGED.replace("calm: {end: fixed}", "calm: {end: fixd}").replace("Hand over, to: gone", "Hand over")
    assert [fault.partition(": ")[2].partition(".")[0] for fault in faults(text)] == [
        "an option has 'change' or 'to', and not both",
        "'fixd' is not possible here",
    ]


@pytest.mark.parametrize(
    ("old", "size"),
    [("Restart it", LABEL), ("Restarts nothing.", EFFECT), ("no GPU is free", WHY_NOT)],
    ids=["label", "effect", "why_not"],
)
def test_a_text_of_an_option_that_people_would_not_see_whole_is_a_fault(old: str, size: int) -> None:
    assert f"this has {size + 1} characters, and {size} are shown" in faults(TEXT.replace(old, "x" * (size + 1)))[0]
    assert faults(TEXT.replace(old, "x" * size)) == []


def test_an_option_is_called_what_its_label_says_unless_that_holds_a_reading() -> None:
    playbook = load_text(STAGED)
    assert playbook.called("relieve_grow") == "relieve grow"
    assert playbook.called("relieve_cap") == "Cap it"
    assert playbook.called("relieve_cap_in_place") == "Cap it, without a canary"
    titled = load_text(STAGED.replace("    recommend: Which", "    title: Relieve it\n    recommend: Which"))
    assert titled.called("relieve_grow") == "Relieve it"


def test_only_an_edit_in_place_waits_for_the_owner_of_the_workload() -> None:
    states = load_text(STAGED.replace("    try: rolled", "    by_owner: gone\n    impossible: calm\n    try: rolled"))
    outcomes = {
        name: state.impossible
        for name, state in states.playbook.states.items()
        if name.startswith("relieve_")
        if isinstance(state, ChangeState)
    }
    assert outcomes["relieve_cap"] == "relieve_cap_in_place"
    assert outcomes["relieve_cap_in_place"] == "gone"
    assert outcomes["relieve_grow"] == "calm"


def test_an_option_without_a_step_of_the_runbook_is_that_of_its_recommendation() -> None:
    text = TEXT.replace("    read: [usage]\n", "    read: [usage]\n    runbook: {step: '3'}\n")
    states = load_text(text.replace("risk: high", "risk: high, runbook: {step: '3.2'}")).playbook.states
    steps = {name: state.runbook.step for name, state in states.items() if state.runbook}
    assert steps == {"relieve": "3", "relieve_grow": "3", "relieve_restart": "3.2"}


IN_A_FRAGMENT = """\
language: 1
fragment: verify
parameters: {calm: {}}
exits: {verified: it is fine, bad: it is not}
signals: {load: {metric: arrivals, over: 5m, take: rate}}
start: pick
states:
  pick:
    recommend: Which one?
    still: '!(parameters.calm)'
    done: exits.verified
    failed: exits.bad
    none_possible: exits.bad
    options:
      grow: {label: Grow, possible: load > 1, change: scale, with: {by: 1}}
      leave: {label: Leave it, to: exits.verified}
"""
WITH_IT = HOST.replace("      choices: {again: {label: Look again, to: look}}\n", "")


def test_a_fragment_may_recommend() -> None:
    states = load_text(WITH_IT, fragments={"verify": IN_A_FRAGMENT}).playbook.states
    pick, grow = states["calm_pick"], states["calm_pick_grow"]
    assert isinstance(pick, RecommendState)
    assert isinstance(grow, ChangeState)
    assert {key: option.to for key, option in pick.options.items()} == {"grow": "calm_pick_grow", "leave": "over"}
    assert (grow.option_of, grow.alternatives, grow.failed) == ("calm_pick", {"leave": "over"}, "question")
    assert grow.still == "!((thrash < 0.01 && usage < baseline.usage))"


def test_the_changes_of_a_fragments_options_are_drawn_with_the_fragment() -> None:
    tried = IN_A_FRAGMENT.replace(
        "    failed: exits.bad\n", "    failed: exits.bad\n    try: exits.verified\n"
    ).replace(
        "change: scale, with: {by: 1}",
        "change: set_flags, against: kv_thrash, with: {edits: [{flag: --max-num-seqs, value: 6}]}",
    )
    rows = rows_of_fragments(load_text(WITH_IT, fragments={"verify": tried}))
    assert rows == {"calm_pick": "calm", "calm_pick_grow": "calm", "calm_pick_grow_in_place": "calm"}


PARTS = [
    "",
    " ",
    "\n",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "'",
    "${",
    "null",
    "full",
    "to: gone",
    "change: restart",
    "define: ",
]


@given(st.integers(0, len(CONDITIONAL)), st.integers(0, 40), st.sampled_from(PARTS))
@settings(max_examples=150, deadline=None)
def test_no_slip_of_the_pen_crashes_a_recommendation(start: int, length: int, instead: str) -> None:
    checked = check_text(CONDITIONAL[:start] + instead + CONDITIONAL[start + length :], {}, file="p.yaml")
    assert (checked.compiled is None) == bool(checked.faults)


def test_a_mistake_in_an_option_of_a_fragment_is_reported_there() -> None:
    text, place = marked(IN_A_FRAGMENT, "possible: load", "«posible: load")
    found = check_text(WITH_IT, {}, file="p.yaml", fragments=fragments_of({"verify": text})).faults
    assert [str(fault) for fault in found] == [
        f"fragments/verify.yaml:{place}: unknown key 'posible'. Did you mean 'possible'?"
    ]


# --- edits with a condition -------------------------------------------------------------------------------------------

SEQS = {"flag": "--max-num-seqs", "value": 6}
ACTIVE = {"first_of": ["--max-num-active-seqs", "--seed"], "value": 5}


@pytest.mark.parametrize(
    ("read", "edits"),
    [
        pytest.param({"usage": 0.95, "room": 3.0}, [SEQS, ACTIVE], id="both-true"),
        pytest.param({"usage": 0.95, "room": 0.0}, [SEQS], id="one-false"),
        pytest.param({"usage": 0.95}, [SEQS], id="one-unknown"),
        pytest.param({}, [], id="both-unknown"),
    ],
)
def test_an_edit_whose_condition_is_false_or_unknown_is_left_out(read: dict[str, float], edits: list[object]) -> None:
    values = {f"results.relieve.{name}": value for name, value in read.items()}
    assert load_text(CONDITIONAL).arguments("relieve_cap", values) == {"edits": edits}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("when: full", "when: «ful", "unknown name 'ful'. Did you mean 'full'?"),
        ("when: full", "when: «usage", "the expression gives a number, but true or false is needed here."),
        ("when: full", "when: «true", "'when' is not an expression. Put it in quotes."),
        ("{flag: --max-num-seqs, value: 6, when", "«{flag: --max-num-seqs, value: 6, wen", "this is not an edit."),
        (
            "first_of: [--max-num-active-seqs, --seed]",
            "first_of: «[]",
            "'first_of' is a list of flags. Write [--new, --old].",
        ),
        (
            "first_of: [--max-num-active-seqs, --seed]",
            "first_of: «--seed",
            "'first_of' is a list of flags. Write [--new, --old].",
        ),
        ("active-seqs, --seed", "active-seqs, «--sed", "unknown flag '--sed'. Did you mean '--seed'?"),
    ],
)
def test_a_mistake_in_a_conditional_edit_is_reported_at_the_edit(old: str, new: str, fault: str) -> None:
    text, place = marked(CONDITIONAL, old, new)
    found = faults(text)
    assert len(found) == 1, found
    assert found[0].startswith(f"p.yaml:{place}: {fault}")
