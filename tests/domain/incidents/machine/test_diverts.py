"""Diverts, frames, limits and offers: where a run continues in another playbook, and its knowledge on return."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.contacts import Contact, Contacts
from bot.domain.incidents.effect import Notify, RouteAgain
from bot.domain.incidents.event import AlertChanged
from bot.domain.incidents.machine.entering import MAX_DIVERTS
from bot.domain.incidents.run import Offer
from bot.domain.playbooks.bundle import Bundle
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

OUTER = """
language: 1
playbook: outer
title: The outer one
priority: 50
opens_on: ['alertname=~".+"']
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: look
states:
  look:
    read: [usage]
    baseline: true
    go:
      - {when: usage > 0.9, to: other}
      - {otherwise: calm}
  other:
    divert: inner
    why: It looks like something else.
    returns: {fixed: verify, not_applicable: choose}
  verify:
    watch: {better: usage < baseline.usage}
    for: 10s
    within: 1m
    held: calm
    not_held: look
  choose:
    ask: What now?
    choices: {again: {label: Again, to: other}, leave: {label: Leave, to: gone}}
    at_most: 2
    beyond: calm
  gone: {divert: inner, why: For good.}
  calm: {end: fixed}
"""
INNER = """
language: 1
playbook: inner
title: The inner one
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: ask
states:
  ask:
    ask: Is it this?
    choices:
      fixed: {label: Fixed, to: fixed}
      not_it: {label: Not it, to: not_it}
      people: {label: People, to: people}
  fixed: {end: fixed}
  not_it: {end: not_applicable, say: It is something else.}
  people: {end: handed_over}
"""


def bundle(outer: str = OUTER, inner: str = INNER) -> Bundle:
    library = {"outer": load_text(outer), "inner": load_text(inner)}
    return Bundle.of(library["outer"], library)


BUNDLE = bundle()


def story() -> Story:
    return Story(BUNDLE).opened().reads(0.95)


def test_a_bundle_holds_all_that_can_be_come_to() -> None:
    assert set(BUNDLE.playbooks) == {"outer", "inner"}
    assert BUNDLE.digest != bundle(inner=INNER.replace("handed_over", "unproven")).digest


def test_a_divert_goes_on_in_the_other_playbook_and_asks_nobody() -> None:
    run = story().run
    assert (run.playbook, run.visit.state, run.findings.path) == ("inner", "ask", ("ask",))
    assert (run.findings.results, run.findings.baseline) == ({}, {})
    (frame,) = run.frames
    assert (frame.playbook, frame.state, frame.findings.path) == ("outer", "other", ("look", "other"))


def test_its_end_leads_back_with_everything_that_was_known() -> None:
    went = story().chooses("fixed")
    run = went.run
    assert (run.playbook, run.visit.state, run.is_open, run.frames) == ("outer", "verify", True, ())
    assert run.findings.path == ("look", "other", "verify")
    assert run.findings.results["look"]["usage"].value == 0.95
    assert run.findings.baseline["usage"].value == 0.95
    assert run.findings.answers == {}
    assert went.watched("held").run.ending == "fixed"


def test_a_divert_to_a_playbook_that_waits_for_this_one_comes_back_to_it() -> None:
    """Two playbooks that each take the trouble for the other's would else divert until people are asked."""
    back = INNER.replace("  people: {end: handed_over}", "  people: {divert: outer, why: It is yours after all.}")
    both = OUTER.replace("not_applicable: choose}", "not_applicable: choose, otherwise: choose}")
    run = Story(bundle(both, back)).opened().reads(0.95).chooses("people").run
    assert (run.playbook, run.visit.state, run.frames, run.diverts) == ("outer", "choose", (), 1)
    assert run.findings.path == ("look", "other", "choose"), "what was known, and how often each state was entered"


