"""Sorting many incidents by what they have in common."""

from __future__ import annotations

import pytest

from bot.domain.incidents.common_cause import LABELS, Facts, Group, facts_of, groups
from bot.domain.signals.signal import Reading
from tests import builders

pytestmark = pytest.mark.fast


def incidents(count: int, *, first: int = 0, **facts: str) -> dict[str, Facts]:
    known = {kind: (facts[kind],) for kind in LABELS if kind in facts}
    return {f"INC-{first + number}": known for number in range(count)}


def sizes(found: list[Group]) -> list[tuple[str, str, int]]:
    return [(group.kind, group.value, len(group.incidents)) for group in found]


def test_incidents_of_one_node_are_one_group() -> None:
    facts = incidents(5, node="gpu-1", zone="a", model="llama", alert="Dead")
    assert sizes(groups(facts)) == [("node", "gpu-1", 5)]


def test_a_zone_with_many_bad_nodes_is_one_group() -> None:
    facts: dict[str, Facts] = {}
    for node in range(40):
        facts |= incidents(5, first=5 * node, node=f"gpu-{node}", zone="a", alert="Dead")
    assert sizes(groups(facts)) == [("zone", "a", 200)]


def test_three_bad_nodes_of_one_zone_are_three_groups() -> None:
    facts: dict[str, Facts] = {}
    for node in range(3):
        facts |= incidents(5 + node, first=10 * node, node=f"gpu-{node}", zone="a")
    assert sizes(groups(facts)) == [("node", "gpu-2", 7), ("node", "gpu-1", 6), ("node", "gpu-0", 5)]


def test_causes_that_overlap_in_time_are_distinguished() -> None:
    facts = incidents(100, zone="a", alert="Dead") | incidents(20, first=200, deploy="image v1 → v2", alert="Slow")
    facts |= incidents(6, first=300, model="llama", alert="Slow") | incidents(4, first=400, alert="Slow")
    assert sizes(groups(facts)) == [
        ("zone", "a", 100), ("deploy", "image v1 → v2", 20), ("model", "llama", 6), ("alert", "Slow", 4),
    ]  # fmt: skip


def test_two_are_no_storm_and_what_is_not_known_is_in_no_group() -> None:
    assert groups(incidents(2, node="gpu-1") | incidents(5, first=10)) == []


def test_an_incident_is_in_one_group_only() -> None:
    facts = incidents(4, node="gpu-1") | incidents(4, first=10, node="gpu-2")
    facts["INC-0"] = {"node": ("gpu-1", "gpu-2")}
    found = groups(facts)
    assert sizes(found) == [("node", "gpu-2", 5), ("node", "gpu-1", 3)]
    assert len({name for group in found for name in group.incidents}) == 8


def test_facts_come_from_the_alerts_that_fire_and_from_readings() -> None:
    over = builders.alert("resolved", fingerprint="f1", alertname="Old", node="gpu-9")
    fires = builders.alert(fingerprint="f2", alertname="Dead", model_name="llama")
    readings = {
        "bad": Reading(name="bad", value=True, fields={"node": "gpu-1", "zone": ""}),
        "rollout": Reading(name="rollout", value=True, fields={"matters": True, "summary": "image v1 → v2"}),
    }
    found = facts_of(builders.run(alerts={"f1": over, "f2": fires}, latest=readings))
    assert found == {"node": ("gpu-1",), "deploy": ("image v1 → v2",), "model": ("llama",), "alert": ("Dead",)}


def test_a_rollout_that_cannot_be_the_cause_is_none() -> None:
    readings = {"rollout": Reading(name="rollout", value=True, fields={"matters": False, "summary": "replicas 1 → 2"})}
    assert facts_of(builders.run(latest=readings)) == {}


def test_nodes_of_two_clusters_with_one_name_are_two() -> None:
    target = builders.TARGET.model_copy(update={"among_several": True, "cluster": "west"})
    alert = builders.alert(alertname="Dead", node="gpu-1")
    assert facts_of(builders.run(target=target, alerts={"f": alert}))["node"] == ("west/gpu-1",)
