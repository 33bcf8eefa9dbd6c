"""People are paged while users are affected, and no longer: raised and lowered while the incident is open."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.run import NEXT_STATUS
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story
from tests.flow.test_harms import shipped_case

pytestmark = pytest.mark.fast


def receives(story: Story, status: Any = "firing", **labels: Any) -> Story:
    story.happens(AlertChanged(event_id=story.id(), alert=builders.alert(status, **labels)))
    return story


def opened(severity: str = "warning", bundle: Bundle | None = None) -> Story:
    story = Story(bundle) if bundle else Story()
    story.run = story.run.with_(severity="page" if severity == "critical" else "ticket")
    return receives(story, severity=severity)


def test_a_critical_alert_that_joins_raises_it_and_somebody_is_expected_to_say_how_it_stands() -> None:
    story = opened()
    assert NEXT_STATUS not in story.run.deadlines
    receives(story, fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    assert story.run.severity == "page"
    assert story.texts("severity") == ["severity raised from ticket to page: SLOBurnsFast fires"]
    assert NEXT_STATUS in story.run.deadlines


def test_the_timeline_has_the_alerts_name_as_it_is_written() -> None:
    story = receives(opened(), fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    assert story.texts("severity") == ["severity raised from ticket to page: SLOBurnsFast fires"]
    assert story.run.posts == (), "the card shows how urgent it is"


def test_it_is_lowered_when_nothing_critical_fires_any_more() -> None:
    story = opened()
    receives(story, fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    receives(story, "resolved", fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    assert story.run.severity == "ticket"
    assert story.texts("severity")[-1].startswith("severity lowered from page to ticket")
    assert NEXT_STATUS not in story.run.deadlines


def test_a_critical_alert_that_reopens_it_raises_it_again() -> None:
    story = opened("critical")
    receives(story, "resolved", severity="critical").says("resolve")
    assert (story.run.is_open, story.run.severity) == (False, "ticket")
    receives(story, starts_at=story.at, severity="critical")
    assert (story.run.is_open, story.run.severity) == (True, "page")
    assert NEXT_STATUS in story.run.deadlines


def test_a_second_critical_alert_that_still_fires_keeps_it() -> None:
    story = opened("critical")
    receives(story, fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    receives(story, "resolved", fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    assert story.run.severity == "page"
    assert story.texts("severity") == []


def test_the_end_of_a_warning_lowers_nothing() -> None:
    story = opened("critical")
    receives(story, fingerprint="f2", alertname="KVHigh", severity="warning")
    receives(story, "resolved", fingerprint="f2", alertname="KVHigh", severity="warning")
    assert story.run.severity == "page"


def finds(severity: str) -> Bundle:
    """The small playbook, whose state `choose` finds this severity."""
    text = TEXT.replace("    ask: What now?", f"    severity: {severity}\n    ask: What now?")
    return Bundle.of(load_text(text, file="small.yaml"))


FOUND = finds("page")


def test_what_a_playbook_found_is_not_lowered_by_an_alert_that_ends() -> None:
    story = opened("critical", FOUND).reads(0.95)
    assert story.run.visit.state == "choose"
    receives(story, "resolved", severity="critical")
    assert story.run.severity == "page"


def test_an_alert_that_overrode_a_finding_lowers_it_to_that_again_as_it_ends() -> None:
    story = opened(bundle=finds("ticket")).reads(0.95)
    receives(story, fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    receives(story, "resolved", fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
    assert story.texts("severity") == [
        "severity raised from ticket to page: SLOBurnsFast fires",
        "severity lowered from page to ticket: no alert that pages fires any more",
    ]


def test_a_state_that_found_it_out_raises_it_with_its_name() -> None:
    story = opened(bundle=FOUND).reads(0.95)
    assert story.run.severity == "page"
    assert story.texts("severity") == ["severity raised from ticket to page: choose"]


@pytest.mark.parametrize(
    ("name", "given", "severity"),
    [
        ("inference-slo-breach", {}, "page"),
        ("kv-cache-oom", {"thrash": 0, "kv_usage": 0.97, "waiting": 20, "ttft_p99": 0.3}, "ticket"),
        ("kv-cache-oom", {"thrash": 0, "kv_usage": 0.97, "waiting": 20, "ttft_p99": 0.6}, "page"),
        ("kv-cache-oom", {"thrash": 2, "ttft_p99": 0.3}, "ticket"),
        ("kv-cache-oom", {"thrash": 2, "ttft_p99": 0.3, "stall": True}, "page"),
        ("kv-cache-oom", {"ttft_p99": 0.3, "restarts": {"crashed": True}}, "page"),
        ("kv-compression-no-savings", {"ttft_change": 2, "ttft_p99": 1.2}, "page"),
    ],
)
async def test_the_shipped_playbooks_page_for_users_and_not_for_a_busy_server(
    name: str, given: dict[str, object], severity: str
) -> None:
    found = await shipped_case(name, given=given)
    assert found.run.severity == severity, found.path


def test_one_alert_that_pages_is_enough_among_others_that_do_not() -> None:
    story = receives(opened("critical"), fingerprint="f2", alertname="KVHigh", severity="warning")
    receives(story, fingerprint="f3", alertname="SLOBurnsFast", severity="critical")
    receives(story, "resolved", severity="critical")
    assert story.run.severity == "page"


def test_the_end_of_a_warning_does_not_lower_what_no_alert_had_raised() -> None:
    story = opened()
    story.run = story.run.with_(severity="page")
    assert receives(story, "resolved").run.severity == "page"


def test_an_alert_that_ends_raises_nothing() -> None:
    story = Story().opened()
    story.run = story.run.with_(severity="info", severity_found="info")
    ended = builders.alert("resolved", fingerprint="f2", severity="critical")
    story.happens(AlertChanged(event_id=story.id(), alert=ended))
    assert story.run.severity == "info"