def test_at_the_end_there_is_no_second_diagnosis() -> None:
    """The outer playbook, back from the inner one, has posted none itself; people have read what was found."""
    outer = OUTER.replace("to: other}\n", "to: other, note: a full pool}\n", 1)
    look = "  look: {read: [usage], go: [{when: usage > 0.9, to: ask, note: full}, {otherwise: ask}], unknown: ask}\n"
    asks = INNER.replace("start: ask\nstates:\n", f"start: look\nstates:\n{look}")
    went = Story(bundle(outer=outer, inner=asks)).opened().reads(0.95).reads(0.95)
    assert [post.kind for post in went.run.posts] == ["diagnosis", "question"]
    went.chooses("fixed").watched("held")
    assert went.run.ending == "fixed"
    assert [post.kind for post in went.run.posts] == ["diagnosis", "question", "closed"]


def test_what_was_closed_within_a_divert_is_reopened_at_the_start_of_its_own_playbook() -> None:
    run = story().says("resolve").says("reopen", text="it came back").run
    assert (run.playbook, run.visit.state, run.frames) == ("outer", "look", ())


def test_a_question_that_was_left_behind_is_not_called_open() -> None:
    went = story()
    asked = went.run.question
    went.says("resolve").says("reopen", text="it came back").chooses("fixed", about=asked)
    assert f"question {asked} was already withdrawn" in went.wanted(Notify).text


def test_an_end_that_nobody_wrote_asks_people() -> None:
    run = story().chooses("people").run
    assert (run.playbook, run.visit.state) == ("outer", "other")
    assert run.open_question is not None
    assert "inner ended with 'handed_over'" in run.open_question.text
    assert {"goto:verify", "goto:choose"} <= run.open_question.choices.keys()


def test_an_end_that_nobody_wrote_takes_otherwise() -> None:
    other = bundle(OUTER.replace("not_applicable: choose", "otherwise: choose"))
    assert Story(other).opened().reads(0.95).chooses("people").run.visit.state == "choose"


def test_a_divert_without_return_ends_the_incident_where_it_ends() -> None:
    went = story().chooses("not_it").chooses("leave")
    assert (went.run.playbook, went.run.visit.state, went.run.frames) == ("inner", "ask", ())
    assert went.chooses("people").run.ending == "handed_over"


def test_what_was_entered_too_often_leads_beyond() -> None:
    went = story().chooses("not_it").chooses("again").chooses("not_it").chooses("again")
    assert went.run.visit.state == "ask"
    run = went.chooses("not_it").run
    assert (run.visit.state, run.ending) == ("calm", "fixed")
    assert any("'choose' was entered 2 times already" in text for text in went.texts("entered"))


def test_what_may_be_entered_once_leads_beyond_the_second_time_and_past_what_is_full_itself() -> None:
    once = OUTER.replace("at_most: 2\n    beyond: calm", "at_most: 1\n    beyond: verify").replace(
        "    not_held: look\n", "    not_held: look\n    at_most: 1\n    beyond: calm\n"
    )
    went = Story(bundle(once)).opened().reads(0.95).chooses("not_it").chooses("again").chooses("not_it")
    assert went.run.visit.state == "verify"
    went.watched("not_held").reads(0.95).chooses("not_it")
    assert (went.run.visit.state, went.run.ending) == ("calm", "fixed")
    entered = [entry for entry in went.last.entries if entry.kind == "entered"][-1]
    assert entered.data["instead_of"] == ["choose", "verify"]
    assert any("'choose' was entered 1 time already" in text for text in went.texts("entered"))


MIDDLE = INNER.replace("playbook: inner", "playbook: middle").replace(
    "  people: {end: handed_over}",
    "  people: {divert: inner, why: Deeper., returns: {fixed: fixed, otherwise: not_it}}",
)


def test_a_divert_within_a_divert_comes_back_one_by_one() -> None:
    outer = OUTER.replace("divert: inner", "divert: middle")
    library = {name: load_text(text) for name, text in (("outer", outer), ("middle", MIDDLE), ("inner", INNER))}
    went = Story(Bundle.of(library["outer"], library)).opened().reads(0.95).chooses("people")
    assert (went.run.playbook, [frame.playbook for frame in went.run.frames]) == ("inner", ["outer", "middle"])
    went.chooses("not_it")
    assert "inner ended with 'not_applicable': It is something else." in went.texts("diverted")[-2]
    assert (went.run.playbook, went.run.visit.state, went.run.frames) == ("outer", "choose", ())


