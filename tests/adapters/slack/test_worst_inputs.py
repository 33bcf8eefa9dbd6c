"""Whatever a run contains, Slack accepts every message, and external text has no effect."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot.adapters.slack import limits
from bot.adapters.slack.inbound.decision_forms import REASON_FORMS, edit_form, reason_form
from bot.adapters.slack.outbound.blocks import section
from bot.adapters.slack.outbound.card import card
from bot.adapters.slack.outbound.details import details
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.outbound.messages import thread
from bot.adapters.slack.press_value import ButtonValue
from bot.domain.approvals.edits import EditableValue
from bot.domain.approvals.grant import Demand
from bot.domain.changes.plan import Call, Circumstance, Difference
from bot.domain.incidents.run import ActiveChange, Check, CheckResult, Halt, News, Run, StatusUpdate
from bot.domain.kernel.target import Target
from bot.domain.signals.signal import Reading
from bot.sandbox.slack.block_kit import problems_of_blocks, problems_of_view
from tests.adapters.slack.runs import (
    DEPLOYMENT,
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
)

BROKEN = approval("U0LEA", teams=("lead",)).model_copy(
    update={"press": approval("U0LEA").press.model_copy(update={"action": "break_glass"})}
)
INJECTION = "<!channel> <@U0EVE> <https://evil.test|ok> ```\n*Approved* by me` & \u202e @here <!date^1^{ago}|x>"
OUR_TOKENS = re.compile(
    r"<!date\^\d+\^[^<>|]+\|[^<>]+ UTC>|<@U0[A-Z]+>|<!subteam\^S0SERVING>|<https://ok\.test/\?a=1\|"
)


def filled(text: str, *, many: int = 1) -> Run:
    """A run in which everything that may come from outside is `text`, and every list has `many` entries."""
    asked = request(
        plan=plan(
            title=text, expected=text, undo_text=text,
            steps=tuple(
                Call(method="patch", target=DEPLOYMENT, title=text, no_undo=text,
                     differences=(Difference(path=text, before={text: text}, after=[text]),))
                for _ in range(many)
            ),
            circumstances=tuple(Circumstance(name="x", grade="note", text=text) for _ in range(many)),
        ),
        why=text, still=text, evidence=(text,) * many, decision_reason=text,
        policy=policy(
            demands=(Demand(users=(text,) * many), Demand(team="model", channel=text, falls_back=True)),
            escalate_to=Demand(team="lead", users=(text,) * many), break_glass=Demand(team="lead", user_group=text),
        ),
        presses=(approval(),) * many, edited_by=text, extended_by=text, half_passed=True,
    )  # fmt: skip
    put = question(
        text=text, why=text, choices={f"{text}{n}": text for n in range(many)},
        notes={f"{text}{n}": text for n in range(many)}, styles={f"{text}0": "strange"}, evidence=(text,) * many,
    )  # fmt: skip
    known = Reading(name=text, value=text, fields={text: text}, unknown_parts={text: text}, unit=text)
    unread = Reading(name=text, unknown=text, unit=text)
    shown = {f"{text}{n}": reading for n in range(many) for reading in (known, unread)}
    dumps = {name: reading.model_dump(mode="json") for name, reading in shown.items()}
    items = (News(title=text, result=result, text=text, at=0.0, parts={text: text}) for result in (text, "held"))
    news = [each.model_dump(mode="json") for each in items]
    posts = (
        post("diagnostics", "diagnostics:1", text, readings=dumps, ways=[[text, text]] * many),
        post(
            "diagnosis",
            "diagnosis:1",
            text,
            title=text,
            cause=text,
            users=text,
            checks=[["found", text]] * many,
            looked={"readings": dumps, "decisions": [[text, text]] * many},
        ),
        post("request", "request:R3", "R3", head=text, news=news),
        post("question", "question:Q2", "Q2", news=news),
        post("outcome", "outcome:R3", "R3", result=text, text=text),
        post("outcome", "outcome:x", text, result=text, text=text),
        post("verdict", "verdict:1", text, verdict=text, parts={f"{text}{n}": text for n in range(many)}, text=text),
        post("note", "note:1", text, text=text, user=text),
        post("note", "half:R3", "R3", text=text, user="", ping=True),
        post("note", "glass:R3", "R3", text=text, user="", ping="all"),
        post("closed", "closed", text, ending=text, text=text, head=text, news=news, users=text, held=[text] * many),
        post("request", "request:gone", text),
    )
    return run(
        title=text, diagnosis=text, cause=text, users=text, status_update=StatusUpdate(text=text, by=text),
        target=Target(cluster=text, namespace=text, name=text, resolved=False), lead=text,
        playbook=text, state=text, path=(text,) * many, halt=Halt(by=text), ending=text,
        alerts={f"{n}": alert(text) for n in range(many)}, requests={"R3": asked}, questions={"Q2": put},
        question="Q2", posts=posts, baseline=shown, latest=shown, ledger=(ledger_entry(title=text, undo=()),) * many,
        change=ActiveChange(state=text, verb=text, request_id="R3", begun=True, progress=text),
    )  # fmt: skip


def variants(filled_run: Run) -> list[Run]:
    """Waiting for the answer, for the approval, at work, decided in each way, and closed."""
    asked = filled_run.requests["R3"]
    glass = (BROKEN, *asked.presses)
    decided = [
        filled_run.with_(
            question="", requests={"R3": asked.model_copy(update={"status": "granted", "presses": glass})}
        ),
        *(
            filled_run.with_(question="", requests={"R3": asked.model_copy(update={"status": status})})
            for status in ("open", "granted", "refused", "superseded")
        ),
    ]
    return [filled_run, *decided, filled_run.with_(closed_at=filled_run.opened_at + 9)]


def messages(filled_run: Run) -> list[Message]:
    links = {"request:R3": "https://ok.test/?a=1", "question:Q2": "https://evil.test/|<!channel>"}
    return [
        message
        for each in variants(filled_run)
        for message in (card(each, links=links), *(message for _, message in thread(each)), *behind(each))
    ]


def behind(filled_run: Run) -> list[Message]:
    """The details of each message, which a modal shows."""
    shown = (
        details(filled_run, each.slot if each.kind == "diagnosis" else each.ref, no_units) for each in filled_run.posts
    )
    return [Message("details", blocks) for blocks in shown if blocks]


def assert_accepted(message: Message) -> None:
    assert problems_of_blocks(list(message.blocks)) == []
    # Slack's own numbers, not ours: `chat.update` takes 4,000 characters of text. Blocks with 9,597 characters were
    # taken, and with 11,341 refused (bolt-js#2867).
    assert 1 <= len(message.text) <= 4_000
    assert len(message.as_plain_text().text) <= 4_000
    assert limits.characters(list(message.blocks)) <= 9_597
    json.dumps([message.text, message.blocks], ensure_ascii=False).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(st.characters() | st.sampled_from("<>&`*_~|@\n"), max_size=40), times=st.sampled_from([1, 3, 400]))
def test_any_text_gives_messages_that_slack_accepts(text: str, times: int) -> None:
    for message in messages(filled(text * times)):
        assert_accepted(message)


@pytest.mark.parametrize("many", [0, 1, 60, 300])
@pytest.mark.parametrize("text", ["x", "&" * 4_000, "word " * 900, ""], ids=["short", "escaped", "long", "empty"])
def test_any_number_of_entries_gives_messages_that_slack_accepts(text: str, many: int) -> None:
    for message in messages(filled(text, many=many)):
        assert_accepted(message)


def test_the_buttons_survive_when_a_request_is_too_long_for_one_message() -> None:
    full = filled("word " * 300, many=300)
    for wanted, slot in (("approve", "request:R3"), ("choose:0", "question:Q2")):
        blocks = dict(thread(full))[slot].blocks
        assert wanted in [e["action_id"] for b in blocks if b["type"] == "actions" for e in b["elements"]]


@pytest.mark.parametrize("text", ["6", "6" * 4_000, INJECTION], ids=["short", "long", "injection"])
def test_every_form_of_a_request_is_one_that_slack_accepts(text: str) -> None:
    value = ButtonValue("INC-1234567", "R3", digest="d" * 64)
    kept = {"value": value.packed() or "", "response_url": "https://hooks.slack.test/" + "a" * 300, "channel": "C0INC"}
    numbers = [EditableValue(name=f"--{n}-{text}", now=text, range_text=text) for n in range(40)]
    forms = [edit_form(value, numbers, kept)]
    forms += [reason_form(form, read, value, kept) for form in REASON_FORMS for read in (None, filled(text[:300]))]
    for view in (form.view for form in forms):
        assert problems_of_view(view) == []
        assert len(view["private_metadata"]) <= limits.PRIVATE_METADATA


def test_nothing_from_outside_pings_links_or_formats_as_ours() -> None:
    for message in messages(filled(INJECTION)):
        whole = json.dumps([message.text, visible(message)], ensure_ascii=False)
        left = OUR_TOKENS.sub("", whole).replace("<!channel>|", "")
        assert "<" not in left
        assert "\u202e" not in left
        assert "@here" not in left
        assert "U0EVE>" not in left.replace("U0EVE&gt;", "").replace("U0EVE›", "")


def visible(message: Message) -> list[str]:
    """The texts of all blocks; the values of buttons are seen by nobody."""

    def texts(part: object) -> list[str]:
        if isinstance(part, dict):
            own = [part["text"]] if isinstance(part.get("text"), str) else []
            return own + [text for value in part.values() for text in texts(value)]
        return [text for value in part for text in texts(value)] if isinstance(part, list | tuple) else []

    return texts(message.blocks)


@pytest.mark.parametrize("kind", ["found", "ruled_out", "unknown"])
def test_many_long_checks_of_one_kind_are_cut_to_what_slack_accepts(kind: CheckResult) -> None:
    """They share one line of the card and of the diagnosis, and Slack refuses all of a message for one long text."""
    texts = [f"{number} &<x> {'y' * 290}" for number in range(16)]
    made = run(posts=(post("diagnosis", "diagnosis:1", "p", title="t", checks=[[kind, text] for text in texts]),))
    checks = tuple(Check(state=f"s{number}", found=kind, text=text) for number, text in enumerate(texts))
    made = made.with_(findings=made.findings.model_copy(update={"checks": checks}), cause="c " * 120)
    messages = [message for _, message in thread(made)]
    for message in (*messages, card(made, links={})):
        assert problems_of_blocks(list(message.blocks)) == []


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        ("x" * 3000, "x" * 3000),
        ("x" * 3001, f"{'x' * 2999}…"),
        (f"{'x' * 2996}&amp;y", f"{'x' * 2996}…"),
        (f"{'x' * 2990}<https://ok.test/|a link>", f"{'x' * 2990}…"),
    ],
)
def test_a_line_that_is_too_long_is_cut_between_escapes_and_links(line: str, cut: str) -> None:
    assert [block["text"]["text"] for block in section([line])] == [cut]
