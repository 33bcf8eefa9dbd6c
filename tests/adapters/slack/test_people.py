"""Permissions are read from Slack when they are needed; a failed read allows nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.adapters.slack.accounts import Home, reason_against
from bot.adapters.slack.client import session_of, web_client
from bot.adapters.slack.people import ON_THE_COMMAND_LINE, SlackPeople
from bot.domain.approvals.grant import Demand
from bot.domain.kernel.errors import StorageUnavailableError
from tests.adapters.slack.conftest import TOKEN, Bench
from tests.adapters.slack.runs import policy
from tests.fakes.shown import MemoryPeople

OPERATORS = Demand(team="operators", users=("U0MO",), user_group="S0SERVING")


@pytest.fixture
def people(bench: Bench) -> SlackPeople:
    """A press is judged while a person waits, so the client insists, as it does in `open_slack`."""
    session, circuits = session_of(bench.client), bench.client.circuits
    client = web_client(TOKEN, session, base_url=bench.client.base_url, circuits=circuits, insists=True)
    return SlackPeople(client, bench.clock, MemoryPeople(), operators=OPERATORS)


async def reason(people: SlackPeople, user: str, **changes: object) -> str:
    """Why not; empty when the person may."""
    authority = await people.authority(user, policy(**changes), at=1.0)
    assert authority.read_at == 1.0
    assert authority.reason
    return "" if authority.allowed else authority.reason


@pytest.mark.parametrize(
    ("user", "why_not"),
    [
        pytest.param("U0ANA", "", id="in-the-group"),
        pytest.param("U0MO", "not in @serving-oncall", id="stranger"),
        pytest.param("U0GUE", "guests", id="guest"),
        pytest.param("U0OLD", "deactivated", id="left"),
        pytest.param("U0BOT", "bots", id="bot"),
        pytest.param("U0NOBODY", "user_not_found", id="unknown"),
    ],
)
async def test_a_member_may_approve_and_others_get_the_reason_why_not(
    people: SlackPeople, user: str, why_not: str
) -> None:
    refusal = await reason(people, user)
    assert why_not in refusal
    assert bool(refusal) == bool(why_not)


async def test_a_person_named_in_the_policy_needs_no_group(people: SlackPeople) -> None:
    assert await reason(people, "U0MO", users=("U0MO",), user_group="") == ""
    assert (
        await reason(people, "U0ANA", users=("U0MO",), user_group="") == "you are not among those who may approve this"
    )


@pytest.mark.parametrize("user", ["U0GUE", "U0OLD", "U0BOT"])
async def test_being_named_does_not_help_a_bot_a_guest_or_who_has_left(people: SlackPeople, user: str) -> None:
    assert await reason(people, user, users=(user,))


async def test_who_is_in_one_of_the_teams_is_allowed_and_which_ones_is_kept(people: SlackPeople) -> None:
    platform, serving = Demand(team="platform", users=("U0MO",)), Demand(team="serving", user_group="S0SERVING")
    asked = policy(demands=(platform, serving))
    assert (await people.authority("U0ANA", asked, at=1.0)).teams == ("serving",)
    assert (await people.authority("U0MO", asked, at=1.0)).teams == ("platform",)
    both = policy(demands=(platform.model_copy(update={"users": ("U0ANA",)}), serving))
    assert (await people.authority("U0ANA", both, at=1.0)).teams == ("platform", "serving")
    stranger = await people.authority("U0MO", policy(demands=(serving,)), at=1.0)
    assert (stranger.allowed, stranger.teams) == (False, ())


async def test_a_policy_that_names_nobody_lets_nobody(people: SlackPeople) -> None:
    assert "name no one" in await reason(people, "U0ANA", user_group="")


@pytest.mark.parametrize("method", ["users.info", "usergroups.users.list"])
@pytest.mark.parametrize("kind", ["500", "drop", "429", "error:missing_scope"])
async def test_what_cannot_be_read_is_refused_with_a_way_on(
    people: SlackPeople, bench: Bench, method: str, kind: str
) -> None:
    # The HTTP client itself repeats a read once when its connection breaks.
    await bench.slack.faults({"method": method, "kind": kind, "count": 2 if kind == "drop" else 1})
    refusal = await reason(people, "U0ANA")
    assert "could not read" in refusal
    assert "try again" in refusal
    assert await reason(people, "U0ANA") == ""


async def test_the_words_do_without_the_name_of_the_group(people: SlackPeople, bench: Bench) -> None:
    await bench.slack.faults({"method": "usergroups.list", "kind": "500"})
    assert "not in user group S0SERVING" in await reason(people, "U0MO")


async def test_membership_is_read_at_each_press(people: SlackPeople, bench: Bench) -> None:
    assert await reason(people, "U0ANA") == ""
    await bench.slack.do("usergroup", users=["U0BEN"])
    assert "not in @serving-oncall" in await reason(people, "U0ANA")
    assert not (await people.may_operate("U0ANA", at=1.0)).allowed


async def test_past_slacks_rate_limit_a_membership_of_the_last_minute_counts(people: SlackPeople, bench: Bench) -> None:
    assert await reason(people, "U0ANA") == ""
    await bench.slack.faults({"method": "usergroups.users.list", "kind": "429", "seconds": 1000})
    bench.clock.move(59)
    assert await reason(people, "U0ANA") == ""
    assert "not in @serving-oncall" in await reason(people, "U0MO")
    bench.clock.move(1)
    assert "could not read the members of @serving-oncall (ratelimited)" in await reason(people, "U0ANA")


async def test_a_team_that_cannot_be_read_is_named_beside_the_team_that_counts(
    people: SlackPeople, bench: Bench
) -> None:
    """Else a request that needs this team would go on waiting, and nobody would know why."""
    await bench.slack.faults({"method": "usergroups.users.list", "kind": "500"})
    demands = (Demand(team="model", user_group="S0SERVING"), Demand(team="platform", users=("U0ANA",)))
    ana = await people.authority("U0ANA", policy(demands=demands), at=1.0)
    assert (ana.allowed, ana.teams) == (True, ("platform",))
    assert "could not read the members of" in ana.reason


async def test_what_is_only_shown_may_rest_on_an_older_membership(bench: Bench) -> None:
    people = SlackPeople(bench.client, bench.clock, MemoryPeople(), operators=OPERATORS, members_valid_seconds=60.0)
    assert await reason(people, "U0ANA") == ""
    await bench.slack.do("usergroup", users=["U0BEN"])
    bench.clock.move(59)
    assert await reason(people, "U0ANA") == ""
    assert len(await bench.slack.calls("users.info")) == 1
    bench.clock.move(1)
    assert "not in @serving-oncall" in await reason(people, "U0ANA")


async def test_operating_is_for_those_whom_the_settings_name(people: SlackPeople) -> None:
    allowed = [user for user in ("U0ANA", "U0MO", "U0GUE", "U0OLD") if (await people.may_operate(user, at=1.0)).allowed]
    assert allowed == ["U0ANA", "U0MO"]


async def test_members_of_a_channel_may_decide_where_the_settings_name_it(people: SlackPeople) -> None:
    demand = Demand(team="serving", channel="C0INC")
    ana = await people.authority("U0ANA", policy(demands=(demand,)), at=1.0)
    assert (ana.allowed, ana.teams, ana.reason) == (True, ("serving",), "is in <#C0INC>")
    unknown = await people.authority("U0ANA", policy(demands=(Demand(channel="C0NOWHERE"),)), at=1.0)
    assert not unknown.allowed
    assert "could not read the members of <#C0NOWHERE>" in unknown.reason


@pytest.mark.parametrize(
    "demand",
    [
        pytest.param(Demand(channel="C0INC"), id="by-channel"),
        pytest.param(Demand(users=("U0EXT",)), id="by-name"),
        pytest.param(Demand(user_group="S0SERVING"), id="by-user-group"),
    ],
)
async def test_people_of_another_company_never_decide_however_they_are_named(bench: Bench, demand: Demand) -> None:
    await bench.slack.do("usergroup", users=["U0ANA", "U0EXT"])
    people = SlackPeople(bench.client, bench.clock, MemoryPeople(), operators=demand)
    decides = await people.authority("U0EXT", policy(demands=(demand,)), at=1.0)
    operates = await people.may_operate("U0EXT", at=1.0)
    assert (decides.allowed, operates.allowed) == (False, False)
    assert decides.reason == operates.reason == "people of another workspace do not decide here"


async def test_a_user_who_may_be_from_another_company_does_not_decide(people: SlackPeople, bench: Bench) -> None:
    await bench.slack.faults({"method": "auth.test", "kind": "500"})
    refusal = await reason(people, "U0ANA")
    assert "could not read your Slack account" in refusal
    assert await reason(people, "U0ANA") == ""


@pytest.mark.parametrize(
    ("account", "is_ours"),
    [
        pytest.param({"team_id": "T0US"}, True, id="our-workspace"),
        pytest.param({"team_id": "T0THEM"}, False, id="another-company"),
        pytest.param({"team_id": "T0US", "is_stranger": True}, False, id="a-stranger"),
        pytest.param({}, False, id="of-nowhere"),
        pytest.param({"team_id": "T0SISTER", "enterprise_user": {"enterprise_id": "E0US"}}, True, id="our-company"),
        pytest.param({"team_id": "T0THEM", "enterprise_user": {"enterprise_id": "E0THEM"}}, False, id="their-company"),
    ],
)
def test_an_account_is_ours_by_its_workspace_or_its_enterprise(account: dict[str, Any], is_ours: bool) -> None:
    assert bool(reason_against(account, Home("T0US", "E0US"))) is not is_ours
    alone = reason_against(account, Home("T0US", ""))
    assert bool(alone) is not (is_ours and "enterprise_user" not in account)


async def test_any_of_several_teams_is_enough(people: SlackPeople) -> None:
    platform = Demand(team="platform", users=("U0MO",))
    either = Demand(team="serving or platform", user_group="S0SERVING", or_of=(platform,))
    for user in ("U0ANA", "U0MO"):
        assert (await people.authority(user, policy(demands=(either,)), at=1.0)).teams == ("serving or platform",)
    assert not (
        await people.authority("U0LEA", policy(demands=(either.model_copy(update={"user_group": ""}),)), at=1.0)
    ).allowed


async def test_a_user_who_may_only_break_the_glass_counts_for_that_team_alone(people: SlackPeople) -> None:
    glass = policy(break_glass=Demand(team="lead", users=("U0MO",)))
    assert (await people.authority("U0MO", glass, at=1.0)).teams == ("lead",)


# --- while Slack does not answer -------------------------------------------------------------------------------------

AWAY = [{"method": method, "kind": "error:invalid_auth", "seconds": 1000} for method in ("users.info", "auth.test")]
SLOW = [{"method": method, "kind": "delay", "seconds": 5, "count": 9} for method in ("users.info", "auth.test")]


@pytest.mark.parametrize("trouble", [pytest.param(AWAY, id="refuses"), pytest.param(SLOW, id="is-slow")])
async def test_who_could_halt_can_halt_while_slack_does_not_answer(
    people: SlackPeople, bench: Bench, trouble: list[dict[str, Any]]
) -> None:
    assert (await people.may_operate("U0ANA", at=1.0)).allowed
    await bench.slack.faults(*trouble)
    halts = await people.may_halt("U0ANA", at=1.0)
    assert (halts.allowed, halts.reason) == (True, "is in @serving-oncall, as Slack last reported")


async def test_only_a_halt_rests_on_the_last_answer_of_slack(people: SlackPeople, bench: Bench) -> None:
    assert (await people.may_operate("U0ANA", at=1.0)).allowed
    await bench.slack.faults(*AWAY)
    assert not (await people.may_operate("U0ANA", at=1.0)).allowed
    assert "could not read" in await reason(people, "U0ANA")


async def test_the_operators_are_known_before_anybody_was_judged(people: SlackPeople, bench: Bench) -> None:
    assert await people.read_operators()
    await bench.slack.faults(*AWAY)
    assert (await people.may_halt("U0BEN", at=1.0)).allowed
    assert not (await people.may_halt("U0GUE", at=1.0)).allowed


@pytest.mark.parametrize("error", [StorageUnavailableError("away"), TypeError("Slack named no users")])
async def test_a_failed_reading_of_the_operators_is_tried_again(
    people: SlackPeople, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    faults, again = [error], asyncio.Event()

    async def read_operators() -> bool:
        if faults:
            raise faults.pop()
        again.set()
        return True

    monkeypatch.setattr(people, "read_operators", read_operators)
    monkeypatch.setattr("bot.adapters.slack.people.READ_AGAIN_SECONDS", 0.0)
    reading = asyncio.create_task(people.keep_reading())
    await asyncio.wait({reading, asyncio.create_task(again.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not reading.done()
    reading.cancel()


async def test_where_slack_was_never_read_a_halt_is_refused_with_the_way_that_needs_no_slack(
    people: SlackPeople, bench: Bench
) -> None:
    await bench.slack.faults(*AWAY)
    halts = await people.may_halt("U0ANA", at=1.0)
    assert not halts.allowed
    assert "invalid_auth" in halts.reason
    assert ON_THE_COMMAND_LINE in halts.reason
    assert (await people.may_halt("U0MO", at=1.0)).allowed


async def test_being_in_a_channel_is_not_enough_for_an_account_that_was_never_read(bench: Bench) -> None:
    people = SlackPeople(bench.client, bench.clock, MemoryPeople(), operators=Demand(channel="C0INC"))
    assert (await people.may_operate("U0ANA", at=1.0)).allowed
    await bench.slack.faults(*AWAY)
    assert (await people.may_halt("U0ANA", at=1.0)).allowed
    assert not (await people.may_halt("U0EXT", at=1.0)).allowed


@pytest.mark.parametrize(
    ("user", "why_not"),
    [
        pytest.param("U0MO", "", id="anybody-here"),
        pytest.param("U0GUE", "guests do not take part", id="guest"),
        pytest.param("U0BOT", "bots never take part", id="bot"),
        pytest.param("U0OLD", "this account is deactivated", id="left"),
        pytest.param("U0EXT", "people of another workspace do not take part here", id="another-company"),
    ],
)
async def test_who_takes_part_belongs_to_the_workspace_also_while_slack_does_not_answer(
    people: SlackPeople, bench: Bench, user: str, why_not: str
) -> None:
    for at in (1.0, 100.0):
        found = await people.takes_part(user, at=at)
        assert (found.allowed, found.reason) == (not why_not, why_not)
        await bench.slack.faults(*AWAY)
    if not why_not:
        assert not (await people.takes_part("U0LEA", at=1.0)).allowed