def test_a_run_is_diverted_so_often_and_no_more() -> None:
    unbound = bundle(OUTER.replace("    at_most: 2\n    beyond: calm\n", ""))
    went = Story(unbound).opened().reads(0.95)
    for _ in range(MAX_DIVERTS - 1):
        went.chooses("not_it").chooses("again")
    assert went.run.playbook == "inner"
    went.chooses("not_it").chooses("again")
    assert (went.run.playbook, went.run.visit.state) == ("outer", "other")
    assert went.run.open_question is not None
    assert f"diverted {MAX_DIVERTS} times" in went.run.open_question.text


def test_a_divert_to_a_playbook_that_was_refused_asks_people() -> None:
    alone = Bundle.of(load_text(OUTER))
    run = Story(alone).opened().reads(0.95).run
    assert (run.playbook, run.visit.state) == ("outer", "other")
    assert run.open_question is not None
    assert "'inner' was refused" in run.open_question.text


def test_a_run_that_is_opened_again_begins_in_its_first_playbook() -> None:
    went = story().chooses("not_it").chooses("leave").chooses("people")
    again = builders.alert(fingerprint="f2")
    went.happens(AlertChanged(event_id=went.id(), alert=again))
    assert (went.run.playbook, went.run.visit.state, went.run.is_open) == ("outer", "look", True)


# --- a more urgent alert ----------------------------------------------------------------------------------------------

URGENT = Bundle.of(load_text(INNER.replace("playbook: inner", "playbook: urgent\npriority: 90")))


def receives_urgent(went: Story, *, priority: int = 90, status: Any = "firing") -> Story:
    offer = Offer(playbook="urgent", title="The urgent one", priority=priority, digest=URGENT.digest)
    alert = builders.alert(status, fingerprint="f2", alertname="Fire")
    went.known[URGENT.digest] = URGENT
    went.happens(AlertChanged(event_id=went.id(), alert=alert, offer=offer))
    return went


def after_a_more_urgent_alert() -> Story:
    """A question of the outer playbook waits as the urgent alert arrives."""
    return receives_urgent(Story(BUNDLE).opened().reads(0.95).chooses("not_it"))


def after_many_diverts() -> Story:
    went = Story(BUNDLE).opened()
    went.run = went.run.with_(diverts=MAX_DIVERTS)
    return receives_urgent(went)


def test_a_more_urgent_alert_takes_over_at_once_and_says_so() -> None:
    went = after_a_more_urgent_alert()
    assert (went.run.playbook, went.run.visit.state, went.run.digest) == ("urgent", "ask", URGENT.digest)
    assert [question.status for question in went.run.questions.values()] == ["answered", "withdrawn", "open"]
    notes = [post.data["text"] for post in went.run.posts if post.kind == "note"]
    assert notes[-1] == "Fire: 'The urgent one' is more urgent and takes over from 'The outer one'."
    assert "continues in urgent — 'The urgent one' took over, which is more urgent" in went.texts("diverted")


def test_what_takes_over_is_not_titled_by_what_was_found_before() -> None:
    went = Story(BUNDLE).opened().reads(0.95).chooses("not_it")
    went.run = went.run.with_(diagnosis="KV cache full", cause="The KV cache is full.")
    run = receives_urgent(went).run
    assert (run.title, run.diagnosis, run.cause) == ("The urgent one", "", "")


@pytest.mark.parametrize(
    ("priority", "status"), [(50, "firing"), (30, "firing"), (90, "resolved")], ids=["equal", "less", "resolved"]
)
def test_an_alert_that_is_not_more_urgent_only_joins(priority: int, status: str) -> None:
    went = receives_urgent(Story(BUNDLE).opened(), priority=priority, status=status)
    assert (went.run.playbook, went.run.offers, len(went.run.alerts)) == ("outer", {}, 2)


def test_a_more_urgent_alert_leaves_every_divert() -> None:
    went = Story(BUNDLE).opened().reads(0.95)
    assert went.run.frames
    assert receives_urgent(went).run.frames == ()


