"""The report matches the timeline. Its timelines come from the machine itself, so the two cannot drift apart."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from bot.adapters.pictures.charts import drawn
from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import APPROVERS, Authority
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.event import (
    AlertChanged,
    Commanded,
    Due,
    Event,
    Judged,
    Planned,
    Posted,
    Pressed,
    SignalsRead,
    StepSettled,
    Watched,
)
from bot.domain.incidents.machine import advance
from bot.domain.incidents.run import Run, TimelineHead
from bot.domain.kernel.links import Dashboards
from bot.domain.kernel.timeline import Chained, Entry, StoredHead, chain
from bot.domain.playbooks.bundle import Bundle
from bot.domain.reports import as_json, html, markdown, report_of
from bot.domain.reports.chart import Chart
from bot.domain.reports.escaping import moment, one_line, plain
from bot.domain.reports.markdown_page import escaped
from bot.domain.signals.signal import Reading
from tests.builders import START, alert, plan, press, rules, run

pytestmark = pytest.mark.fast

SNAPSHOT = Path(__file__).parents[1] / "snapshots" / "report.md"
PLAYBOOK = load_text(
    """
language: 1
playbook: test
title: KV-cache OOM and preemption thrash
opens_on: ['alertname="VllmKVCacheThrash"']
signals:
  thrash: {ratio: [num_preemptions, request_success], over: 5m}
  gpu: {probe: gpu_health}
start: look
states:
  look:
    title: Look at the fleet
    read: [thrash, gpu]
    baseline: true
    go:
      - {when: thrash > 0.1, to: choose}
      - {otherwise: over}
    unknown: choose
  choose:
    ask: Which mitigation?
    choices:
      scale: {label: Scale out by one, to: grow}
      leave: {label: Leave it, to: over}
    expires: 20m
    expired: over
  grow:
    change: scale
    with: {by: 1}
    still: thrash > 0.1
    why: More pool.
    done: calm
  calm:
    watch: {calm: thrash < 0.01}
    for: 5m
    within: 20m
    held: over
    not_held: choose
  over: {end: fixed, say: one replica more}
