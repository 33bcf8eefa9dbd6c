"""What a request lists for people and could not be read is noted beside it; it stops nothing."""

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Request
from bot.domain.incidents.event import SignalsRead
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading, unknown
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

TEXT = """
language: 1
playbook: small
title: A small playbook
opens_on: ['alertname=~".+"']
signals:
  usage: {label: KV cache in use, metric: kv_cache_usage_perc, over: 60s}
  node: {label: Health of the nodes, probe: gpu_health}
  room: {probe: capacity}
start: relieve
states:
  relieve:
    recommend: Which mitigation?
    read: [usage, node, room]
    still: usage > 0.5
    done: calm
    refused: calm
    none_possible: calm
    options:
      grow: {label: Add a replica, possible: usage > 0.9, change: scale, with: {by: 1}}
      stop: {label: Stop, to: calm}
  calm: {end: fixed, say: It is calm.}
"""
WELL = Reading(name="node", label="Health of the nodes", fields={"healthy": True, "fault": False, "thermal": False})


def notes_with(node: Reading) -> tuple[Request, list[str]]:
    story = Story(Bundle.of(load_text(TEXT, file="small.yaml"))).opened()
    usage = Reading(name="usage", label="KV cache in use", value=0.95, at=story.at)
    # A probe has words of its own too, but the playbook does not ask people to look at it.
    room = unknown("room", "nodes cannot be listed", at=story.at).model_copy(update={"label": "Room for replicas"})
    readings = {"usage": usage, "node": node, "room": room}
    story.happens(SignalsRead(event_id=story.id(), effect_id=f"v{story.run.visit.number}/read", readings=readings))
    request = story.planned().run.requests[story.request]
    return request, [one.text for one in request.plan.circumstances if one.name == "not_known"]


def test_what_was_read_is_not_noted() -> None:
    assert notes_with(WELL)[1] == []


def test_a_labelled_reading_that_is_unknown_is_noted_with_its_reason() -> None:
    node = unknown("node", "no exporter of NVIDIA or AMD on n1", at=1.0).model_copy(update={"label": WELL.label})
    request, notes = notes_with(node)
    assert notes == ["Health of the nodes is not known: no exporter of NVIDIA or AMD on n1"]
    assert {one.grade for one in request.plan.circumstances if one.name == "not_known"} == {"note"}


def test_a_part_that_is_unknown_is_noted_once_for_each_reason() -> None:
    parts = dict.fromkeys(("healthy", "fault"), "n1/0: XID 79 seen, its age is not known")
    node = WELL.model_copy(update={"fields": {"thermal": False}, "unknown_parts": parts})
    assert notes_with(node)[1] == ["Health of the nodes is not known: n1/0: XID 79 seen, its age is not known"]