def test_the_playbook_that_gave_way_begins_again_while_its_alert_fires() -> None:
    went = after_a_more_urgent_alert().chooses("fixed")
    assert (went.run.is_open, went.run.playbook, went.run.visit.state) == (True, "outer", "look")
    assert "'The inner one' ended with 'fixed', and the alerts before it still fire" in went.texts("diverted")[-1]
    assert went.run.offers == {}


def test_the_playbook_that_gave_way_does_not_begin_again_once_its_alert_is_resolved() -> None:
    went = after_a_more_urgent_alert()
    went.happens(AlertChanged(event_id=went.id(), alert=builders.alert("resolved")))
    assert went.chooses("fixed").run.ending == "fixed"


def test_a_person_may_go_back_to_the_playbook_that_gave_way() -> None:
    went = after_a_more_urgent_alert().says("divert", text="outer")
    assert (went.run.playbook, went.run.visit.state, went.run.offers) == ("outer", "look", {})


def test_who_closes_the_incident_by_hand_closes_both() -> None:
    assert after_a_more_urgent_alert().says("resolve").run.ending == "resolved_by_hand"


def test_nothing_is_taken_over_without_end() -> None:
    went = after_many_diverts()
    assert (went.run.playbook, went.run.visit.state) == ("outer", "look")
    assert f"was diverted {MAX_DIVERTS} times. `/incident divert INC-1 urgent`" in went.run.posts[-1].data["text"]
    assert went.says("divert", text="urgent").run.playbook == "urgent"


def test_a_person_may_take_the_run_over_by_an_answer() -> None:
    went = after_many_diverts().reads(None)
    assert went.run.open_question is not None
    assert went.run.open_question.choices["divert:urgent"] == "Switch to 'The urgent one'"
    assert went.chooses("divert:urgent").run.playbook == "urgent"


def test_what_was_not_offered_cannot_be_taken() -> None:
    went = after_many_diverts().says("divert", text="inner")
    assert went.run.playbook == "outer"
    assert "Offered: urgent" in went.run.posts[-1].data["text"]


# --- while a change is applied ----------------------------------------------------------------------------------------

SMALL = Bundle.of(load_text(TEXT, file="small.yaml"))


def test_an_open_request_is_withdrawn_and_nothing_of_it_is_applied() -> None:
    went = receives_urgent(Story(SMALL).asked())
    assert (went.run.playbook, went.run.requests[went.request].status) == ("urgent", "withdrawn")
    assert f"{went.request} is withdrawn; nothing of it was applied." in went.run.posts[-2].data["text"]
    before = went.run.ledger
    assert went.presses("approve").run.ledger == before


def test_a_more_urgent_alert_calls_people_where_a_change_is_halted() -> None:
    """Nothing else would: a halted change has neither a question nor an end."""
    went = Story(SMALL)
    went.rules = went.rules.model_copy(update={"contacts": Contacts(approvers=Contact(team="a", mentions=("S0A",)))})
    receives_urgent(went.granted().says("halt").settles("halted"))
    assert went.run.posts[-1].data["mentions"] == ["S0A"]


def test_a_change_between_its_calls_is_finished_first() -> None:
    went = receives_urgent(Story(SMALL).granted())
    assert (went.run.playbook, went.run.visit.machine_state) == ("small", "grow/applying")
    assert "It takes over as soon as the present change has ended." in went.texts("note")[-1]
    went.settles()
    assert (went.run.playbook, [entry.verb for entry in went.run.held]) == ("urgent", ["scale"])
    assert "These changes stay, with their undo: " in next(text for text in went.texts("note") if "from" in text)


def test_a_change_that_stopped_half_way_is_decided_first() -> None:
    went = Story(SMALL).granted()
    assert went.run.change is not None
    went.run = went.run.with_(change=went.run.change.model_copy(update={"stopped": True}))
    assert receives_urgent(went).run.playbook == "small"


PARKS = Bundle.of(
    load_text(
        INNER.replace("playbook: inner", "playbook: urgent\npriority: 90\nopens_on: ['alertname=\"Fire\"']").replace(
            "    ask: Is it this?\n", "    ask: Is it this?\n    parked: true\n"
        )
    )
)


