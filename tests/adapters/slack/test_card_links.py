"""The links on a card, from Alertmanager's webhook to Slack's blocks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.adapters.alertmanager import read_webhook
from bot.adapters.slack.outbound.card import card
from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.machine import advance
from bot.domain.kernel.links import Dashboards
from bot.domain.playbooks.bundle import Bundle
from bot.sandbox.slack.block_kit import problems_of_blocks
from tests.builders import START, rules
from tests.builders import run as fresh_run

pytestmark = pytest.mark.fast

PLAYBOOK = Bundle.of(
    load_text("""
language: 1
playbook: test
title: KV-cache OOM
opens_on: ['alertname="A"']
start: ask
states:
  ask: {ask: "Is it over?", choices: {"yes": {label: "Yes", to: over}}}
  over: {end: fixed}
""")
)
QUERY = "http://prometheus:9090/graph?g0.expr=up%3E1&g0.tab=1"


def shown(runbook: str, query: str = QUERY, dashboard: str = "https://g/$workload?to=$to") -> str:
    fired: dict[str, Any] = {
        "status": "firing",
        "labels": {"alertname": "VllmKVCacheThrash", "namespace": "serving", "deployment": "llm"},
        "annotations": {"runbook_url": runbook},
        "startsAt": "2026-11-23T10:00:00Z",
        "generatorURL": query,
    }
    (alert,), _ = read_webhook(json.dumps({"version": "4", "alerts": [fired]}).encode())
    event = AlertChanged(event_id="a", alert=alert, at=START)
    linking = rules().model_copy(update={"dashboards": Dashboards(url=dashboard)})
    run = advance(fresh_run(), event, PLAYBOOK, linking).run
    message = card(run, links={})
    assert not problems_of_blocks(list(message.blocks))
    return json.dumps(message.blocks, ensure_ascii=False)


def test_a_card_links_the_runbook_the_dashboard_and_the_query_of_its_alert() -> None:
    links = "<https://wiki/kv|Runbook> · <https://g/llm?to=now|Dashboard> · "
    assert f"{links}<http://prometheus:9090/graph?g0.expr=up%3E1&amp;g0.tab=1|Query>" in shown("https://wiki/kv")


@pytest.mark.parametrize("hostile", ["javascript:alert(1)", "https://a|<!channel>", "https://a/>x<!here>", "data:,x"])
def test_a_hostile_address_is_not_on_the_card(hostile: str) -> None:
    blocks = shown(hostile, query=hostile, dashboard="")
    assert "🔗" not in blocks
    assert "<!channel" not in blocks
    assert "<!here" not in blocks
    assert "javascript" not in blocks


def test_an_address_cannot_become_a_tag_by_being_unescaped() -> None:
    assert "https://a/?q=&amp;lt;!here&amp;gt;" in shown("https://a/?q=&lt;!here&gt;")


def test_an_address_that_is_too_long_is_left_out_and_the_others_stay() -> None:
    blocks = shown("https://wiki/kv", query="https://p/" + "q" * 1_980)
    assert "Runbook" in blocks
    assert "Query" not in blocks
