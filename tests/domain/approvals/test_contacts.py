"""Who is called for a target, and in place of a team that is not configured."""

from __future__ import annotations

import pytest

from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.kernel.target import Target
from tests import builders

pytestmark = pytest.mark.fast
SERVING, LEAD, CHAT = (Contact(team=name, mentions=(f"S0{name.upper()}",)) for name in ("serving", "lead", "chat"))
APPROVERS = Contact(team="approvers", mentions=("S0APP",))
LLM = builders.TARGET


def of(*teams: Contact, on_call: tuple[tuple[str, Contact], ...] = ()) -> Contacts:
    return Contacts(teams={each.team: each for each in teams}, on_call=on_call, approvers=APPROVERS)


def test_the_first_team_that_matches_the_target_is_on_call() -> None:
    contacts = of(SERVING, on_call=(("other/*", LEAD), (f"{LLM.namespace}/ll*", CHAT), ("*", LEAD)))
    assert contacts.on_call_for(LLM) is CHAT
    assert contacts.team("serving", LLM) is CHAT
    assert of(SERVING, on_call=(("other/*", LEAD),)).on_call_for(LLM) is SERVING


def test_without_a_team_on_call_the_approvers_are_mentioned() -> None:
    assert of(LEAD).on_call_for(LLM) is APPROVERS


def test_the_approvers_of_a_target_are_called_where_no_team_is_on_call() -> None:
    own = Contact(team="approvers", mentions=("S0CHAT",))
    contacts = Contacts(approvers=APPROVERS, approvers_of=(("other/*", LEAD), (f"{LLM.namespace}/*", own)))
    assert contacts.on_call_for(LLM) is own
    silent = Contact(team="chat", has_pager=True)
    both = contacts.model_copy(update={"on_call": (("*", silent),)})
    assert both.on_call_for(LLM) == silent.model_copy(update={"mentions": ("S0CHAT",)})


@pytest.mark.parametrize(
    ("teams", "called"),
    [((SERVING, LEAD), LEAD), ((SERVING,), SERVING), ((), APPROVERS)],
    ids=["lead", "on call", "approvers"],
)
def test_another_team_is_called_where_one_is_not_configured(teams: tuple[Contact, ...], called: Contact) -> None:
    contacts = of(*teams)
    assert contacts.team("facilities", LLM) is None
    assert contacts.instead_of("facilities", LLM) is called


def test_the_lead_is_not_called_in_its_own_place() -> None:
    assert of(SERVING).instead_of("lead", Target(namespace="a", kind="Deployment", name="b")) is SERVING
