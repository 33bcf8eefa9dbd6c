"""Approvers of each change: the level's people, the teams of a kind, and the fallbacks."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.grant import Demand, Policy
from bot.domain.approvals.kinds import (
    CONTRACT_EDITS,
    DEFAULTS,
    KINDS,
    PULL_REQUEST,
    QUALITY_EDITS,
    RISKS_OF_KINDS,
    SILENCE,
    VERB_OF_KIND,
    Asked,
    Share,
    kind_of_edits,
    kinds_of_verb,
    more_of,
    shares_of,
)
from bot.domain.approvals.rules import ApprovalRules, people_named
from bot.domain.changes.catalogue import VERBS
from bot.domain.changes.plan import Risk
from tests import builders

pytestmark = pytest.mark.fast
APPROVERS = Demand(users=("ana", "ben"))
SERVING, PLATFORM = Demand(team="serving", users=("sam",)), Demand(team="platform", channel="C0P")
LEAD = Demand(team="lead", user_group="S0LEAD")


def level(needed: int = 1, **fields: Any) -> Policy:
    return builders.policy(demands=(APPROVERS.model_copy(update={"needed": needed}),), **fields)


def rules(**fields: Any) -> ApprovalRules:
    levels = {"low": level(), "medium": level(), "high": level(needed=2)}
    return ApprovalRules.model_validate(levels | {"teams": {"serving": SERVING, "platform": PLATFORM}} | fields)


def asks(who: str, expires_seconds: float | None = None) -> Asked:
    """As the settings ask, so exactly these teams."""
    return Asked(shares=shares_of(who), expires_seconds=expires_seconds, is_set=True)


def asked(policy: Policy) -> list[tuple[str, int]]:
    return [(demand.team, demand.needed) for demand in policy.demands]


# --- how risky --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "verb", "floors", "written", "risk"),
    [
        pytest.param("note", "note", {}, (), "low", id="nobody-says-more"),
        pytest.param("client_contract", "set_flags", {}, (), "high", id="the-kind"),
        pytest.param("scale", "scale", {"scale": "medium"}, (), "medium", id="the-settings"),
        pytest.param("scale_more", "scale", {"scale": "high"}, (), "high", id="the-settings-by-the-verb"),
        pytest.param("scale_more", "scale", {"scale_more": "high"}, (), "high", id="the-settings-by-the-kind"),
        pytest.param("scale", "scale", {}, ("low", "high"), "high", id="the-playbook"),
        pytest.param("drain_node", "drain_node", {"drain_node": "low"}, ("low",), "high", id="never-lower"),
    ],
)
def test_a_risk_is_the_highest_that_anybody_says(
    kind: str, verb: str, floors: dict[str, Risk], written: tuple[Risk, ...], risk: str
) -> None:
    assert rules(risk_floors=floors).risk_of(kind, verb, *written) == risk


# --- who --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("risk", "kind", "who"),
    [
        pytest.param("low", "", [("approvers", 1)], id="the-level"),
        pytest.param("high", "", [("approvers", 2)], id="a-higher-level"),
        pytest.param("low", "serving", [("serving", 1)], id="the-kind-instead"),
        pytest.param("high", "serving", [("serving", 1), ("approvers", 1)], id="the-rest-by-the-level"),
        pytest.param("high", "both", [("serving", 1), ("lead", 1)], id="enough-by-the-kind"),
        pytest.param("high", "approvers", [("approvers", 2)], id="the-rest-of-the-same-people"),
        pytest.param("high", "mixed", [("approvers", 1), ("serving", 1)], id="enough-with-the-same-people-among-them"),
    ],
)
def test_the_number_of_a_level_is_the_least_whatever_teams_are_asked(
    risk: Risk, kind: str, who: list[tuple[str, int]]
) -> None:
    kinds = {"serving": "serving", "both": "serving + lead", "approvers": "approvers"}
    found = rules(kinds={name: asks(text) for name, text in (kinds | {"mixed": "approvers + serving"}).items()})
    assert asked(found.policy(risk, kind=kind)) == who


@pytest.mark.parametrize(
    ("kind", "teams", "one", "two"),
    [
        pytest.param("", (), ["approvers 1"], ["approvers 2"], id="no-teams"),
        pytest.param("set_flags", (), ["serving or lead 1"], ["serving 1", "lead 1"], id="teams-of-the-kind"),
        pytest.param("", ("model",), ["approvers or model 1"], ["model 1", "approvers 1"], id="a-team-of-the-playbook"),
        pytest.param("set_flags", ("lead",), ["serving or lead 1"], ["serving 1", "lead 1"], id="each-team-once"),
    ],
)
def test_one_person_of_any_team_is_enough_and_with_four_eyes_one_of_each(
    kind: str, teams: tuple[str, ...], one: list[str], two: list[str]
) -> None:
    alone = rules(kinds=dict(DEFAULTS))
    for found, who in ((alone, one), (alone.model_copy(update={"four_eyes": ("all",)}), two)):
        assert [f"{team} {needed}" for team, needed in asked(found.policy("low", teams, kind=kind))] == who


def test_the_people_that_fill_up_a_number_are_those_of_the_level() -> None:
    three = rules(high=level(needed=3), kinds={"mixed": asks("approvers + serving")})
    approvers, serving = three.policy("high", kind="mixed").demands
    assert (approvers.needed, approvers.users) == (2, ("ana", "ben"))
    assert (serving.needed, serving.users) == (1, ("sam",))


@pytest.mark.parametrize(
    ("text", "users", "channels", "falls_back"),
    [
        pytest.param("serving or platform", [("sam",)], ["C0P"], False, id="both-are-named"),
        pytest.param("serving or model", [("sam",), ("ana", "ben")], [], False, id="one-is-stood-in-for"),
        pytest.param("model or serving", [("sam",), ("ana", "ben")], [], False, id="whichever-comes-first"),
        pytest.param("model or lead", [("ana", "ben")], [], True, id="the-same-people-stand-in-for-both-once"),
        pytest.param("approvers or serving", [("ana", "ben"), ("sam",)], [], False, id="approvers-are-a-team"),
    ],
)
def test_of_several_teams_the_people_of_each_count(
    text: str, users: list[tuple[str, ...]], channels: list[str], falls_back: bool
) -> None:
    (either,) = rules(kinds={"x": asks(f"2 {text}")}).policy("low", kind="x").demands
    assert (either.team, either.needed, either.falls_back) == (text, 2, falls_back)
    assert [source.users for source in either.sources if source.users] == users
    assert [source.channel for source in either.sources if source.channel] == channels


def test_who_stands_in_for_a_team_is_as_many_as_the_team_asks_for() -> None:
    two = rules(low=level(needed=2), kinds={"x": asks("model")})
    (model, _rest) = two.policy("low", kind="x").demands
    assert (model.team, model.needed, model.users, model.falls_back) == ("model", 1, ("ana", "ben"), True)


def test_a_level_that_names_nobody_lets_nobody_stand_in() -> None:
    nobody = rules(low=builders.policy(demands=()), kinds={"x": asks("model")})
    (model,) = nobody.policy("low", kind="x").demands
    assert (model.falls_back, model.sources) == (True, ())


def test_a_question_for_a_team_is_answered_by_one_of_it() -> None:
    policy = rules(low=level(needed=2)).one_of("serving")
    assert policy.demands == (SERVING,)


def test_a_silence_is_decided_as_its_kind() -> None:
    policy = rules(kinds={SILENCE: asks("serving", 60)}, risk_floors={SILENCE: "medium"}).of_kind(SILENCE)
    assert (asked(policy), policy.expires_seconds) == ([("serving", 1)], 60)


def test_a_pull_request_is_decided_as_its_kind() -> None:
    own = rules(kinds={PULL_REQUEST: asks("serving", 60)}, risk_floors={PULL_REQUEST: "medium"})
    assert (asked(own.of_kind(PULL_REQUEST)), own.of_kind(PULL_REQUEST).expires_seconds) == ([("serving", 1)], 60)


# --- how long, and who besides ----------------------------------------------------------------------------------------


def test_a_kind_has_a_time_of_its_own_or_that_of_its_level() -> None:
    timed = rules(kinds={"x": asks("serving", 60), "y": asks("serving")})
    assert [timed.policy("low", kind=kind).expires_seconds for kind in ("x", "y", "z")] == [60, 900, 900]


@pytest.mark.parametrize(
    ("kind", "critical", "is_there"),
    [("both", True, True), ("both", False, False), ("serving", True, False), ("", True, False)],
)
def test_the_glass_is_for_two_teams_of_a_critical_incident(kind: str, critical: bool, is_there: bool) -> None:
    named = {"serving": SERVING, "platform": PLATFORM, "lead": LEAD}
    glass = rules(
        teams=named, break_glass="lead", escalate_to="platform",
        kinds={"both": asks("serving + platform"), "serving": asks("serving")},
    )  # fmt: skip
    policy = glass.policy("low", kind=kind, critical=critical)
    assert policy.break_glass == (LEAD if is_there else None)
    assert policy.escalate_to == PLATFORM
    assert [demand.team for demand in policy.all_demands] == [
        *(team for team, _ in asked(policy)), *(["lead"] if is_there else [])
    ]  # fmt: skip


# --- who is in it -----------------------------------------------------------------------------------------------------


def test_people_are_known_by_their_teams_while_the_settings_name_them_all() -> None:
    both = Demand(team="model", users=("sam", "mia"), or_of=(SERVING,))
    named = {"sam": frozenset({"serving", "model"}), "mia": frozenset({"model"})}
    assert people_named((SERVING, both)) == named
    assert people_named(()) == {}


@pytest.mark.parametrize("somewhere", [PLATFORM, LEAD, Demand(team="x", users=("eve",), or_of=(LEAD,))])
def test_people_of_a_group_or_a_channel_are_not_known_by_the_settings(somewhere: Demand) -> None:
    assert people_named((SERVING, somewhere)) is None


def test_a_source_names_people() -> None:
    nobody = Demand(team="x", or_of=(Demand(team="y"), LEAD))
    assert (Demand(team="x").sources, nobody.sources, PLATFORM.sources) == ((), (LEAD,), (PLATFORM,))


# --- how it is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("serving", [("serving", 1)]),
        ("serving + 2 lead", [("serving", 1), ("lead", 2)]),
        ("serving+lead", [("serving", 1), ("lead", 1)]),
        ("2 serving or platform", [("serving or platform", 2)]),
        ("model or lead  or approvers + platform", [("model or lead or approvers", 1), ("platform", 1)]),
    ],
)
def test_who_is_asked_is_written_in_words(text: str, shares: list[tuple[str, int]]) -> None:
    read = shares_of(text)
    assert [(share.team, share.needed) for share in read] == shares
    assert shares_of(" + ".join(map(str, read))) == read, "and written in the same words"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' names no team; write for example serving + lead, of: approvers, serving, platform, model, lead"),
        ("serving + ops", "'ops' names no team; write for example"),
        ("serving or ops", "'serving or ops' names no team; write for example"),
        ("0 serving", "'0 serving' names no team; write for example"),
        ("serving + serving", "'serving + serving' names a team twice; write a number before it"),
    ],
)
def test_what_names_no_team_is_refused_with_an_example(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="names") as refused:
        shares_of(text)
    assert str(refused.value).startswith(why)


def test_a_share_is_shown_with_its_number_where_it_is_more_than_one() -> None:
    assert [str(share) for share in shares_of("serving + 2 lead")] == ["serving", "2 lead"]


def test_of_two_that_ask_the_same_team_the_larger_number_counts() -> None:
    found = more_of((Share(team="serving", needed=2), Share(team="lead")), (Share(team="serving"), Share(team="model")))
    assert [str(share) for share in found] == ["2 serving", "lead", "model"]
    assert [str(share) for share in more_of((), (Share(team="lead", needed=3),))] == ["3 lead"]


# --- the tables -------------------------------------------------------------------------------------------------------

MANUAL: dict[str, tuple[Risk, str, int]] = {
    "probe_request": ("low", "", 30),
    "run_job": ("low", "", 30),
    "return_replica": ("low", "", 30),
    "remove_canary": ("low", "", 30),
    "silence": ("low", "", 30),
    "pull_request": ("low", "", 30),
    "scale": ("low", "", 20),
    "scale_more": ("medium", "", 20),
    "isolate_replica": ("medium", "", 15),
    "replace_replica": ("medium", "", 15),
    "canary": ("medium", "", 15),
    "rotate_canary": ("medium", "", 15),
    "undo": ("medium", "", 15),
    "cordon_node": ("medium", "serving or platform", 10),
    "uncordon_node": ("medium", "platform", 60),
    "rollback": ("high", "", 15),
    "promote": ("high", "", 15),
    "set_flags": ("high", "serving + lead", 10),
    "restart": ("high", "serving + lead", 10),
    "client_contract": ("high", "serving + model", 30),
    "answer_quality": ("high", "serving + model", 60),
    "replace_busy_replica": ("high", "serving + lead", 10),
    "drain_node": ("high", "platform + serving", 10),
}


def test_each_kind_asks_what_the_operations_manual_says() -> None:
    found = {
        kind: (RISKS_OF_KINDS.get(kind, "low"), " + ".join(map(str, asked.shares)), (asked.expires_seconds or 0) / 60)
        for kind, asked in DEFAULTS.items()
    }
    assert found == MANUAL
    assert set(KINDS) == {*MANUAL, "scale_over_half"}
    assert RISKS_OF_KINDS["scale_over_half"] == "high"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "client_contract",
            ["--max-model-len", "--max-num-queued-reqs", "--max-num-queued-tokens", "--override-generation-config",
             "--override-generation-config.max_new_tokens"],
        ),
        (
            "answer_quality",
            [
                "--kv-cache-dtype", "--attention-backend", "--attention-config", "--quantization", "--dtype", "--model",
                "VLLM_ATTENTION_BACKEND", "ENABLE_TRIATTENTION", "TRIATTN_RUNTIME_KV_BUDGET",
                "--attention-config.backend",
            ],
        ),
        ("", ["--max-num-seqs", "NCCL_DEBUG"]),
    ],
)  # fmt: skip
def test_what_an_edit_touches_decides_its_kind(kind: str, names: list[str]) -> None:
    assert {name: kind_of_edits([name]) for name in names} == dict.fromkeys(names, kind)


def test_only_these_edits_change_what_clients_are_answered() -> None:
    assert (len(CONTRACT_EDITS), len(QUALITY_EDITS)) == (4, 9)


def test_what_a_verb_may_turn_out_to_be_is_of_a_known_kind() -> None:
    assert {name: kinds for name in VERBS if (kinds := kinds_of_verb(name)) != (name,)} == {
        "scale": ("scale", "scale_more", "scale_over_half"),
        "replace_replica": ("replace_replica", "replace_busy_replica"),
        "set_flags": ("set_flags", "promote", "client_contract", "answer_quality"),
        "promote": ("promote", "client_contract", "answer_quality"),
        "canary": ("canary", "client_contract", "answer_quality"),
        "rotate_canary": ("rotate_canary", "client_contract", "answer_quality"),
    }
    assert VERB_OF_KIND == {
        "scale_more": "scale", "scale_over_half": "scale", "replace_busy_replica": "replace_replica"
    }  # fmt: skip


def test_four_eyes_for_a_verb_hold_for_each_kind_of_it() -> None:
    """The riskiest edits of flags have kinds that several verbs share."""
    two = rules(four_eyes=("set_flags",))
    assert sum(needed for _, needed in asked(two.policy("low", kind="client_contract", verb="set_flags"))) == 2
    assert sum(needed for _, needed in asked(two.policy("low", kind="client_contract", verb="canary"))) == 1
