"""The example of teams is valid, and calls whom its comments say."""

from __future__ import annotations

import pytest

from bot.adapters.pagers import Opsgenie, PagerDuty, Webhook, pager_of
from bot.domain.approvals.configuration import Teams
from bot.domain.approvals.contacts import TEAMS
from bot.domain.kernel.target import Target
from bot.settings import Settings, load_settings
from tests.deploy.files import DEPLOY
from tests.deploy.test_one_target import SECRETS

pytestmark = pytest.mark.fast


@pytest.fixture(scope="module")
def settings() -> Settings:
    return load_settings(SECRETS, DEPLOY / "teams.example.yaml")


def test_each_team_has_the_pager_of_the_example(settings: Settings) -> None:
    urls = settings.paging.model_dump()
    kinds = {name: type(pager_of(team, **urls)) for name, team in settings.approvals.pagers().items()}
    assert kinds == {"serving": PagerDuty, "lead": Opsgenie, "router": Webhook, "chat": PagerDuty}


def test_each_team_is_mentioned_or_has_a_phone(settings: Settings) -> None:
    contacts = settings.approvals.contacts()
    reached = {name: each.mentions or each.phone for name, each in contacts.teams.items()}
    assert reached == {
        "serving": ("S0SERVING",),
        "lead": ("S0LEAD",),
        "facilities": "+49 30 1234567 (control room, all night)",
        "router": ("S0ROUTER",),
    }


def test_another_team_is_on_call_for_chat(settings: Settings) -> None:
    contacts = settings.approvals.contacts()
    assert contacts.on_call_for(Target(namespace="chat", name="llm-8b")).team == "chat"
    assert contacts.on_call_for(Target(namespace="serving", name="llm-8b")).team == "serving"


def test_playbooks_may_name_the_teams_that_the_settings_have() -> None:
    assert set(TEAMS) == set(Teams.model_fields)


def test_keys_are_never_printed(settings: Settings) -> None:
    assert "0123456789abcdef" not in repr(settings)
    assert "a-long-random-text" not in str(settings.model_dump())