def test_when_the_urgent_playbook_parks_the_alerts_before_it_open_a_fresh_incident() -> None:
    went = Story(BUNDLE).opened().reads(0.95).chooses("not_it")
    went.known[PARKS.digest] = PARKS
    offer = Offer(playbook="urgent", title="The urgent one", priority=90, digest=PARKS.digest)
    fire = builders.alert(fingerprint="f2", alertname="Fire")
    went.happens(AlertChanged(event_id=went.id(), alert=fire, offer=offer))
    assert went.run.parked is not None
    assert [effect.alert.fingerprint for effect in went.effects if isinstance(effect, RouteAgain)] == ["f1"]
    assert (list(went.run.alerts), went.run.offers) == (["f2"], {})


def test_when_a_playbook_parks_the_less_urgent_alerts_that_joined_open_a_fresh_incident() -> None:
    """Nothing treats them while the incident waits, and their repeats would not open one."""
    reads = "  first: {watch: {readable: 'usage >= 0'}, for: 1s, within: 5m, held: ask, otherwise: ask}\n  ask:\n"
    text = PARKS.entry_playbook.source.text.replace("start: ask", "start: first").replace("  ask:\n", reads, 1)
    went = Story(Bundle.of(load_text(text)))
    went.happens(AlertChanged(event_id=went.id(), alert=builders.alert(alertname="Fire")))
    for name, status in (("f2", "firing"), ("f3", "resolved")):
        late = builders.alert(status, fingerprint=name, alertname="UsersWait")
        went.happens(AlertChanged(event_id=went.id(), alert=late))
    assert went.watched("held").run.parked is not None
    assert [effect.alert.fingerprint for effect in went.effects if isinstance(effect, RouteAgain)] == ["f2"]
    assert list(went.run.alerts) == ["f1", "f3"]
    assert "UsersWait still fires: routed again, to a fresh incident" in went.texts("alert")


# --- what is left to do -----------------------------------------------------------------------------------------------

RETURNS = """
language: 1
playbook: inner
title: The inner one
signals: {usage: {metric: kv_cache_usage_perc, over: 60s}}
start: look
states:
  look:
    read: [usage]
    pick: {node: '"n2"'}
    go: [{otherwise: elsewhere}]
    unknown: elsewhere
  elsewhere: {return: fixed, to_do: 'Give ${picked.node} away.', later: ticket}
  ticket:
    ask: Who takes ${picked.node}?
    choices:
      taken: {label: It is taken, to: gone}
      not_it: {label: It was nothing, to: nothing}
      worse: {label: It is worse, to: worse}
      again: {label: Look again, to: look}
    parked: true
  gone: {end: fixed, say: 'Somebody has ${picked.node}.'}
  nothing: {end: not_applicable}
  worse: {end: accepted_degraded, say: It stays as it is.}
"""
SAYS = OUTER.replace("  calm: {end: fixed}", "  calm: {end: self_cleared, say: Nobody waits.}")
LEFT = bundle(outer=SAYS, inner=RETURNS)


def returned() -> Story:
    """The inner playbook has returned, and left something to do."""
    return Story(LEFT).opened().reads(0.95).reads(0.95)


def test_a_return_lets_the_outer_playbook_go_on_and_keeps_what_is_left_to_do() -> None:
    went = returned()
    assert (went.run.playbook, went.run.visit.state, went.run.frames) == ("outer", "verify", ())
    assert [(left.playbook, left.state, left.text) for left in went.run.to_do] == [("inner", "ticket", "Give n2 away.")]
    assert [post.data["text"] for post in went.run.posts] == ["To do before this incident ends: Give n2 away."]
    assert went.texts("diverted")[-1] == "back in outer — inner ended with 'fixed': still to do: Give n2 away."