"""
)
ALLOWED = Authority(allowed=True, reason="in the serving group", teams=(APPROVERS,), read_at=START)


@dataclass
class Story:
    """Events one after another through the real machine; collects the timeline they leave."""

    run: Run = field(default_factory=run)
    timeline: list[Chained] = field(default_factory=list)

    def receive(self, after: float, event: Event) -> "Story":
        at = START + after
        decision = advance(self.run, event.model_copy(update={"at": at}), Bundle.of(PLAYBOOK), rules())
        linked = chain(decision.entries, head=self.run.timeline.hash, length=self.run.timeline.length)
        self.timeline += linked
        head = linked[-1].hash if linked else self.run.timeline.hash
        self.run = decision.run.with_(timeline=TimelineHead(hash=head, length=len(self.timeline)))
        return self

    def opened(self) -> "Story":
        return self.receive(0, AlertChanged(event_id="a", alert=alert()))

    def read(self, after: float, thrash: float) -> "Story":
        effect = f"v{self.run.visit.number}/read"
        readings = {
            "thrash": Reading(name="thrash", value=thrash, at=START),
            "gpu": Reading(name="gpu", unknown="no exporter | answers", at=START),
        }
        return self.receive(after, SignalsRead(event_id=effect, effect_id=effect, readings=readings))

    def pressed(self, after: float, **fields: Any) -> "Story":
        clicked = press(press_id=f"p{after}", **fields)
        self.receive(after, Pressed(event_id=f"pressed/{after}", press=clicked))
        judged = Judged(event_id=f"judged/{after}", press=clicked, pressed_at=START + after, authority=ALLOWED)
        return self.receive(after + 1, judged)

    def planned(self, after: float) -> "Story":
        effect = f"v{self.run.visit.number}/plan/0"
        result = PlanResult(outcome="planned", plan=plan())
        return self.receive(after, Planned(event_id=effect, effect_id=effect, result=result))

    def posted(self, after: float) -> "Story":
        slot = f"request:{self.request_id}"
        return self.receive(after, Posted(event_id=slot, slot=slot, ts="1.0001", channel="C0INC"))

    def applied(self, after: float) -> "Story":
        about = self.request_id
        return self.receive(
            after,
            StepSettled(
                event_id=f"step/{after}", effect_id="apply", request_id=about, step=0, call_id=f"INC-1/{about}/0",
                result="done", detail="200 OK",
            ),
        )  # fmt: skip

    def calm(self, after: float) -> "Story":
        effect = f"v{self.run.visit.number}/watch"
        readings = {"thrash": Reading(name="thrash", value=0.0, at=START + after)}
        watched = Watched(
            event_id=effect, effect_id=effect, verdict="held", parts={"calm": "held"}, readings=readings,
            detail="calm for 5 m",
        )  # fmt: skip
        return self.receive(after, watched)

    @property
    def request_id(self) -> str:
        return self.run.change.request_id if self.run.change else ""


def fixed() -> Story:
    story = Story().opened().read(2, 2.81).pressed(60, about="Q1", action="choose", value="scale", digest="")
    story.planned(65).posted(70).pressed(130, about="R2", channel="C0INC").applied(140)
    story.receive(150, Commanded(event_id="n", command="note", user="ben", text="graph <https://g|looks> fine | to me"))
    return story.calm(500)


def test_the_report_of_a_fixed_incident_reads_as_reviewed() -> None:
    now = markdown(fixed().timeline)
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        SNAPSHOT.parent.mkdir(exist_ok=True)
        SNAPSHOT.write_text(now)
    assert now == SNAPSHOT.read_text(), "review the difference, then run with UPDATE_SNAPSHOTS=1"


def entered(runbook: object) -> list[Chained]:
    entry = Entry(kind="entered", at=START, state="cap", text="Cap", data={"kind": "change", "runbook": runbook})
    return list(chain([entry], head="0" * 64, length=0))


def test_a_step_of_the_runbook_is_in_the_path_with_its_link() -> None:
    linked = markdown(entered({"step": "3.2 [Cap]", "url": "https://wiki/kv#3"}))
    assert r"| [3.2 \[Cap\]](<https://wiki/kv#3>) |" in linked
    assert "| 3.2 |" in markdown(entered({"step": "3.2", "url": "javascript:alert(1)"}))
    assert "runbook" not in markdown(entered("altered"))


def as_svg(chart: Chart) -> bytes:
    return drawn(chart, "svg")


def opened_with(**data: Any) -> list[Chained]:
    """The report of an incident whose playbook has a related runbook, and whose target has a dashboard."""
    text = PLAYBOOK.source.text.replace(
        "start: look\n", "related: [{runbook: GPU fault, playbook: gpu}]\nstart: look\n"
    )
    fired = alert().model_copy(
        update={"annotations": {"runbook_url": "https://wiki/kv"}, "generator_url": "http://p/g"}
    )
    dashboards = Dashboards(url="https://g/$workload?from=$from&to=$to")
    with_dashboards = rules().model_copy(update={"dashboards": dashboards})
    event = AlertChanged(event_id="a", alert=fired, at=START)
    entries = advance(run(), event, Bundle.of(load_text(text)), with_dashboards).entries
    altered = [
        each.model_copy(update={"data": each.data | data}) if each.kind == "opened" else each for each in entries
    ]
    return list(chain(altered, head="0" * 64, length=0))


def test_a_report_links_the_alerts_runbook_its_query_the_dashboard_and_related_runbooks() -> None:
    page, web = markdown(opened_with()), html(opened_with(), as_svg)
    began = int((START - 3600) * 1000)
    for label, url in (
        ("Runbook", "https://wiki/kv"),
        ("Dashboard", f"https://g/llm?from={began}&to=now"),
        ("Query", "http://p/g"),
    ):
        assert f"[{label}](<{url}>)" in page
        assert f'href="{url.replace("&", "&amp;")}"' in web
    assert "GPU fault (`gpu`)" in page
    assert "GPU fault" in web


def test_a_report_links_no_address_that_is_not_safe() -> None:
    hostile = {"annotations": {"runbook_url": "javascript:alert(1)"}, "generator_url": 'https://p/"onclick=x'}
    related = [{"runbook": "<b>x", "url": "data:,x", "playbook": ""}, "altered"]
    entries = opened_with(**hostile, dashboard="javascript:$from", related=related)
    for page in (markdown(entries), html(entries, as_svg)):
        assert "Related runbooks" in page
        head = page.partition("Ending")[0]
        assert "javascript" not in head
        assert "onclick" not in head
        assert "<b>" not in head


def test_entering_a_state_records_its_step_of_the_runbook() -> None:
    text = PLAYBOOK.source.text.replace("    title: Look at the fleet\n", "    runbook: {step: 1 Look, url: wiki}\n")
    decision = advance(run(), AlertChanged(event_id="a", alert=alert(), at=START), Bundle.of(load_text(text)), rules())
    assert decision.run.visit.runbook is not None
    recorded = [entry.data.get("runbook") for entry in decision.entries if entry.kind == "entered"]
    assert recorded == [{"step": "1 Look", "url": "wiki"}]


def test_the_opening_names_the_incident_when_it_is_recorded() -> None:
    named = {"incident": "INC-7", "title": "Thrash", "target": "serving/llm", "severity": "page", "playbook": "kv"}
    report = report_of(chain([Entry(kind="opened", at=START, text="opened", data=named)], head="0" * 64, length=0))
    assert report.model_dump(include=set(named)) == named


def test_the_severity_is_the_one_that_the_card_shows() -> None:
    def fires(after: float, status: str) -> None:
        joined = alert(status, fingerprint="f2", alertname="SLOBurnsFast", severity="critical")
        story.receive(after, AlertChanged(event_id=f"joins/{after}", alert=joined))

    story = Story().opened()
    shown = []
    for after, status in [(10, "firing"), (20, "resolved")]:
        fires(after, status)
        shown.append((report_of(story.timeline).severity, story.run.severity))
    assert shown == [("page", "page"), ("ticket", "ticket")]


def test_times_count_from_the_opening() -> None:
    report = report_of(fixed().timeline)
    assert (report.act_seconds, report.close_seconds, report.ending) == (61, 500, "fixed")


def test_users_are_counted_from_the_alert_as_on_the_card() -> None:
    late = alert(starts_at=START - 100)
    story = Story(run=run(starts_at=START - 100)).receive(0, AlertChanged(event_id="a", alert=late))
    report = report_of(story.timeline)
    assert (report.began_at, report.opened_at) == (story.run.starts_at, START)
    page = markdown(story.timeline)
    assert "The incident began 2027-01-15 07:58:20 UTC and is still open" in page


def test_an_end_is_shown_as_long_after_the_alert_as_on_the_card() -> None:
    fires = alert(starts_at=START - 100).evidence() | {"target": "serving/llm"}
    opened = Entry(kind="opened", at=START, text="opened", data=fires)
    closed = Entry(kind="closed", at=START + 20, text="closed", data={"ending": "fixed", "held": []})
    page = markdown(chain((opened, closed), head="0" * 64, length=0))
    assert "without a change by the bot 2 min after the alert" in page


def test_an_open_incident_has_no_end_and_no_mttr() -> None:
    report = report_of(Story().opened().read(2, 2.81).timeline)
    assert (report.closed_at, report.close_seconds, report.act_seconds, report.ending) == (None, None, None, "")


def test_a_reopened_incident_is_open() -> None:
    again = fixed().receive(600, AlertChanged(event_id="b", alert=alert(starts_at=START + 590)))
    assert again.run.is_open
    assert report_of(again.timeline).closed_at is None


def test_time_waited_is_from_asked_to_decided() -> None:
    report = report_of(fixed().timeline)
    assert [(wait.about, wait.asked_at - START, wait.ended_at) for wait in report.waits] == [
        ("Q1", 2, START + 61),
        ("R2", 65, START + 131),
    ]
    assert report.waited_seconds == 59 + 66


def test_what_nobody_answered_was_waited_for_until_it_expired() -> None:
    story = Story().opened().read(2, 2.81)
    due_at = story.run.deadlines["question:Q1:expiry"]
    story.receive(due_at - START, Due(event_id="d", deadline="question:Q1:expiry", due_at=due_at))
    report = report_of(story.timeline)
    assert report.waited_seconds == 20 * 60
    assert [(it.who, it.what) for it in report.decisions] == [
        ("", "Which mitigation? — question Q1 expired without an answer")
    ]


def test_a_request_that_is_still_open_was_waited_for_until_the_last_entry() -> None:
    story = Story().opened().read(2, 2.81).pressed(60, about="Q1", action="choose", value="scale", digest="")
    story.planned(65).receive(100, Commanded(event_id="n", command="note", user="ben", text="looking"))
    assert report_of(story.timeline).waited_seconds == 59 + 35


def test_what_a_command_withdraws_is_not_waited_for() -> None:
    story = fixed_until_watch()
    story.receive(200, Commanded(event_id="u", command="undo", user="ben")).planned(210)
    story.receive(230, Commanded(event_id="r", command="resolve", user="ben"))
    assert [(wait.about, wait.ended_at) for wait in report_of(story.timeline).waits][-1] == ("R3", START + 230)


def fixed_until_watch() -> Story:
    story = Story().opened().read(2, 2.81).pressed(60, about="Q1", action="choose", value="scale", digest="")
    return story.planned(65).posted(70).pressed(130, about="R2", channel="C0INC").applied(140)


def test_decisions_name_the_person_and_the_plan() -> None:
    answered, granted = report_of(fixed().timeline).decisions
    assert (answered.who, answered.what) == ("ana", "Which mitigation? — Scale out by one")
    assert (granted.who, granted.digest) == ("ana", plan().digest)
    assert report_of(fixed().timeline).people == {"ana": "Ana"}


def test_who_reopened_an_incident_is_among_what_people_decided() -> None:
    story = fixed().receive(900, Commanded(event_id="r", command="reopen", user="ben", text="it fires again"))
    *_, reopened = report_of(story.timeline).decisions
    assert (reopened.who, reopened.what) == ("ben", "reopened by hand: it fires again")


def test_a_call_shows_before_and_after() -> None:
    (called,) = report_of(fixed().timeline).calls
    assert called.done
    assert called.differences == ("replicas 4 → 5",)


def test_readings_compare_the_baseline_with_the_last() -> None:
    thrash, gpu = report_of(fixed().timeline).readings
    assert thrash.baseline is not None
    assert thrash.last is not None
    assert (thrash.baseline.value, thrash.last.value) == (2.81, 0.0)
    assert gpu.last is not None
    assert not gpu.last.is_known


def test_each_reading_says_when_it_was_read() -> None:
    page = markdown(fixed().timeline)
    assert "| `thrash` | 2.81 | 2027-01-15 08:00:00 | 0 | 2027-01-15 08:08:20 |" in page


def test_what_is_still_held_is_named() -> None:
    assert report_of(fixed().timeline).held == ("scale llm from 4 to 5",)


DIAGNOSIS = {
    "cause": "Requests are preempted.",
    "users": "Users wait 5 s (target 2 s)",
    "checks": [
        ["found", "a deploy shortly before it (rolled out 2 min before)"],
        ["ruled_out", "a crash"],
        ["unknown", "a node fault"],
        "altered",
    ],
}


def page_of(*more: Entry) -> str:
    opened = Entry(kind="opened", at=START, text="opened", data={"target": "serving/llm", "labels": {"alertname": "A"}})
    entries = (opened, Entry(kind="diagnosis", at=START + 9, text="KV cache full", data=DIAGNOSIS), *more)
    return markdown(chain(entries, head="0" * 64, length=0))


def test_the_first_lines_say_what_happened_to_whom_why_and_what_was_done() -> None:
    end = {"ending": "fixed", "held": [], "users": "Users wait 1 s (target 2 s)"}
    page = page_of(Entry(kind="closed", at=START + 600, text="closed", data=end))
    ended = "verified without a change by the bot 10 min after the alert"
    assert f"**What happened:** KV cache full on serving/llm, opened by A; {ended}" in page
    assert (
        "**Users:** Users wait 5 s (target 2 s); at the end users wait 1 s (target 2 s). The incident lasted from "
        in page
    )
    found = "Found: a deploy shortly before it (rolled out 2 min before)."
    sorted_out = "Ruled out: a crash. Could not be ruled out: a node fault."
    assert f"**Cause:** Requests are preempted. {found} {sorted_out}" in page
    assert "**What was done:** nothing was changed" in page


def test_without_a_diagnosis_that_has_a_name_the_report_is_called_as_the_card() -> None:
    opening = {"target": "serving/llm", "title": "KV compression saves nothing"}
    opened = Entry(kind="opened", at=START, text="opened", data=opening)
    unclear = Entry(kind="diagnosis", at=START + 9, text="not clear yet", data=DIAGNOSIS | {"title": ""})
    page = markdown(chain((opened, unclear), head="0" * 64, length=0))
    assert "not clear yet" not in page.partition("## ")[0]
    assert "**What happened:** KV compression saves nothing on serving/llm" in page


def test_a_change_that_never_ended_and_is_in_place_was_not_nothing() -> None:
    end = {"ending": "accepted_degraded", "held": ["Set a limit on llm"], "users": ""}
    page = page_of(Entry(kind="closed", at=START + 600, text="closed", data=end))
    assert "**What was done:** a change began and did not end" in page
    assert "**Still in place:** Set a limit on llm" in page


@pytest.mark.parametrize(
    ("ending", "is_named"),
    [("resolved_by_hand", True), ("accepted_degraded", True), ("self_cleared", True), ("fixed", False)],
)
def test_an_incident_that_closed_while_its_alerts_fired_says_so(ending: str, *, is_named: bool) -> None:
    end = {"ending": ending, "held": [], "users": "", "firing": ["VllmKVCacheThrash", "VllmQueue"]}
    page = page_of(Entry(kind="closed", at=START + 600, text="closed", data=end))
    assert ("**Still firing:** VllmKVCacheThrash, VllmQueue" in page) is is_named


def test_an_approval_that_was_not_applied_says_why() -> None:
    approved = Entry(kind="decided", at=START + 60, text="approved R1: cap", who="U0ANA", data={"request": "R1"})
    moved = Entry(kind="planned", at=START + 61, text="R1 superseded: the flags were edited meanwhile")
    assert "approved R1: cap (not applied: the flags were edited meanwhile)" in page_of(approved, moved)


def pressed(about: str, who: str, after: float) -> Entry:
    data = {"action": "approve", "about": about, "user": who, "user_name": who.lower()}
    return Entry(kind="press", at=START + after, text=f"pressed approve on {about}", who=who, data=data)


def asked(name: str, after: float, text: str = "", **data: Any) -> Entry:
    data |= {"request": name, "plan": {"title": "cap"}}
    return Entry(kind="request", at=START + after, text=f"{name} (low risk): cap{text}", data=data)


def test_a_press_that_did_not_count_is_no_approval_and_no_first_act() -> None:
    refused = "press 'approve' on R1 does not count: you are not in @serving-oncall"
    data = {"request": "R1"}
    report = report_of(chain([
        Entry(kind="opened", at=START, text="opened"),
        asked("R1", 1),
        pressed("R1", "STRANGER", 10),
        Entry(kind="press", at=START + 10, text=refused, who="STRANGER"),
        pressed("R1", "BEN", 20),
        Entry(kind="press", at=START + 20, text="approval 1 of 2: one more is needed", who="BEN", data=data),
        pressed("R1", "ANA", 30),
        Entry(kind="decided", at=START + 30, text="approved R1: cap", who="ANA", data=data),
        Entry(kind="outcome", at=START + 40, text="cap: done", data=data),
    ], head="0" * 64, length=0))  # fmt: skip
    assert [it.by for it in report.applied] == [("BEN", "ANA")]
    assert report.act_seconds == 20


def test_what_is_only_announced_waits_for_nobody() -> None:
    text = " — announced, not approved: it only cleans up"
    done = Entry(kind="outcome", at=START + 9, text="remove: done", data={"request": "R1"})
    report = report_of(chain([asked("R1", 1, text, waits=False), done], head="0" * 64, length=0))
    assert (report.waits, report.waited_seconds) == ((), 0.0)


def test_a_change_that_another_approval_covers_names_who_gave_it() -> None:
    approved = Entry(kind="decided", at=START + 2, text="approved R1: cap", who="ana", data={"request": "R1"})
    rest = asked("R2", 5, " — announced, not approved: R1 covers it", waits=False, announced="R1 covers it")
    done = Entry(kind="outcome", at=START + 9, text="roll it out: done", data={"request": "R2"})
    report = report_of(chain([asked("R1", 1), approved, rest, done], head="0" * 64, length=0))
    assert [(it.request, it.by) for it in report.applied] == [("R2", ("ana",))]


def test_follow_ups_are_what_people_wrote_and_what_the_timeline_suggests() -> None:
    written = Entry(kind="followup", at=START + 99, text="raise the limit in git", who="U1")
    page = page_of(
        written, Entry(kind="closed", at=START + 600, text="closed", data={"ending": "fixed", "held": ["cap"]})
    )
    section = page.partition("## Follow-ups")[2].partition("##")[0]
    assert "| raise the limit in git | `U1` |" in section
    assert "Make it permanent or take it back: cap | suggested by the timeline" in section
    assert "Make it possible to rule out a node fault: it could not be read" in section


def test_phases_join_what_was_read_to_the_change_or_check_before_it() -> None:
    kinds = [("look", "read"), ("more", "read"), ("cap", "change"), ("done", "read"), ("calm", "watch"), ("end", "end")]
    entered = [
        Entry(kind="entered", at=START + 10 * place, text=f"Title {name} — why", state=name, data={"kind": kind})
        for place, (name, kind) in enumerate(kinds)
    ]
    called = Entry(kind="call", at=START + 21, text="done: cap", state="cap")
    report = report_of(chain([*entered[:3], called, *entered[3:]], head="0" * 64, length=0))
    assert [(phase.name, phase.took_seconds) for phase in report.phases] == [
        ("Diagnosis", 20), ("Title cap", 20), ("Title calm", 10),
    ]  # fmt: skip


def test_a_change_that_never_began_is_no_phase_but_a_question_to_people() -> None:
    kinds = [("look", "read"), ("grow", "change"), ("calm", "watch")]
    entered = [
        Entry(kind="entered", at=START + 10 * place, text=f"Title {name} — why", state=name, data={"kind": kind})
        for place, (name, kind) in enumerate(kinds)
    ]
    report = report_of(chain(entered, head="0" * 64, length=0))
    assert [phase.name for phase in report.phases] == ["Diagnosis", "Question to people", "Title calm"]


def test_a_change_with_the_values_of_a_person_is_called_by_its_plan() -> None:
    entered = Entry(kind="entered", at=START, text="Limit to 7 — why", state="cap", data={"kind": "change"})
    first, second = ({"request": name, "plan": {"title": f"Set it to {to}"}} for name, to in (("R1", 7), ("R2", 9)))
    entries = [
        entered,
        Entry(kind="request", at=START + 1, text="R1", state="cap", data=first),
        Entry(
            kind="decided",
            at=START + 2,
            text="request R1 edited: it 9",
            who="U0ANA",
            state="cap",
            data={"values": {"it": 9}},
        ),
        Entry(kind="request", at=START + 3, text="R2", state="cap", data=second),
        Entry(kind="call", at=START + 4, text="done: set", state="cap"),
    ]
    assert [phase.name for phase in report_of(chain(entries, head="0" * 64, length=0)).phases] == ["Set it to 9"]
    assert [phase.name for phase in report_of(chain([entered, entries[-1]], head="0" * 64, length=0)).phases] == [
        "Limit to 7"
    ]


def test_an_altered_entry_breaks_the_chain_there() -> None:
    timeline = fixed().timeline
    forged = timeline[3].entry.model_copy(update={"text": "nothing happened"})
    timeline[3] = timeline[3].model_copy(update={"entry": forged})
    assert report_of(timeline).broken_at == 4
    assert "**broken at entry 4**" in markdown(timeline)


def stored_head(story: Story) -> StoredHead:
    return StoredHead(head=story.run.timeline.hash, length=story.run.timeline.length)


def test_a_timeline_that_ends_as_the_run_says_is_reported_so() -> None:
    story = fixed()
    assert "consistent, and its end matches the stored incident" in markdown(story.timeline, stored_head(story))
    assert json.loads(as_json(story.timeline, stored_head(story)))["report"]["head_fault"] == ""


@pytest.mark.parametrize(
    ("altered", "text"),
    [
        pytest.param(lambda t: t[:-2], "the last 2 of them are missing", id="its end was cut off"),
        pytest.param(
            lambda t: [*t, *chain([Entry(kind="note", at=START, text="x")], head=t[-1].hash, length=len(t))],
            "and those after it were added without the run",
            id="an entry was added",
        ),
        pytest.param(
            lambda t: list(chain([each.entry for each in reversed(t)], head="0" * 64, length=0)),
            "is not the one that the run ends in",
            id="a whole new chain was written",
        ),
    ],
)
def test_a_consistent_chain_that_is_not_the_runs_own_is_reported(altered: Any, text: str) -> None:
    story = fixed()
    page = markdown(altered(story.timeline), stored_head(story))
    assert "**its end does not match the stored incident**" in page
    assert text in page


def test_a_posted_head_is_found_in_the_chain() -> None:
    (found,) = report_of(fixed().timeline).heads
    # The head is the one from before the decision that made the request: the message cannot name itself.
    assert (found.entry, found.matches) == (11, 9)


def test_a_posted_head_that_is_nobodys_hash_is_reported() -> None:
    entries = [Entry(kind="slack", at=START, text="R1 posted", data={"head": "f" * 64, "ts": "1.1", "channel": "C1"})]
    assert "**matches no entry before it**" in markdown(chain(entries, head="0" * 64, length=0))


def test_the_json_export_holds_the_report_and_every_entry() -> None:
    timeline = fixed().timeline
    exported = json.loads(as_json(timeline))
    assert exported["report"]["close_seconds"] == 500
    assert [Chained.model_validate(item) for item in exported["timeline"]] == timeline


def test_an_empty_timeline_is_a_report_too() -> None:
    assert markdown([]).startswith("# Incident\n")
    assert json.loads(as_json([]))["timeline"] == []


@pytest.mark.parametrize("at", [1e300, float("nan"), float("inf"), -1e15])
def test_a_time_that_does_not_exist_is_reported(at: float) -> None:
    assert moment(at) == "(no such time)"


# --- text from outside ----------------------------------------------------------------------------------------------

PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")
NASTY = st.text() | st.text(alphabet="|`*_~[]()<>&!#\\$-+.1 \n\r\u2028\u202eab:/@", max_size=40)


OURS = {"text", "code_inline", "html_inline", "strong_open", "strong_close", "softbreak"}


def inlines(page: str) -> list[Token]:
    return [token for token in PARSER.parse(page) if token.type == "inline"]


@given(NASTY)
def test_text_in_a_table_is_shown_as_it_is(raw: str) -> None:
    cells = inlines(f"| a | b |\n| --- | --- |\n| {escaped(one_line(raw)) or '–'} | end |\n")
    assert len(cells) == 4
    shown = cells[2].children or []
    assert {token.type for token in shown} <= {"text"}
    assert "".join(token.content for token in shown) == (one_line(raw) or "–")
    assert cells[3].content == "end"


@settings(max_examples=30, deadline=None)
@given(NASTY, NASTY, NASTY)
def test_nothing_from_outside_alters_the_page(title: str, who: str, text: str) -> None:
    entries = [
        Entry(
            kind="opened", at=START, text=text, data={"annotations": {"summary": title}, "labels": {"severity": text}}
        ),
        Entry(kind="note", at=START, text=text, who=who or "U1", state=title),
        Entry(kind="decided", at=START, text=text, who=who, data={"digest": title, "reason": text}),
        Entry(kind="verdict", at=START, text=text, data={"verdict": title, "parts": {who: text}, "text": text}),
        Entry(kind="call", at=START, text=text, data={"call": title, "differences": [{"path": who, "before": text}]}),
        Entry(kind="closed", at=START, text=text, data={"ending": title, "held": [text]}),
    ]
    page = markdown(chain(entries, head="0" * 64, length=0))
    tokens = PARSER.parse(page)
    assert [token.tag for token in tokens if token.type == "heading_open"][:2] == ["h1", "h2"]
    assert len([token for token in tokens if token.type == "heading_open"]) == 9
    inside = [child for token in inlines(page) for child in token.children or []]
    assert {child.content for child in inside if child.type == "html_inline"} <= {"<br>"}
    assert {child.type for child in inside} <= OURS
    assert len([token for token in tokens if token.type == "tr_open"]) == expected_rows(entries)


def expected_rows(entries: list[Entry]) -> int:
    facts, decisions, calls, verdicts, follow_ups = 15, 2, 2, 2, 2
    return facts + decisions + calls + verdicts + follow_ups + 1 + len(entries)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=2)))
@example({"firing": 0})
def test_an_altered_entry_never_stops_a_report(data: dict[str, Any]) -> None:
    kinds = (
        "opened",
        "entered",
        "read",
        "baseline",
        "asked",
        "request",
        "decided",
        "call",
        "verdict",
        "slack",
        "closed",
    )
    entries = chain([Entry(kind=kind, at=START, text="x", data=data) for kind in kinds], head="0" * 64, length=0)
    assert markdown(entries)
    assert as_json(entries)


def test_what_is_still_in_place_while_it_is_open_is_what_the_last_call_left() -> None:
    def call(after: float, *held: str) -> Entry:
        return Entry(kind="call", at=START + after, text="done: x", data={"call": "c", "held": list(held)})

    assert "**Still in place:** Start a canary of llm" in page_of(call(10, "Start a canary of llm"))
    assert "**Still in place:** nothing so far" in page_of(call(10, "Start a canary of llm"), call(20))


def test_a_large_number_is_written_out() -> None:
    assert plain({"tokens": 12463.7, "empty": "", "ratio": 0.021234}) == "tokens 12,464, ratio 0.02123"


def test_people_who_only_typed_commands_are_named_in_the_report() -> None:
    ana = {"user": "U0ANA", "user_name": "ana"}
    note = Entry(
        kind="note", at=START + 20, text="<@U0ANA> handed over to <@U0BEN>: see <@U0EVE>", who="U0ANA", data=ana
    )
    undo = {"user": "U0BEN", "user_name": "ben"}
    page = page_of(note, Entry(kind="undo", at=START + 30, text="undo asked for: the cap", who="U0BEN", data=undo))
    assert "ana handed over to ben: see U0EVE" in page
    assert "| ben (`U0BEN`) | undo asked for: the cap |" in page
