"""Who may decide is read from Slack when it is needed; what cannot be read is not allowed."""

from __future__ import annotations

import pytest

from bot.adapters.slack.people import MEMBERS_VALID_SECONDS, SlackPeople
from bot.domain.approval import Demand
from tests.adapters.slack.conftest import Bench
from tests.adapters.slack.runs import policy


@pytest.fixture
def people(bench: Bench) -> SlackPeople:
    steerers = Demand(team="steerers", users=("U0MO",), user_group="S0SERVING")
    return SlackPeople(bench.client, bench.clock, steerers=steerers)


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
async def test_a_member_may_approve_and_others_are_told_why_not(people: SlackPeople, user: str, why_not: str) -> None:
    told = await reason(people, user)
    assert why_not in told
    assert bool(told) == bool(why_not)


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
    assert "name nobody" in await reason(people, "U0ANA", user_group="")


@pytest.mark.parametrize("method", ["users.info", "usergroups.users.list"])
@pytest.mark.parametrize("kind", ["500", "drop", "429", "error:missing_scope"])
async def test_what_cannot_be_read_is_refused_with_a_way_on(
    people: SlackPeople, bench: Bench, method: str, kind: str
) -> None:
    # The HTTP client itself repeats a read once when its connection breaks.
    await bench.slack.faults({"method": method, "kind": kind, "count": 2 if kind == "drop" else 1})
    told = await reason(people, "U0ANA")
    assert "could not read" in told
    assert "try again" in told
    assert await reason(people, "U0ANA") == ""


async def test_the_words_do_without_the_name_of_the_group(people: SlackPeople, bench: Bench) -> None:
    await bench.slack.faults({"method": "usergroups.list", "kind": "500"})
    assert "not in user group S0SERVING" in await reason(people, "U0MO")


async def test_membership_is_at_most_a_minute_old(people: SlackPeople, bench: Bench) -> None:
    assert await reason(people, "U0ANA") == ""
    await bench.slack.do("usergroup", users=["U0BEN"])
    bench.clock.move(MEMBERS_VALID_SECONDS - 1)
    assert await reason(people, "U0ANA") == ""
    bench.clock.move(1)
    assert "not in @serving-oncall" in await reason(people, "U0ANA")


async def test_steering_is_for_those_whom_the_settings_name(people: SlackPeople) -> None:
    allowed = [user for user in ("U0ANA", "U0MO", "U0GUE", "U0OLD") if (await people.may_steer(user, at=1.0)).allowed]
    assert allowed == ["U0ANA", "U0MO"]


async def test_members_of_a_channel_may_decide_where_the_settings_name_it(people: SlackPeople) -> None:
    demand = Demand(team="serving", channel="C0INC")
    ana = await people.authority("U0ANA", policy(demands=(demand,)), at=1.0)
    assert (ana.allowed, ana.teams, ana.reason) == (True, ("serving",), "is in <#C0INC>")
    unknown = await people.authority("U0ANA", policy(demands=(Demand(channel="C0NOWHERE"),)), at=1.0)
    assert not unknown.allowed
    assert "could not read who is in <#C0NOWHERE>" in unknown.reason


async def test_any_of_several_teams_is_enough(people: SlackPeople) -> None:
    platform = Demand(team="platform", users=("U0MO",))
    either = Demand(team="serving or platform", user_group="S0SERVING", or_of=(platform,))
    for user in ("U0ANA", "U0MO"):
        assert (await people.authority(user, policy(demands=(either,)), at=1.0)).teams == ("serving or platform",)
    assert not (
        await people.authority("U0LEA", policy(demands=(either.model_copy(update={"user_group": ""}),)), at=1.0)
    ).allowed


async def test_who_may_only_break_the_glass_is_heard_with_that_team_alone(people: SlackPeople) -> None:
    glass = policy(break_glass=Demand(team="lead", users=("U0MO",)))
    assert (await people.authority("U0MO", glass, at=1.0)).teams == ("lead",)