def test_what_is_left_to_do_comes_before_the_incident_ends() -> None:
    went = returned().watched("held")
    run = went.run
    assert (run.is_open, run.playbook, run.visit.state, run.to_do) == (True, "inner", "ticket", ())
    assert run.open_question is not None
    assert run.open_question.text == "Who takes n2?", "it knows what was picked before it returned"
    assert run.parked is not None
    assert went.chooses("taken").run.ending == "self_cleared", "as the outer playbook concluded"
    assert went.run.posts[-1].data["text"] == "Nobody waits. Somebody has n2."


@pytest.mark.parametrize(("answer", "ending"), [("not_it", "self_cleared"), ("worse", "accepted_degraded")])
def test_what_was_left_to_do_changes_the_end_only_for_the_worse(answer: str, ending: str) -> None:
    went = returned().watched("held").chooses(answer)
    assert (went.run.ending, went.run.conclusion is not None) == (ending, True)


def test_where_nothing_diverted_here_a_return_goes_on_at_once() -> None:
    went = Story(Bundle.of(load_text(RETURNS))).opened().reads(0.95)
    assert (went.run.visit.state, went.run.to_do, went.run.posts[-1].kind) == ("ticket", (), "question")
    assert went.chooses("taken").run.ending == "fixed"
    assert went.run.posts[-1].data["text"] == "Somebody has n2."


def test_a_return_from_what_was_left_to_do_goes_on_at_once() -> None:
    went = returned().watched("held").chooses("again").reads(0.95)
    assert (went.run.playbook, went.run.visit.state, went.run.to_do) == ("inner", "ticket", ())
    assert went.chooses("taken").run.ending == "self_cleared"


def test_the_same_thing_is_left_to_do_once() -> None:
    went = returned().watched("not_held").reads(0.95).reads(0.95)
    assert (went.run.visit.state, len(went.run.to_do)) == ("verify", 1)


def test_what_somebody_takes_over_is_left_to_them() -> None:
    outer = SAYS.replace("calm: {end: self_cleared", "calm: {end: handed_over")
    went = Story(bundle(outer, RETURNS)).opened().reads(0.95).reads(0.95).watched("held")
    assert (went.run.is_open, went.run.ending) == (False, "handed_over")
    assert went.run.posts[-1].data["text"] == "Nobody waits. Still to do: Give n2 away."


def test_what_is_left_to_do_is_named_where_a_person_closes_and_kept_where_one_reopens() -> None:
    went = returned().says("resolve")
    assert went.run.posts[-1].data["text"].endswith("Still to do: Give n2 away.")
    went.says("reopen", text="it came back").reads(0.1)
    assert (went.run.playbook, went.run.visit.state, went.run.conclusion is None) == ("inner", "ticket", False)


def test_a_reopened_incident_forgets_how_it_ended_before() -> None:
    went = returned().watched("held").chooses("taken").says("reopen", text="it came back")
    assert (went.run.conclusion, went.run.visit.state) == (None, "look")


def test_what_is_left_to_do_by_a_playbook_that_is_gone_is_named_at_the_end() -> None:
    went = returned()
    went.run = went.run.with_(to_do=(went.run.to_do[0].model_copy(update={"state": "former"}),))
    went.watched("held")
    assert (went.run.is_open, went.run.posts[-1].data["text"]) == (False, "Nobody waits. Still to do: Give n2 away.")


def test_a_more_urgent_playbook_leaves_to_do_what_there_was() -> None:
    went = receives_urgent(returned())
    assert (went.run.playbook, len(went.run.to_do)) == ("urgent", 1)


def test_who_closes_the_incident_while_it_is_being_done_reads_what_is_left() -> None:
    went = returned().watched("held").says("resolve", text="going home")
    assert went.run.posts[-1].data["text"] == "ana closed it: going home. Still to do: Give n2 away."
    assert [left.state for left in went.says("reopen", text="it came back").run.to_do] == ["ticket"]


def test_a_more_urgent_playbook_leaves_to_do_what_had_begun() -> None:
    not_parked = bundle(SAYS, RETURNS.replace("    parked: true\n", ""))
    went = receives_urgent(Story(not_parked).opened().reads(0.95).reads(0.95).watched("held"))
    assert (went.run.playbook, len(went.run.to_do), went.run.conclusion) == ("urgent", 1, None)
