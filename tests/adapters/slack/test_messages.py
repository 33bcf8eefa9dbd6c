"""Slack messages for each situation of a run, as stored snapshots, and invariants for all of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bot.adapters.slack.outbound.card import card, now_line
from bot.adapters.slack.outbound.details import details
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.messages import thread
from bot.adapters.slack.outbound.news_lines import news_line
from bot.adapters.slack.outbound.request_message import approve_label, request_blocks
from bot.adapters.slack.outbound.words import capitalized, day, time_of_day
from bot.adapters.slack.press_value import ButtonValue
from bot.domain.approvals.advice import OBSERVE_ONLY, OnlyAdvice
from bot.domain.approvals.grant import INSTEAD, Alternative, CarriedOut, Covered, Demand
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import Circumstance, Difference
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.incidents.run import (
    NEXT_STATUS,
    ActiveChange,
    ActiveWatch,
    Check,
    Findings,
    Halt,
    News,
    Note,
    Page,
    ParkedIncident,
    Post,
    PullRequest,
    Run,
    StatusUpdate,
)
from bot.domain.kernel.form import FormField
from bot.domain.kernel.runbook import Runbook
from bot.sandbox.slack.block_kit import problems_of_blocks
from tests import builders
from tests.adapters.slack.runs import (
    BEGAN,
    alert,
    approval,
    ledger_entry,
    no_units,
    plan,
    policy,
    post,
    question,
    request,
    run,
    waiting,
)
from tests.adapters.slack.snapshots import assert_same
from tests.builders import in_visit

pytestmark = pytest.mark.fast

LINKS = {"request:R3": "https://example.test/archives/C0INC/p1?thread_ts=2&cid=C0INC"}
GRANTED = {"status": "granted", "decided_by": "U0ANA", "decided_at": BEGAN + 261, "presses": (approval(),)}


def applying() -> Run:
    change = ActiveChange(
        state="cap", verb="set_flags", request_id="R3", step=1, begun=True, progress="2 of 4 replicas run the new flags"
    )
    return in_visit(waiting(**GRANTED).with_(change=change, ledger=(ledger_entry(),)), machine_state="cap/applying")


def closed(*to_commit: str) -> Run:
    return waiting(**GRANTED).with_(
        closed_at=BEGAN + 1900, ending="fixed", change=None, ledger=(ledger_entry(),), lead="U0ANA",
        alerts={"f": alert(status="resolved")}, findings=run(path=("look", "cap", "verify", "fixed")).findings,
        posts=(post("closed", "closed", "fixed", ending="fixed", text="the thrash is gone", head="ab" * 32,
                    to_commit=to_commit),),
    )  # fmt: skip


def questioned(**changes: object) -> Run:
    asked = question(**changes)
    return run(
        questions={asked.question_id: asked},
        question=asked.question_id,
        lead="U0ANA",
        posts=(post("question", "question:Q2", "Q2"),),
    )


def asked_before() -> Run:
    """A request for exactly what was refused a moment ago."""
    refused = request(request_id="R2", status="refused", decided_by="U0BEN", decided_at=BEGAN + 150)
    again = waiting(asked_before="R2")
    return again.with_(requests={"R2": refused, **again.requests})


def teams(**changes: Any) -> Run:
    """A request that asks for two teams, of which one has nobody named."""
    platform = Demand(team="platform", user_group="S0SERVING", falls_back=True)
    serving = Demand(team="serving", users=("U0ANA",))
    return waiting(policy=policy(demands=(platform, serving)), **changes)


FOR_THE_OWNER = {
    "result": "impossible",
    "text": "Flux Kustomization serving owns it and would revert the edit",
    "patch": '# Deployment serving/llm: commit it to git\nkind: "Deployment"\nspec:\n  replicas: 5',
}


IN_GIT = OwnersEdit(
    kind="Deployment",
    namespace="serving",
    name="llm",
    fields={"replicas": 5},
    file="example/deploy: production/llm.yaml",
)


def for_the_owner(**pull_request: str) -> Run:
    """A patch whose file the settings name, and what became of the pull request with it."""
    shown = post("outcome", "outcome:5:0", "set_flags", **FOR_THE_OWNER, owners_edit=IN_GIT.model_dump())
    return run(posts=(shown,), pull_requests={shown.slot: PullRequest(**pull_request)} if pull_request else {})


def to_commit(**pull_request: str) -> Run:
    """A change in force that a Helm release does not know of, in a file that the settings name."""
    drifting = plan(commit=COMMIT, owners_edit=IN_GIT)
    done = waiting(**GRANTED, plan=drifting, outcome="done")
    return done.with_(
        ledger=(ledger_entry(call_id="INC-7/R3/0"),),
        pull_requests={"request:R3": PullRequest(**pull_request)} if pull_request else {},
    )


GLASS = policy(
    demands=(Demand(team="serving", user_group="S0SERVING"), Demand(team="lead", users=("U0LEA",))),
    escalate_to=Demand(team="lead", users=("U0LEA",)),
    break_glass=Demand(team="lead", users=("U0LEA",)),
)
BROKEN = approval("U0LEA", teams=("lead",)).model_copy(
    update={"press": approval("U0LEA").press.model_copy(update={"action": "break_glass"})}
)
STEP = Runbook(step="3.2 Reduce the load", url="https://wiki.example.test/kv?page=3#reduce")
COMMIT = '# Deployment serving/llm: put it into the values of prod, then: helm upgrade\nkind: "Deployment"'
EDITABLE = plan(choices={"edits": {"--max-num-seqs": "6"}})

OTHER = CarriedOut(user="U0BEN", at=BEGAN + 300, text="moved <!here> traffic to llm-b")


def advised(**changes: Any) -> Run:
    """A change that people carry out; the bot watches."""
    advice = {"status": "advised", "advice": OBSERVE_ONLY, "posted_at": None, "expires_at": None}
    watch = ActiveWatch(started_at=BEGAN + 200, until=BEGAN + 14600)
    made = waiting(**(advice | changes)).with_(watch=watch, only_advice=OBSERVE_ONLY)
    change = ActiveChange(state="cap", verb="set_flags", request_id="R3", progress="waits until the reason is gone")
    return made.with_(change=change)


FREEZE = OnlyAdvice(reason="freeze", text="freeze until 19 Nov 18:00 UTC: release <!here> (ana)")
NEWS = [
    News(title="Does the canary pass?", result="held", text="0 preemptions <!here>", at=BEGAN + 9).model_dump(),
    News(title="Is it calm?", result="not_held", text="", at=BEGAN + 9).model_dump(),
    News(title="Remove the canary", result="done", text="", at=BEGAN + 9).model_dump(),
    News(title="Roll back", result="impossible", text="no revision is known", at=BEGAN + 9).model_dump(),
    News(title="All replicas ready and warm", result="unknown", text="", at=BEGAN + 9).model_dump(),
]
CARDS = {
    "card-with-a-diagnosis": waiting().with_(
        diagnosis="KV cache full",
        users="Users wait 5 s",
        users_at=BEGAN + 50,
        cause="Requests are restarted.",
        findings=Findings(
            checks=(
                Check(state="node", found="ruled_out", text="a node fault"),
                Check(state="changed", found="found", text="a deploy shortly before it (--max-num-seqs 64 → 256)"),
                Check(state="missing", found="unknown", text="a missing replica"),
            )
        ),
        status_update=StatusUpdate(text="two of four <!here> are back", by="U0MO"),
    ),
    "card-advises": advised(),
    "card-in-a-freeze": run(only_advice=FREEZE),
    "card-waits-for-teams": teams(presses=(approval(teams=("serving",)),)),
    "card-waits-for-approval": waiting(),
    "card-asks": questioned(),
    "card-applies": applying(),
    "card-watches": run(watch=ActiveWatch(started_at=BEGAN, until=BEGAN + 2400, progress="calm 3 of 10 min")),
    "card-halted-while-it-waits": waiting().with_(halt=Halt(by="U0BEN"), alerts_resolved_at=BEGAN + 500),
    "card-silenced": run(silences={"s1": BEGAN + 900, "s2": BEGAN + 1800}),
    "card-halted-while-it-applies": applying().with_(halt=Halt(by="U0BEN")),
    "card-halted-with-all": run(halt=Halt(by="U0BEN", with_all=True)),
    "card-closed": closed(),
    "card-with-a-runbook": in_visit(waiting(), runbook=STEP),
    "card-with-a-runbook-without-a-link": run(runbook=Runbook(step="<!here> 3|2", url="javascript:alert(1)")),
}
THREADS = {
    "request-advised": advised(),
    "request-advised-and-carried-out": advised(carried_out=(CarriedOut(user="U0ANA", at=BEGAN + 250), OTHER)),
    "request-advised-recovered": advised(outcome="recovered", ended_at=BEGAN + 900).with_(change=None, watch=None),
    "request-with-a-runbook": waiting(runbook=STEP),
    "request-open-high-risk": waiting(),
    "request-with-a-text-to-commit": waiting(plan=plan(commit=COMMIT)),
    "request-open-not-yet-posted": waiting(risk="low", posted_at=None, expires_at=None),
    "request-half-approved": waiting(policy=policy(needed=2), presses=(approval(),)),
    "request-to-the-approvers-of-a-target": waiting(policy=policy(of_target="chat/*")),
    "request-of-teams-half-approved": teams(presses=(approval(teams=("serving",)),)),
    "request-alerts-resolved": waiting(alerts_resolved_at=BEGAN + 400).with_(alerts_resolved_at=BEGAN + 400),
    "request-applying": applying(),
    "request-granted-but-halted": applying().with_(halt=Halt(by="U0BEN")),
    "request-open-while-all-is-halted": waiting().with_(halt=Halt(by="U0BEN", with_all=True)),
    "request-editable": waiting(plan=EDITABLE, edited_by="U0BEN", extended_by="U0ANA"),
    "request-half-time-with-a-glass": waiting(policy=GLASS, half_passed=True, extended_by="U0ANA"),
    "request-glass-broken": waiting(
        policy=GLASS,
        status="granted",
        presses=(BROKEN,),
        decided_by="U0LEA",
        decided_at=BEGAN + 9,
        decision_reason="nobody of serving answers and users are cut",
    ),
    "request-edited": waiting(
        status="superseded", decided_by="U0BEN", decided_at=BEGAN + 9, decision_reason="--max-num-seqs 8"
    ),
    "request-edited-after-an-approval": waiting(
        policy=policy(needed=2),
        status="superseded",
        decided_by="U0BEN",
        decided_at=BEGAN + 9,
        decision_reason="--max-num-seqs 8",
        presses=(approval(),),
    ),
    "note-glass-broken": waiting(policy=GLASS, decided_by="U0LEA").with_(
        posts=(post("note", "glass:R3", "R3", text="<@U0LEA> broke the glass for R3: no answer", user="", ping="all"),)
    ),
    "note-half-time-escalates": waiting(policy=GLASS, presses=(approval(teams=("serving",)),)).with_(
        posts=(post("note", "half:R3", "R3", text="7.5 min left to decide: cap llm.", user="", ping=True),)
    ),
    "request-pre-approved": waiting(
        policy=GLASS.model_copy(update={"announced": "the settings pre-approve it (at most 2 in one incident)"}),
        status="granted",
        decided_at=BEGAN + 9,
        decision_reason="the settings pre-approve it (at most 2 in one incident)",
    ),
    "request-asked-before": asked_before(),
    "request-asked-by-another-incident": waiting(asked_before="INC-6/R3"),
    "request-refused": waiting(status="refused", decided_by="U0BEN", decided_at=BEGAN + 9, decision_reason="not now"),
    "request-expired": waiting(status="expired"),
    "request-superseded-approved": waiting(
        status="superseded",
        decided_by="U0BEN",
        decided_at=BEGAN + 9,
        decision_reason="llm-a was replaced meanwhile",
        presses=(approval(),),
    ),
    "request-superseded": waiting(status="superseded", decision_reason="llm-a was replaced meanwhile"),
    "request-withdrawn": waiting(status="withdrawn", decision_reason="thrash is gone"),
    "request-withdrawn-approved": waiting(
        status="withdrawn", decided_at=BEGAN + 9, decision_reason="thrash is gone", presses=(approval(),)
    ),
    "question-open": questioned(),
    "question-answered": questioned(
        status="answered", answer="cap", answered_by="U0LEA", answered_at=BEGAN + 150, text="<@U0ANA> leads now."
    ),
    "question-expired": questioned(status="expired"),
    "diagnosis": waiting().with_(posts=waiting().posts[:1]),
    "diagnosis-not-clear": run(posts=(post("diagnosis", "diagnosis:2", "x", checks=[["unknown", "a crash"]]),)),
    "question-with-news": questioned().with_(posts=(post("question", "question:Q2", "Q2", news=NEWS),)),
    "request-with-news": waiting().with_(posts=(post("request", "request:R3", "R3", news=NEWS),)),
    "closed-with-news": closed().with_(posts=(post("closed", "closed", "fixed", ending="fixed", news=NEWS),)),
    "request-done": waiting(
        status="granted", decided_by="U0ANA", decided_at=BEGAN + 9, presses=(approval(),), outcome="done"
    ),
    "request-failed": waiting(
        status="granted", decided_by="U0ANA", decided_at=BEGAN + 9, presses=(approval(),), outcome="failed"
    ),
    "outcome-for-the-owner": run(
        posts=(post("outcome", "outcome:5:0", "set_flags", **FOR_THE_OWNER),),
    ),
    "outcome-with-a-pull-request-to-open": for_the_owner(),
    "outcome-with-a-pull-request-that-is-opened": for_the_owner(by="U0ANA"),
    "outcome-with-a-pull-request": for_the_owner(by="U0ANA", url="https://github.test/example/deploy/pull/7"),
    "outcome-without-a-pull-request": for_the_owner(
        by="U0ANA", reason="GitHub answers HTTP 503 to <repos/example/deploy>: away"
    ),
    "request-to-commit-by-a-pull-request": to_commit(),
    "request-committed-by-a-pull-request": to_commit(by="U0ANA", url="https://github.test/example/deploy/pull/7"),
    "outcome-impossible": run(
        posts=(post("outcome", "outcome:5:0", "scale", result="impossible", text="0 GPUs are free"),)
    ),
    "verdict-not-held": run(
        posts=(
            post(
                "verdict",
                "verdict:6",
                "verify",
                verdict="not_held",
                parts={"calm": "held", "load": "not held: 0.4", "ttft": "unknown: no samples"},
                text="arrivals fell to 40 % of the baseline",
                title="Is the thrash gone?",
            ),
        )
    ),
    "note": run(
        notes=(Note(note_id="N8", at=BEGAN, user="U0MO", text=""),),
        posts=(post("note", "note:N8", "N8", text="the gateway was\nrestarted at 14:02", user="U0MO"),),
    ),
    "note-told": run(
        lead="U0BEN",
        posts=(
            post(
                "note",
                "told:R3",
                "R3",
                text="Roll llm back to revision 6: done.",
                user="",
                told=["change-cause=helm upgrade <!channel> by ana", "team=S0SERVING", "owner=U0ANA", "author=WEB"],
            ),
        ),
    ),
    "note-half-time-on-call": waiting().with_(
        posts=(post("note", "half:R3", "R3", text="4 min left: cap.", user="", ping=True, mentions=["S0ONCALL"]),)
    ),
    "note-half-time": waiting().with_(
        posts=(post("note", "half:R3", "R3", text="7.5 min left to decide: cap llm.", user="", ping=True),)
    ),
    "closed": closed(),
    "closed-with-a-text-to-commit": closed("R3 · Cap llm"),
    "closed-with-a-pull-request": closed("R3 · Cap llm").with_(
        pull_requests={"request:R3": PullRequest(by="U0ANA", url="https://github.test/example/deploy/pull/7")}
    ),
}


@pytest.mark.parametrize("name", CARDS)
def test_a_card_looks_as_reviewed(name: str) -> None:
    assert_same(name, card(CARDS[name], links=LINKS))


@pytest.mark.parametrize("name", THREADS)
def test_a_message_of_the_thread_looks_as_reviewed(name: str) -> None:
    assert_same(name, thread(THREADS[name])[-1][1])


@pytest.mark.parametrize("name", [*CARDS, *THREADS])
def test_every_message_is_one_that_slack_accepts(name: str) -> None:
    shown = CARDS.get(name) or THREADS[name]
    for message in (card(shown, links=LINKS), *(message for _, message in thread(shown))):
        assert problems_of_blocks(list(message.blocks)) == []
        assert message.text


def test_the_same_run_gives_the_same_hash_and_a_decision_another() -> None:
    assert hash_of(waiting()) == hash_of(waiting())
    assert hash_of(waiting()) != hash_of(waiting(**GRANTED))


def test_slots_come_in_the_order_of_the_posts() -> None:
    assert [slot for slot, _ in thread(waiting())] == ["diagnosis:1", "request:R3"]


def test_a_button_carries_the_incident_the_request_and_the_whole_digest() -> None:
    shown = [button for button in buttons(last(waiting())) if button["type"] == "button"]
    values = [ButtonValue.unpacked(button["value"]) for button in shown]
    assert values == [ButtonValue("INC-7", "R3", digest=request().digest)] * 2
    assert len(request().digest) == 64


def test_each_choice_has_a_button_of_its_own_id_that_carries_the_choice() -> None:
    *shown, more = buttons(last(questioned()))
    assert more["action_id"] == "more"
    assert [button["action_id"] for button in shown] == ["choose:0", "choose:1", "choose:2"]
    choices = [ButtonValue.unpacked(button["value"]) for button in shown]
    assert [value.choice for value in choices if value] == ["cap", "scale", "hand_over"]


def test_a_choice_too_long_for_a_button_does_not_spoil_the_message() -> None:
    message = last(questioned(choices={"x" * 3000: "too long", "cap": "Cap"}))
    assert [button["action_id"] for button in buttons(message)] == ["choose:1", "more"]


def test_more_than_three_choices_are_two_buttons_and_a_menu() -> None:
    choices = {f"way{number}": f"Way {number}" for number in range(6)}
    *shown, rest, _ = buttons(last(questioned(choices=choices, notes={"way4": "costs a restart"})))
    assert [button["text"]["text"] for button in shown] == ["Way 0", "Way 1"]
    assert (rest["type"], rest["action_id"]) == ("static_select", "choose:menu")
    assert [option["text"]["text"] for option in rest["options"]] == ["Way 2", "Way 3", "Way 4", "Way 5"]
    assert rest["options"][2]["description"]["text"] == "costs a restart"
    chosen = [ButtonValue.unpacked(option["value"]) for option in rest["options"]]
    assert [value.choice for value in chosen if value] == ["way2", "way3", "way4", "way5"]


def test_a_choice_too_long_for_a_menu_stays_a_button() -> None:
    choices = {"a": "A", "b": "B", "x" * 200: "a long one", "c": "C"}
    shown = buttons(last(questioned(choices=choices)))
    assert [each["type"] for each in shown] == ["button", "button", "button", "static_select", "overflow"]


def test_other_options_of_a_request_are_a_menu_with_their_effects() -> None:
    others = (
        Alternative(key="scale", label="Add a replica", effect="restarts nothing"),
        Alternative(key="swap", label="Swap", why_not="V1"),
    )
    (menu,) = [each for each in buttons(last(waiting(alternatives=others))) if each["type"] == "static_select"]
    (only,) = menu["options"]
    assert (only["text"]["text"], only["description"]["text"]) == ("Add a replica", "restarts nothing")
    assert ButtonValue.unpacked(only["value"]) == ButtonValue("INC-7", "R3", request().digest, "scale")


def test_advice_is_no_phase_of_the_incident_because_nothing_is_changed() -> None:
    assert "✔" not in str(card(advised(), links={}).blocks)


def test_a_long_effect_ends_with_a_whole_word_in_the_menu_and_is_whole_in_the_details() -> None:
    effect = "Restarts nothing. It takes its share of the requests, and helps until each replica is full."
    asked = waiting(alternatives=(Alternative(key="scale", label="Add a replica", effect=effect),))
    (menu,) = [each for each in buttons(last(asked)) if each["type"] == "static_select"]
    short = "Restarts nothing. It takes its share of the requests, and helps until …"
    assert [each["description"]["text"] for each in menu["options"]] == [short]
    assert effect in str(details(asked, "R3", no_units))


@pytest.mark.parametrize("status", ["granted", "refused", "expired", "superseded", "withdrawn"])
def test_a_decided_request_has_only_its_details_left(status: str) -> None:
    (menu,) = buttons(last(waiting(status=status)))
    assert [option["text"]["text"] for option in menu["options"]] == ["Details"]


def test_approving_a_high_risk_opens_a_form_for_the_reason() -> None:
    high = waiting(policy=policy(needs_reason=True))
    assert buttons(last(high))[0]["action_id"] == "approve_with_reason"
    assert buttons(last(waiting(risk="low")))[0]["action_id"] == "approve"


def test_a_reference_to_something_not_kept_is_shown_and_not_an_error() -> None:
    assert "no longer kept" in last(run(posts=(post("request", "request:R9", "R9"),))).text


def test_without_blocks_the_fallback_says_that_it_has_no_buttons() -> None:
    simple = last(waiting()).as_plain_text()
    assert simple.blocks == ()
    assert "Cap llm" in simple.text
    assert "no buttons" in simple.text


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null", '{"i": 1, "a": "R1"}', '{"i": "INC-1"}', "old-style"])
def test_a_value_that_is_not_ours_is_known_as_such(text: str) -> None:
    assert ButtonValue.unpacked(text) is None


def last(shown: Run) -> Message:
    return thread(shown)[-1][1]


def hash_of(shown: Run) -> str:
    return last(shown).hash


def buttons(message: Message) -> list[dict[str, Any]]:
    rows = [block for block in message.blocks if block["type"] == "actions"]
    return json.loads(json.dumps([element for row in rows for element in row["elements"]]))  # type: ignore[no-any-return] # JSON is of any type


def test_the_notification_of_a_request_says_what_its_blocks_say() -> None:
    text = last(waiting()).text
    for words in ("high risk", "--max-num-seqs 64 → 6", "0 GPUs are free", "thrash falls below", "Undo", "11:25 UTC"):
        assert words in text


def test_the_notification_of_a_question_names_its_choices() -> None:
    assert "Choices: Cap concurrency, Scale out, Hand over to me" in last(questioned()).text


def test_the_diagnosis_is_escaped_once() -> None:
    assert "&lt;!here&gt;" in thread(waiting())[0][1].text
    assert "<!here>" not in json.dumps(thread(waiting())[0][1].blocks)


def test_a_card_calls_a_state_what_its_playbook_calls_it() -> None:
    reading = run(doing="Read the engines <!here>")
    assert now_line(reading, {}) == "🔎 Reading: *Read the engines &lt;!here&gt;*"
    watched = ActiveWatch(started_at=BEGAN, until=BEGAN + 2400, progress="calm 3 of 10 min")
    assert now_line(run(doing="Is it calm?", watch=watched), {}).startswith("👀 Checking: *Is it calm?*, until ")


FELT = {
    "diagnosis": "KV cache full <!here>",
    "users": "Users wait 5 s for the first token (target 2 s)",
    "users_at": BEGAN + 50,
    "cause": "Requests are preempted.",
}


def test_a_card_begins_with_what_users_feel() -> None:
    shown = card(run(**FELT), links={})
    title, users = shown.blocks[:2]
    assert title["text"]["text"] == "🔴 INC-7 · llm: KV cache full ‹!here›"
    assert users["text"]["text"].startswith("*Users wait 5 s for the first token (target 2 s)* · began ")
    assert "kv_usage" not in json.dumps(shown.blocks), "no number without a sentence"


def test_numbers_that_move_alone_do_not_change_what_lasts() -> None:
    before, after = card(run(**FELT), links={}), card(run(**FELT | {"users": "Users wait 6 s"}), links={})
    assert (before.hash == after.hash, before.lasting == after.lasting) == (False, True)
    assert card(run(**FELT | {"diagnosis": "a crash"}), links={}).lasting != before.lasting


def test_the_wait_for_people_is_shown_once_their_message_and_its_deadline_are_known() -> None:
    link = {f"request:{name}": "https://slack.example/p1" for name in waiting().requests}
    assert card(waiting(expires_at=None), links={}).lasting == card(run(), links={}).lasting
    assert card(waiting(expires_at=None), links=link).lasting == card(run(), links={}).lasting
    assert card(waiting(expires_at=1.8e9 + 900), links=link).lasting != card(run(), links={}).lasting


def test_a_question_that_no_playbook_wrote_begins_as_a_sentence() -> None:
    asked = questioned()
    built_in = {name: each.model_copy(update={"text": "request R2 expired"}) for name, each in asked.questions.items()}
    shown = asked.with_(questions=built_in)
    assert "Request R2 expired" in now_line(shown, {})
    assert "Request R2 expired" in last(shown).text


@pytest.mark.parametrize(
    ("announced", "status"),
    [
        pytest.param("", "approved", id="by-a-person"),
        pytest.param("the settings pre-approve it (at most 2 in one incident)", "pre-approved by policy", id="policy"),
        pytest.param("R1 covers it", "approved with R1", id="with-another-request"),
        pytest.param("it only cleans up what the bot did", "announced, no approval needed", id="clean-up"),
    ],
)
def test_a_notification_says_approved_only_where_somebody_approved(announced: str, status: str) -> None:
    policy = GLASS.model_copy(update={"announced": announced})
    assert last(waiting(policy=policy, status="granted", decided_at=BEGAN + 9)).text.endswith(f": {status}")


def test_the_end_names_what_was_done_and_left_nothing_in_place() -> None:
    evicted = ledger_entry().model_copy(update={"call_id": "INC-7/R3/0", "undo": (), "title": "Evict llm-1"})
    done = {"outcome": "done", "ended_at": BEGAN + 600, "plan": plan(title="Replace llm-1", disrupts="replica")}

    def end(**changes: Any) -> str:
        requests = waiting(**GRANTED | done | changes).requests
        return json.dumps(last(closed().with_(requests=requests, ledger=(evicted,))).blocks, ensure_ascii=False)

    assert "*Done:* Replace llm-1. The bot left no change in place." in end()
    assert "Done" not in end(outcome="failed")
    assert "Done" not in end(ended_at=BEGAN + 9_000), "it is of a later time, after the incident was opened again"
    assert "Done" not in end(plan=plan(title="Remove the canary of llm", disrupts="nothing"))


def test_the_end_names_a_replica_that_another_one_of_the_incident_replaced() -> None:
    """Marking it to end has an undo, as long as it is there."""
    marked = ledger_entry().model_copy(update={"call_id": "INC-7/R3/0", "undone_by": "INC-7/R3/1"})
    ended = marked.model_copy(update={"call_id": "INC-7/R3/1", "undo": (), "undone_by": ""})
    back = builders.call(title="End llm-1", ends=("llm-1-uid",), undo=())
    done = {"outcome": "done", "ended_at": BEGAN + 600}

    def end(*, disrupts: str) -> str:
        replaced = plan(title="Replace llm-1 by the replica that was added", disrupts=disrupts, steps=(back,))
        requests = waiting(**GRANTED | done | {"plan": replaced}).requests
        return json.dumps(last(closed().with_(requests=requests, ledger=(marked, ended))).blocks, ensure_ascii=False)

    assert "*Done:* Replace llm-1 by the replica that was added. The bot left no" in end(disrupts="replica")
    assert "Done" not in end(disrupts="workload"), "a rollout that was undone"


def test_the_card_counts_the_approvals_that_are_missing() -> None:
    several = waiting(policy=policy(needed=2), presses=(approval(),))
    assert "⏳ Needs 1 more approval by" in now_line(several, {})
    assert "⏳ Needs approval by" in now_line(waiting(policy=policy(needed=2)), {})


def test_an_expired_request_names_who_approved_it() -> None:
    shown = str(last(waiting(policy=policy(needed=2), status="expired", presses=(approval(),))).blocks)
    assert "⌛ *Expired*: only <@U0ANA> approved it in time, so nothing was changed" in shown
    assert "nobody decided" not in shown


def test_an_edit_after_an_approval_is_not_shown_as_a_change_that_was_approved() -> None:
    shown = str(last(THREADS["request-edited-after-an-approval"]).blocks)
    assert "📝 *Edited* by <@U0BEN>: --max-num-seqs 8" in shown
    assert "approved" not in shown


def test_nobody_is_asked_to_break_the_glass_of_their_own_silence() -> None:
    only_lead_is_missing = waiting(policy=GLASS, presses=(approval(teams=("serving",)),), half_passed=True)
    assert "glass" not in str(last(only_lead_is_missing).blocks)
    assert "break_glass" in str(last(waiting(policy=GLASS, half_passed=True)).blocks)


CUT = "117 streams are open on 4 pods; any that needs longer than 20 s is cut"


@pytest.mark.parametrize(
    ("expected", "impact"),
    [
        pytest.param("4 replicas stay", f"4 replicas stay; {CUT}"),
        pytest.param("none", CUT),
        pytest.param("none: the replicas are not touched", f"the replicas are not touched; {CUT}"),
    ],
)
def test_the_impact_names_the_streams_that_may_be_cut_whatever_their_grade(expected: str, impact: str) -> None:
    drain = Circumstance(name="drain", grade="fine", text=f"{CUT}: native drain, preStop 10 s")
    asked = last(waiting(plan=plan(expected=expected, circumstances=(drain,))))
    shown = json.dumps(asked.blocks, ensure_ascii=False)
    assert f"🟡 *Impact:* {impact}\\n" in shown
    assert f"Impact: {impact}." in asked.text
    assert "preStop" not in shown


@pytest.mark.parametrize("grade", ["fine", "warning"])
def test_no_sign_warns_of_streams_where_none_is_open(grade: str) -> None:
    drain = Circumstance.model_validate(
        {"name": "drain", "grade": grade, "text": "0 streams are open on 1 pod: native drain, preStop 10 s"}
    )
    asked = last(waiting(plan=plan(expected="one replica fewer", circumstances=(drain,))))
    assert '"*Impact:* one replica fewer; 0 streams are open on 1 pod' in json.dumps(asked.blocks, ensure_ascii=False)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Back to what?", "• *Back to what?* No change is recommended: Add a replica: no GPU is free"),
        ("Relieve the cache", "• *Relieve the cache*: no change is recommended. Add a replica: no GPU is free"),
    ],
)
def test_without_a_recommended_change_the_next_message_says_why(title: str, expected: str) -> None:
    none = News(title=title, result="none_possible", text="Add a replica: no GPU is free", at=BEGAN)
    assert news_line(none) == expected


def test_a_phase_that_comes_again_is_the_present_one() -> None:
    scaled = request(request_id="R1", plan=plan(verb="scale"), outcome="done")
    rolled = request(request_id="R2", plan=plan(verb="set_flags"), outcome="done")
    again = request(request_id="R3", plan=plan(verb="scale"), status="granted")
    change = ActiveChange(state="grow", verb="scale", request_id="R3", begun=True)
    shown = card(run(requests={"R1": scaled, "R2": rolled, "R3": again}, change=change), links={})
    assert "✔ Diagnosis › ✔ Rollout › *Scaling*" in json.dumps(shown.blocks, ensure_ascii=False)


def test_an_undone_scale_back_leaves_the_scaling_before_it() -> None:
    """Without its own name, "Scaling › Undo" says that the added replica is gone."""
    added, back, undone = (f"INC-7/R{number}/1" for number in (1, 2, 3))
    requests = {
        "R1": request(request_id="R1", plan=plan(verb="scale"), outcome="done"),
        "R2": request(request_id="R2", plan=plan(verb="scale"), outcome="done"),
        "R3": request(request_id="R3", plan=plan(verb="undo", choices={"of": [back]}), outcome="done"),
    }
    ledger = (
        ledger_entry(call_id=added, verb="scale"),
        ledger_entry(call_id=back, verb="scale", undone_by=undone),
        ledger_entry(call_id=undone, verb="undo"),
    )
    shown = card(run(requests=requests, ledger=ledger), links={})
    assert "✔ Diagnosis › ✔ Scaling" in (text := json.dumps(shown.blocks, ensure_ascii=False))
    assert "Undo" not in text


def test_an_undone_change_is_followed_by_its_undo() -> None:
    added, undone = (f"INC-7/R{number}/1" for number in (1, 2))
    requests = {
        "R1": request(request_id="R1", plan=plan(verb="scale"), outcome="done"),
        "R2": request(request_id="R2", plan=plan(verb="undo", choices={"of": [added]}), outcome="done"),
    }
    ledger = (
        ledger_entry(call_id=added, verb="scale", undone_by=undone),
        ledger_entry(call_id=undone, verb="undo"),
    )
    shown = card(run(requests=requests, ledger=ledger), links={})
    assert "✔ Diagnosis › ✔ Scaling › ✔ Undo" in json.dumps(shown.blocks, ensure_ascii=False)


def test_a_change_that_users_may_feel_is_confirmed_with_its_impact_and_undo() -> None:
    approve = buttons(last(waiting()))[0]
    assert approve["text"]["text"] == "Approve rollout"
    assert approve["confirm"]["text"]["text"].startswith(
        "Impact: thrash falls below 0.01 within 10 minutes. Undo: set "
    )
    low = waiting(plan=plan(risk="low", disrupts="nothing"))
    assert "confirm" not in buttons(last(low))[0]


def test_another_option_that_was_chosen_is_named() -> None:
    chosen = waiting(status="superseded", decided_by="U0BEN", decision_reason="Add a replica, instead")
    assert "<@U0BEN> chose *Add a replica* instead" in json.dumps(last(chosen).blocks)


def test_a_question_mentions_people_until_it_is_answered() -> None:
    asked = run(
        questions={"Q1": question()},
        question="Q1",
        posts=(post("question", "question:Q1", "Q1", mentions=["S0LEAD", "U0ANA"]),),
    )
    assert "📣 <!subteam^S0LEAD> <@U0ANA>" in json.dumps(dict(thread(asked))["question:Q1"].blocks, ensure_ascii=False)
    answered = asked.with_(questions={"Q1": question(status="answered", answer="yes", answered_by="U0ANA")})
    assert "S0LEAD" not in json.dumps(dict(thread(answered))["question:Q1"].blocks)


def test_an_answered_question_says_what_was_filled_in() -> None:
    forms = {"hand_over": {"who": FormField(label="Who?")}}
    answered = questioned(
        status="answered", answer="hand_over", answered_by="U0ANA", forms=forms, notes={"hand_over": "Who: <!channel>"}
    )
    shown = json.dumps(dict(thread(answered))["question:Q2"].blocks, ensure_ascii=False)
    assert "answered *Hand over to me*: Who: &lt;!channel&gt;" in shown


def test_an_answer_that_ends_the_incident_is_confirmed_and_says_what_fires() -> None:
    """`Hand over` is elsewhere a change of who leads."""
    asked = questioned(notes={"hand_over": TAKEN_AND_CLOSED, "cap": "Proposes a change."})
    shown = json.dumps(dict(thread(asked))["question:Q2"].blocks)
    firing = ", ".join(asked.firing)
    assert shown.count("Close the incident?") == 1
    assert f"The incident closes here, and its alerts are yours. Still firing: {firing}." in shown
    alone = questioned(choices={"taken": "I will take it"}, notes={"taken": TAKEN_AND_CLOSED})
    assert "Close the incident?" not in json.dumps(dict(thread(alone))["question:Q2"].blocks)


def test_the_end_of_an_incident_that_the_bot_did_not_change_says_so() -> None:
    closed = run(closed_at=BEGAN + 600, ending="fixed", ledger=(), posts=(post("closed", "closed:9", "fixed"),))
    assert "Verified without a change by the bot" in json.dumps(dict(thread(closed))["closed:9"].blocks)
    changed = closed.with_(ledger=(ledger_entry(),))
    assert "Fixed and verified" in json.dumps(dict(thread(changed))["closed:9"].blocks)


@pytest.mark.parametrize(
    ("verb", "cost"),
    [
        pytest.param("promote", " Each replica restarts then; undoing that is another rolling restart.", id="rollout"),
        pytest.param("run_job", "", id="only an evaluation of the canary"),
    ],
)
def test_a_request_that_covers_later_changes_shows_the_impact_of_the_first(verb: str, cost: str) -> None:
    later = Covered(state="later", verb=verb, title="Do more", risk="high")
    (request,) = waiting(covers=(later,)).requests.values()
    shown = json.dumps(request_blocks(waiting(covers=(later,)), request), ensure_ascii=False)
    assert "*Impact of the first step:* " in shown
    assert f'*Then, with the same approval:* Do more.{cost}"' in shown or f"Do more.{cost}\\n" in shown


def test_an_option_that_a_person_chose_is_not_called_recommended() -> None:
    first, chosen = request(request_id="R2", option="Add a replica"), request(option="Cap it", asked_at=BEGAN + 900)
    instead = first.model_copy(update={"status": "superseded", "decision_reason": f"Cap it{INSTEAD}"})
    both = waiting().with_(requests={"R2": instead, "R3": chosen})
    assert "Recommended" not in json.dumps(request_blocks(both, chosen))
    refused = first.model_copy(update={"status": "refused", "decision_reason": "no"})
    assert "*Recommended: cap it*" in json.dumps(
        request_blocks(both.with_(requests={"R2": refused, "R3": chosen}), chosen)
    )


@pytest.mark.parametrize(
    ("read_at", "is_older"), [pytest.param(BEGAN - 60, True, id="earlier"), pytest.param(BEGAN + 60, False, id="since")]
)
def test_a_reading_about_users_from_before_the_alert_says_so(read_at: float, is_older: bool) -> None:
    shown = run(users="Users are served in time", users_at=read_at, alerts={"f": alert()})
    text = json.dumps(card(shown, links={}).blocks, ensure_ascii=False)
    assert (", before the alert that fires now" in text) is is_older


@pytest.mark.parametrize(
    ("verb", "label"),
    [
        pytest.param("promote", "Approve canary + rollout", id="rollout"),
        pytest.param("run_job", "Approve canary", id="only an evaluation of the canary"),
    ],
)
def test_the_button_names_a_rollout_that_the_approval_covers(verb: str, label: str) -> None:
    later = Covered(state="later", verb=verb, title="Later", risk="high")
    assert approve_label(builders.request(plan=builders.plan(verb="canary"), covers=(later,))) == label


def test_a_change_that_another_approval_covers_is_called_approved() -> None:
    policy = next(iter(waiting().requests.values())).policy.model_copy(update={"announced": "R1 covers it"})
    shown = json.dumps(last(waiting(status="granted", policy=policy)).blocks, ensure_ascii=False)
    assert "*Approved* before, started" in shown
    assert "no approval needed" not in shown


def test_the_message_of_an_earlier_end_keeps_its_times() -> None:
    first = post("closed", "closed:9", "fixed")
    second = post("closed", "closed:12", "fixed").model_copy(update={"at": BEGAN + 900})
    once = run(closed_at=first.at, ending="fixed", posts=(first,))
    twice = run(closed_at=second.at, ending="fixed", posts=(first, second))
    assert dict(thread(twice))["closed:9"].blocks == dict(thread(once))["closed:9"].blocks
    assert dict(thread(twice))["closed:12"].blocks != dict(thread(once))["closed:9"].blocks


def test_the_name_of_a_pod_is_not_capitalized() -> None:
    assert capitalized("llm-mdbmd-4b9s7 is in rotation") == "llm-mdbmd-4b9s7 is in rotation"
    assert capitalized("the pool is full") == "The pool is full"


def test_a_request_mentions_who_is_on_call_beside_those_who_approve() -> None:
    of = waiting().posts
    (slot,) = [each.slot for each in of if each.kind == "request"]
    asked = waiting().with_(posts=tuple(each.model_copy(update={"data": {"mentions": ["S0CHAT"]}}) for each in of))
    assert "<!subteam^S0CHAT>" in json.dumps(dict(thread(asked))[slot].blocks)
    (group,) = {demand.user_group for demand in waiting().requests["R3"].policy.demands}
    same = waiting().with_(posts=tuple(each.model_copy(update={"data": {"mentions": [group]}}) for each in of))
    assert json.dumps(dict(thread(same))[slot].blocks).count(f"<!subteam^{group}>") == 1, "it is mentioned once"


def test_a_card_shows_who_was_paged_and_who_could_not_be() -> None:
    sent = Page(name="serving", team="serving", text="x", since=BEGAN, sent="trigger")
    failing = Page(
        name="lead", team="lead", text="x", since=BEGAN, failing_since=BEGAN + 60, error="<HTTP 403>", phone="+49 <1>"
    )
    shown = json.dumps(card(run(pages={"serving": sent, "lead": failing}), links={}).blocks, ensure_ascii=False)
    assert "paged serving at " in shown
    assert "(no answer yet)" in shown
    assert "⚠️ *lead could not be paged* since " in shown
    assert "&lt;HTTP 403&gt;. Call it yourself: +49 &lt;1&gt;." in shown
    answered = run(pages={"serving": sent.model_copy(update={"sent": "acknowledge"})})
    assert "(answered)" in json.dumps(card(answered, links={}).blocks)


def test_card_thread_and_request_name_the_cluster_where_there_are_several() -> None:
    shown = waiting()
    east = shown.with_(target=shown.target.model_copy(update={"cluster": "east", "among_several": True}))
    assert "east/serving/llm" in card(east, links={}).text
    assert "`serving/llm` in east" in json.dumps(card(east, links={}).blocks)
    (asked,) = [message for slot, message in thread(east) if slot.startswith("request:")]
    title = f"{request().plan.title} in east"
    assert asked.text.startswith(f"Request R3 (high risk): {title}")
    assert f"*{title}*" in json.dumps(asked.blocks, ensure_ascii=False)
    (alone,) = [message for slot, message in thread(shown) if slot.startswith("request:")]
    assert " in prod-1" not in alone.text + json.dumps(alone.blocks)


def test_lists_call_an_incident_by_its_diagnosis_once_there_is_one() -> None:
    assert run(title="VllmKVCacheThrash").called == "VllmKVCacheThrash"
    assert run(title="VllmKVCacheThrash", diagnosis="KV cache full").called == "KV cache full"


def test_a_step_that_waits_says_what_it_waits_for_and_not_that_it_has_happened() -> None:
    change = ActiveChange(state="cap", verb="set_flags", request_id="R3", step=1, begun=True)
    shown = json.dumps(last(waiting(**GRANTED).with_(change=change, ledger=(ledger_entry(),))).blocks)
    assert "Waiting until all 4 replicas run the new flags (step 2 of 2)" in shown


def test_a_flag_and_its_number_are_code_where_they_are_the_change() -> None:
    held = ledger_entry(title="Set --max-num-active-seqs 7, --watermark 0.05 on llm")
    shown = json.dumps(card(run(ledger=(held,)), links={}).blocks)
    assert "Set `--max-num-active-seqs 7`, `--watermark 0.05` on llm" in shown


def test_an_open_incident_that_began_a_day_ago_says_the_date() -> None:
    late = run(users="Users wait 9.4 s", users_at=BEGAN + 86_400)
    assert f"began {day(late.starts_at)}" in str(card(late, links={}).blocks)


def test_an_incident_that_no_alert_opened_counts_from_its_opening() -> None:
    assert "From opening to close" in str(last(closed().with_(alerts={})).blocks)


def test_the_last_number_of_a_closed_incident_says_when_it_was_read() -> None:
    ended = closed().with_(users="Users wait 9.4 s", users_at=BEGAN + 900)
    shown = json.dumps(card(ended, links={}).blocks)
    assert f"read <!date^{int(BEGAN + 900)}^" in shown


def test_a_card_without_a_sentence_about_users_says_that_their_state_is_not_known() -> None:
    shown = json.dumps(
        card(run(findings=run().findings.model_copy(update={"baseline": {}}), latest={}), links={}).blocks
    )
    assert "What users feel is not known" in shown


def test_details_list_what_can_be_chosen_before_what_cannot() -> None:
    others = (
        Alternative(key="scale", label="Add a replica", why_not="no GPU is free"),
        Alternative(key="shed", label="Refuse at the gateway", effect="Restarts nothing."),
    )
    asked = waiting(alternatives=others)
    shown = "\n".join(str(block) for block in details(asked, "R3", no_units))
    assert shown.index("*Refuse at the gateway*: Restarts nothing.") < shown.index("Not possible now")
    assert shown.index("Not possible now") < shown.index("Add a replica: no GPU is free")


def test_details_say_each_reading_in_words_under_where_it_is_from() -> None:
    shown = "\n".join(str(block) for block in details(waiting(), "R3", no_units))
    assert "snake_case" not in shown
    assert "Restarts: count: 0, oom: no" in shown


def test_an_edited_request_is_called_by_its_new_values() -> None:
    asked = waiting(option="Limit each replica to 7 concurrent requests")
    assert "Recommended: limit each replica to 7" in str(last(asked).blocks)
    edited = waiting(option="Limit each replica to 7 concurrent requests", edited_by="U0BEN")
    assert "Limit each replica to 7" not in str([last(edited).blocks, card(edited, links={}).blocks])
    assert edited.requests["R3"].plan.title in str(last(edited).blocks)


def test_a_step_names_its_object_once() -> None:
    asked = request()
    named = Difference(path="/spec/unschedulable", before=False, after=True, text="node-1: schedulable on → off")
    call = asked.plan.calls[0].model_copy(update={"title": "Cordon node node-1", "differences": (named,)})
    shown = str(last(waiting(plan=asked.plan.model_copy(update={"steps": (call,)}))).blocks)
    assert "1. Cordon node node-1: `schedulable on → off`" in shown


def test_a_step_that_sets_flags_names_each_once_with_its_old_value() -> None:
    answers = '--override-generation-config (not set) → {"max_new_tokens": 484}'
    texts = ("--max-num-active-seqs (not set) → 8", answers)
    made = tuple(Difference(path=f"/{number}", text=text) for number, text in enumerate(texts))
    titled = 'Set --max-num-active-seqs 8, --override-generation-config {"max_new_tokens": 484} on llm'
    call = plan().calls[0].model_copy(update={"title": titled, "differences": made})
    asked = request(plan=plan(steps=(call,)))
    shown = [block["text"]["text"] for block in request_blocks(run(requests={asked.request_id: asked}), asked)[:4]]
    assert f"1. Set `{texts[0]}`, `{answers}` on llm" in shown


def test_what_is_bad_beside_a_verdict_that_holds_is_not_green() -> None:
    held = News(title="Does it stay away?", result="held", text="⚠️ 0 preemptions; users still wait too long", at=BEGAN)
    assert news_line(held) == "⚠️ *Does it stay away?* In part: 0 preemptions; users still wait too long"


def test_a_change_that_is_over_keeps_its_tick_while_the_next_step_is_read() -> None:
    over = {"R3": applying().requests["R3"].model_copy(update={"outcome": "done"})}
    assert "✔ Diagnosis › ✔ Rollout" in str(card(applying().with_(requests=over, change=None), links={}).blocks)
    watch = ActiveWatch(started_at=BEGAN, until=BEGAN + 60)
    watched = applying().with_(requests=over, change=None, watch=watch)
    assert "✔ Diagnosis › ✔ Rollout › *Verification*" in str(card(watched, links={}).blocks)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "open"])
def test_a_long_cause_ends_with_a_whole_word(*, is_closed: bool) -> None:
    cause = "The KV cache does not fit: " + "memory " * 200
    found = post("diagnosis", "diagnosis:2", "x", title="full", cause=cause)
    shown = run(diagnosis="full", users="Users wait 5 s", cause=cause, posts=(found,))
    shown = shown.with_(closed_at=BEGAN + 1900, ending="fixed") if is_closed else shown
    assert "memory …" in str(last(shown).blocks)
    assert "memory …" in str(card(shown, links={}).blocks)


def test_a_closed_card_keeps_what_was_found() -> None:
    data = {"title": "full", "cause": "It was <full>.", "checks": [["ruled_out", "a crash"], ["found", "a deploy"]]}
    found = Post(slot="d", kind="diagnosis", ref="p", at=BEGAN + 60, data=data)
    shown = str(card(closed().with_(posts=(found,)), links={}).blocks)
    assert ": It was &lt;full&gt;. Found: a deploy." in shown
    assert "Ruled out" not in shown
    assert "Diagnosis at" not in str(card(closed().with_(posts=()), links={}).blocks)


@pytest.mark.parametrize("shown_on", ["card", "closed card"])
def test_an_engines_whole_error_is_only_in_the_diagnosis(shown_on: str) -> None:
    error = "It does not start: ValueError: " + "the KV cache is too small " * 15 + "and that is all"
    diagnosis = Post(slot="d", kind="diagnosis", ref="p", at=BEGAN + 60, data={"title": "full", "cause": error})
    shown = run(cause=error, posts=(diagnosis,)) if shown_on == "card" else closed().with_(posts=(diagnosis,))
    text = str(card(shown, links={}).blocks)
    assert "ValueError: the KV cache is too small" in text
    assert "and that is all" not in text
    assert "and that is all" in str(last(run(posts=(diagnosis,))).blocks)


def test_an_end_that_may_be_tomorrow_has_its_date() -> None:
    tomorrow = BEGAN + 24 * 3600
    watched = run(watch=ActiveWatch(started_at=BEGAN, until=tomorrow))
    asked = questioned()
    assert asked.open_question is not None
    later = asked.open_question.model_copy(update={"expires_at": tomorrow})
    asked = asked.with_(questions={later.question_id: later})
    requested = waiting(expires_at=tomorrow)
    for shown in (
        card(watched, links={}),
        card(asked, links={}),
        last(asked),
        card(requested, links={}),
        last(requested),
    ):
        assert day(tomorrow) in str(shown.blocks)
        assert time_of_day(tomorrow) not in str(shown.blocks)


def test_what_was_found_keeps_its_time_beside_a_cause_that_was_read_again() -> None:
    checks = [["found", "a bad node (2 of 4 replicas thrash)"], ["ruled_out", "a crash"]]
    data = {"title": "full", "cause": "2 of 4 replicas thrash.", "checks": checks}
    diagnoses = (Post(slot="d", kind="diagnosis", ref="p", at=BEGAN + 60, data=data),)
    findings = Findings(checks=tuple(Check(state=str(text), found=kind, text=text) for kind, text in checks))

    def shown(cause: str) -> str:
        return str(card(run(cause=cause, findings=findings, posts=diagnoses), links={}).blocks)

    found = "Found: a bad node (2 of 4 replicas thrash). Ruled out: a crash."
    assert f"2 of 4 replicas thrash. {found}" in shown("2 of 4 replicas thrash.")
    since = f"As of {time_of_day(BEGAN + 60)}, f{found[1:]}"
    assert f"1 of 5 replicas thrashes. {since}" in shown("1 of 5 replicas thrashes.")


def test_what_was_found_is_the_diagnosis_where_it_has_no_other_title() -> None:
    checks = [["found", "no compression is on"], ["ruled_out", "a node fault"]]
    message = last(run(posts=(post("diagnosis", "diagnosis:2", "x", checks=checks),)))
    assert "): No compression is on" in str(message.blocks)
    assert "Found:" not in str(message.blocks)
    assert "Ruled out: a node fault." in str(message.blocks)
    assert message.text == "Diagnosis: no compression is on"


@pytest.mark.parametrize(("edits", "is_listed"), [(1, False), (4, True)], ids=["in-the-step", "too-many-for-the-step"])
def test_the_edits_of_a_rollback_are_listed_once(edits: int, is_listed: bool) -> None:
    differences = Circumstance(name="differences", grade="note", text=f"{edits} differences: --a 1 → 2")
    made = tuple(Difference(path=f"/{number}", before=1, after=2, text=f"--a{number} 1 → 2") for number in range(edits))
    call = plan().calls[0].model_copy(update={"differences": made})
    asked = request(plan=plan(steps=(call,), circumstances=(differences,)))
    shown = str(request_blocks(run(requests={asked.request_id: asked}), asked))
    assert ("differences: --a" in shown) == is_listed


def test_a_notification_of_a_diagnosis_is_whole_sentences() -> None:
    checks = [["found", "a deploy"]]
    diagnosed = run(posts=(post("diagnosis", "diagnosis:2", "x", title="full", users="Users wait 5 s", checks=checks),))
    assert last(diagnosed).text == "Diagnosis: full. Users wait 5 s. Found: a deploy."


@pytest.mark.parametrize(
    ("namespace", "why"), [("serving", "from the alert's labels only"), ("", "the alert's labels name no namespace")]
)
def test_a_card_says_why_its_workload_is_not_certain(namespace: str, why: str) -> None:
    unresolved = run().target.model_copy(update={"resolved": False, "namespace": namespace})
    assert f"({why})" in str(card(run(target=unresolved), links={}).blocks)


@pytest.mark.parametrize(
    ("ending", "read_before", "says"),
    [
        pytest.param("handed_over", 900, ["🔔 *Still firing:* VllmKVCacheThrash", "· read "], id="what-goes-on"),
        pytest.param("handed_over", 10, ["🔔 *Still firing:* VllmKVCacheThrash"], id="read-just-now"),
        pytest.param("self_cleared", 10, ["🔔 *Still firing:* VllmKVCacheThrash"], id="calm-and-not-verified"),
        pytest.param("fixed", 10, [], id="verified"),
    ],
)
def test_the_end_says_what_still_fires_and_how_old_its_reading_is(
    ending: str, read_before: float, says: list[str]
) -> None:
    end = closed()
    firing = {"firing": ["VllmKVCacheThrash"], "users": "Users wait 7 s", "users_at": BEGAN + 1900 - read_before}
    message = last(end.with_(posts=(post("closed", "closed", ending, ending=ending, **firing),)))
    shown = str(message.blocks)
    assert [each for each in ("🔔 *Still firing:* VllmKVCacheThrash", "· read ") if each in shown] == says
    assert ("Still firing: VllmKVCacheThrash" in message.text) is (ending != "fixed")


def test_what_users_felt_before_it_was_calm_is_dated_beside_the_recovery() -> None:
    data = {"ending": "resolved_by_itself", "text": "It was calm.", "users": "Users wait 2.4 s"}
    at = BEGAN + 1900
    ended = post("closed", "closed", "x", **data, users_at=at - 40)
    assert "· read " in str(last(closed().with_(posts=(ended,), calm_since=at - 10)).blocks)
    assert "· read " not in str(last(closed().with_(posts=(ended,), calm_since=None)).blocks)


def test_the_end_says_who_has_it_now() -> None:
    end = closed().with_(
        posts=(post("closed", "closed", "handed_over", ending="handed_over", text="A person took it."),)
    )
    assert "*Handed over to people*: A person took it. <@U0ANA> leads." in str(last(end).blocks)
    assert "leads" not in str(last(end.with_(lead="")).blocks)
    assert "leads" not in str(last(closed()).blocks)


@pytest.mark.parametrize(
    ("status", "outcome", "heading"),
    [
        ("open", "", ""),
        ("advised", "", "*To commit after it is applied*"),
        ("granted", "", "*To commit after it is applied*"),
        ("granted", "done", "*To commit*"),
        *(("granted", outcome, "") for outcome in ("failed", "unclear", "impossible")),
        *((status, "", "") for status in ("refused", "expired", "superseded", "withdrawn")),
    ],
)
def test_what_is_not_applied_is_not_to_be_committed(status: str, outcome: str, heading: str) -> None:
    asked = request(status=status, outcome=outcome, plan=plan(commit="# Deployment serving/llm: helm upgrade"))
    shown = str(request_blocks(run(requests={asked.request_id: asked}), asked))
    assert re.findall(r"\*To commit.*?\*", shown) == [heading] * bool(heading)


def test_while_people_decide_the_text_to_commit_is_in_the_details() -> None:
    asked = waiting(plan=plan(commit="# Deployment serving/llm: helm upgrade"))
    assert "helm upgrade" not in str(last(asked).blocks)
    assert "# Deployment serving/llm: helm upgrade" in str(details(asked, "R3", no_units))


def test_a_handover_mentions_its_people_after_another_one_leads() -> None:
    data = {"text": "<@U0ANA> handed over to <@U0BEN>: see <!here>", "user": "U0ANA", "mentions": ["U0BEN"]}
    shown = str(last(run(posts=(Post(slot="n", kind="note", ref="N1", at=BEGAN, data=data),), lead="U0EVE")).blocks)
    assert "<@U0ANA> handed over to <@U0BEN>: see &lt;!here&gt;" in shown


def test_a_handover_shows_times_in_the_readers_zone() -> None:
    matters = [
        {"what": "Waits for approval", "about": "cap <!here>", "word": "by", "at": BEGAN + 900},
        {"what": "Halted by <@U0ANA>", "about": "", "word": "", "at": None},
        {"what": "Alerts are silenced", "about": "", "word": "until", "at": BEGAN + 2 * 86_400},
    ]
    data = {"text": "<@U0ANA> handed over to <@U0BEN>.", "user": "U0ANA", "mentions": ["U0BEN"], "matters": matters}
    shown = last(run(posts=(Post(slot="n", kind="note", ref="N1", at=BEGAN, data=data),), halt=Halt(by="U0ANA")))
    first, waits, halted, silenced = shown.blocks[0]["text"]["text"].splitlines()
    assert first == "📣 <@U0BEN>: <@U0ANA> handed over to <@U0BEN>."
    assert waits == f"Waits for approval by {time_of_day(BEGAN + 900)}: cap &lt;!here&gt;"
    assert halted == "Halted by <@U0ANA>"
    assert silenced == f"Alerts are silenced until {day(BEGAN + 2 * 86_400)}"


def test_a_request_does_not_say_that_all_alerts_are_resolved_once_one_fires_again() -> None:
    again = waiting(alerts_resolved_at=BEGAN + 400).with_(alerts_resolved_at=None)
    assert "All alerts resolved" not in json.dumps(last(again).blocks)


def test_what_led_to_a_patch_is_above_it() -> None:
    """The verdict of the canary came below the rollout that was not possible."""
    news = News(title="Does the canary pass?", result="held", text="0 preemptions", at=BEGAN)
    data = {"title": "Roll it out", "result": "impossible", "text": "It would be reverted.", "patch": "spec:\n  a: 1"}
    outcome = last(run(posts=(post("outcome", "outcome:1:0", "promote", news=[news.model_dump()], **data),)))
    shown = json.dumps(outcome.blocks, ensure_ascii=False)
    assert shown.index("Does the canary pass?") < shown.index("Roll it out") < shown.index("spec:")


LATER = BEGAN + 14 * 3600
UNTIL_LATER = [
    pytest.param({"status_update": StatusUpdate(text="x", at=BEGAN), "deadlines": {NEXT_STATUS: LATER}}, id="news"),
    pytest.param({"silences": {"s": LATER}}, id="silence"),
    pytest.param({"alerts_resolved_at": LATER}, id="resolved"),
    pytest.param(
        {"parked_before": (ParkedIncident(incident_id="INC-1", waits_for="a node", until=LATER),)}, id="parked"
    ),
]


@pytest.mark.parametrize("fields", UNTIL_LATER)
def test_a_notice_on_the_card_has_its_date_where_it_may_be_of_another_day(fields: dict[str, Any]) -> None:
    assert day(LATER) in str(card(run(opened_at=BEGAN, **fields), links={}).blocks)


@pytest.mark.parametrize("shown", [*CARDS.values(), *THREADS.values()])
def test_a_notification_has_no_time_that_only_slack_can_format(shown: Run) -> None:
    assert not [text for text in texts_of_notifications(shown) if "<!date" in text]


def texts_of_notifications(shown: Run) -> list[str]:
    return [card(shown, links=LINKS).text, *(message.text for _, message in thread(shown))]


def test_the_notification_of_a_request_has_its_deadline_with_date_and_zone() -> None:
    texts = "\n".join(texts_of_notifications(waiting()))
    assert "Needs approval by 2026-11-18 11:25 UTC" in texts
    assert "Expires at 2026-11-18 11:25 UTC" in texts


def words_of(message: Message) -> str:
    return "\n".join(str(block["text"]["text"]) for block in message.blocks if block["type"] == "section")


@pytest.mark.parametrize(("status", "is_shown"), [("open", True), ("refused", False)])
def test_above_a_recommended_change_is_what_it_decides_about(status: str, is_shown: bool) -> None:
    asks = waiting(status=status, option="Remove the canary").with_(
        posts=(post("request", "request:R3", "R3", decides="what becomes of the canary <!here>?"),)
    )
    above, _, _ = words_of(last(asks)).partition("*Recommended: remove the canary*")
    assert ("What becomes of the canary &lt;!here&gt;?" in above) is is_shown


IN_TIME = "Users are served in time: first token within 246 ms"


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("Users wait 20 s", f"At the diagnosis, {time_of_day(BEGAN + 60)}: users wait 20 s"),
        (IN_TIME, ""),
        ("", ""),
    ],
)
def test_the_closing_message_compares_what_users_feel_with_the_diagnosis(before: str, shown: str) -> None:
    found = post("diagnosis", "diagnosis:2", title="KV cache full", users=before)
    end = post("closed", "closed:9", "fixed", ending="fixed", text="It is calm.", users=IN_TIME, news=NEWS[:1])
    _, first, felt, after, *_ = ["", *words_of(last(closed().with_(posts=(found, end)))).split("\n")]
    assert (first, felt) == ("✅ *Fixed and verified*: It is calm.", f"*{IN_TIME}*")
    assert (after if shown else "") == shown


def test_what_the_menu_says_of_its_choices_is_not_said_twice() -> None:
    choices = {"a": "Act", "b": "Back out", "c": "Call", "d": "Do more"}
    notes = {"a": "Proposes a change.", "c": "Calls facilities.", "d": "long " * 20}
    shown = last(questioned(choices=choices, notes=notes))
    assert [line for line in words_of(shown).split("\n") if line.startswith("• ")] == [
        "• *Act*: Proposes a change.",
        f"• *Do more*: {'long ' * 20}".rstrip(),
    ]
    assert "Calls facilities." in json.dumps(shown.blocks)


def test_a_request_that_nobody_decided_before_says_so() -> None:
    run = asked_before()
    left = run.requests["R2"].model_copy(update={"status": "expired", "decided_by": "", "decided_at": None})
    shown = json.dumps(last(run.with_(requests=run.requests | {"R2": left})).blocks, ensure_ascii=False)
    assert "Exactly this was asked for a moment ago, and nobody decided: approving it needs a new reason." in shown


def test_teams_that_nobody_is_set_for_are_not_named_as_who_approves() -> None:
    nobody = [Demand(team=team, user_group="S0SERVING", falls_back=True) for team in ("serving", "platform")]
    shown = json.dumps(last(waiting(policy=policy(demands=tuple(nobody[:1])))).blocks, ensure_ascii=False)
    assert "needs an approval from <!subteam^S0SERVING>" in shown
    assert "an approval from serving" not in shown
