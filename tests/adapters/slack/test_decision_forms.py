"""The forms of a request as a person fills them in: checked before they are stored, with no loss and no approval."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.adapters.slack.press_value import MENU, ButtonValue
from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Alternative, Covered
from bot.domain.incidents.machine.questions import TAKEN_AND_CLOSED
from bot.domain.incidents.run import Post, Run
from bot.domain.playbooks.library import Library
from tests.adapters.slack.conftest import CHANNEL, Counter, view_of, whispered
from tests.adapters.slack.runs import BEGAN, LOOKED, alert, number, plan, post, question, request, run, waiting
from tests.adapters.slack.test_app import pressed, presses
from tests.adapters.slack.test_messages import GLASS, asked_before
from tests.domain.incidents.machine.steps import TEXT

EDITABLE = plan(choices={"edits": {"--max-num-seqs": "6"}})


def editable(counter: Counter, **changes: Any) -> Run:
    """The run of the tests with a number in it, as the storage has it too."""
    run = waiting(plan=EDITABLE, digest=EDITABLE.digest, **changes)
    counter.inbound.runs[run.incident_id] = run
    return run


async def submit(counter: Counter, values: dict[str, Any]) -> dict[str, Any]:
    view = await view_of(counter)
    return await counter.slack.do("submit", user="U0ANA", view_id=view["id"], values=values)


def seqs(text: str) -> dict[str, Any]:
    return {"field:0": {"entry": text}}


async def from_menu(counter: Counter, word: str, *, shown: Run | None = None) -> dict[str, Any]:
    """An entry of the request's menu."""
    run = shown or waiting()
    value = ButtonValue(run.incident_id, "R3", run.requests["R3"].digest, word).packed()
    return await pressed(counter, "more", shown=run, value=value)


@pytest.mark.parametrize(
    ("refused", "follows"),
    [
        ("refused: choose", "goes on with: choose"),
        ("refused: calm", "closes the incident"),
        ("refused: again", "proposes: again"),
        ("refused: tidy", "cleans up: tidy"),
        ("", "asks what to do next"),
    ],
)
async def test_a_refusal_says_what_follows(counter: Counter, refused: str, follows: str) -> None:
    others = "".join(
        f"  {name}: {{change: {verb}, why: It hangs., done: calm, failed: left}}\n"
        for name, verb in (("again", "restart"), ("tidy", "remove_canary"))
    )
    text = TEXT.replace("grow", "cap").replace("    refused: choose\n", f"    {refused}\n", 1)
    text = text.replace("  watch:\n", f"{others}  watch:\n", 1)
    text = text.replace(
        "{label: Stop, to: calm}",
        "{label: Stop, to: calm}\n      a: {label: A, to: again}\n      t: {label: T, to: tidy}",
    )
    counter.shelf.library = Library({"kv-cache-oom": load_text(text)})
    shown = waiting(alternatives=(Alternative(key="scale", label="Add a replica", effect="restarts nothing"),))
    counter.inbound.runs[shown.incident_id] = shown
    await pressed(counter, "refuse", shown=shown)
    about = str((await view_of(counter))["blocks"])
    assert f"If you refuse, this is not done, and the bot {follows}." in about
    assert "For another option, use *Other options…* on its message." in about


async def test_the_details_have_the_diff_the_readings_and_the_reasons(counter: Counter) -> None:
    shown = editable(counter)
    assert (await from_menu(counter, "details", shown=shown))["ok"]
    view = json.dumps((await view_of(counter))["blocks"], ensure_ascii=False)
    for words in ("--max-num-seqs 64 → 6", "PDB llm lets 1 of 4 pods go", "thrash &gt; 0.1", "kv_usage", "plan `"):
        assert words in view, words
    assert presses(counter) == []


async def test_details_give_the_parts_of_a_probe_their_units(counter: Counter) -> None:
    text = TEXT.replace("signals:", "signals:\n  restarts: {probe: gpu_load}").replace(
        "read: [usage]", "read: [usage, restarts]"
    )
    counter.shelf.library = Library({"kv-cache-oom": load_text(text)})
    dump = LOOKED.model_dump(mode="json")
    waits = number("waiting", 19.0, "requests", at=BEGAN + 50).model_copy(update={"label": "Requests waiting"})
    dump["readings"]["waiting"] = waits.model_dump(mode="json")
    dump["readings"]["restarts"] |= {"fields": {"least_free": 3.5, "compute": 0.42}, "unknown_parts": {}}
    shown = editable(counter)
    posts = tuple(replaced(each, dump) for each in shown.posts)
    shown = counter.inbound.runs[shown.incident_id] = shown.with_(posts=posts)
    assert (await from_menu(counter, "details", shown=shown))["ok"]
    view = json.dumps((await view_of(counter))["blocks"], ensure_ascii=False)
    assert "least free: 3.5 GiB, compute: 42.0%" in view
    assert "Requests waiting: 19 (3 before)" in view


def replaced(post: Post, looked: dict[str, Any]) -> Post:
    return post.model_copy(update={"data": post.data | {"looked": looked}}) if "looked" in post.data else post


async def test_more_time_is_one_press(counter: Counter) -> None:
    assert (await from_menu(counter, "more_time"))["ok"]
    [press] = presses(counter)
    assert (press.action, press.about, press.digest) == ("more_time", "R3", request().plan.digest)


async def test_the_form_of_an_edit_shows_each_number_with_its_range(counter: Counter) -> None:
    assert (await from_menu(counter, "edit", shown=editable(counter)))["ok"]
    view = await view_of(counter)
    field = view["blocks"][0]
    assert (field["label"]["text"], field["element"]["initial_value"]) == ("--max-num-seqs", "6")
    assert field["hint"]["text"] == "At least 1. Proposed: 6."
    assert presses(counter) == []


async def test_a_value_out_of_range_keeps_the_form_open_and_stores_nothing(counter: Counter) -> None:
    await from_menu(counter, "edit", shown=editable(counter))
    assert "at least 1" in (await submit(counter, seqs("0")))["errors"]["field:0"]
    assert "nothing is different" in (await submit(counter, seqs("6")))["errors"]["field:0"]
    assert presses(counter) == []
    assert (await submit(counter, seqs("8")))["ok"]
    [press] = presses(counter)
    assert (press.action, press.about, json.loads(press.value)) == ("edit", "R3", {"--max-num-seqs": "8"})
    assert press.digest == EDITABLE.digest


async def test_an_edit_that_cannot_be_stored_keeps_its_form_open(counter: Counter) -> None:
    await from_menu(counter, "edit", shown=editable(counter))
    counter.inbound.away = True
    assert "did not answer" in (await submit(counter, seqs("8")))["errors"]["field:0"]
    counter.inbound.away = False
    assert (await submit(counter, seqs("8")))["ok"]
    assert len(presses(counter)) == 1


async def test_a_request_that_was_decided_meanwhile_is_not_edited(counter: Counter) -> None:
    shown = editable(counter)
    await from_menu(counter, "edit", shown=shown)
    editable(counter, status="granted")
    assert "already approved" in (await submit(counter, seqs("8")))["errors"]["field:0"]
    value = ButtonValue(shown.incident_id, "R3", shown.requests["R3"].digest, "edit").packed()
    where = {"channel": CHANNEL, "ts": (await _thread(counter))[-1]["ts"]}
    await counter.slack.do("press", user="U0ANA", action_id="more", value=value, **where)
    await whispered(counter, "R3 was already approved")
    assert presses(counter) == []


async def test_breaking_the_glass_asks_for_a_reason_and_stores_it(counter: Counter) -> None:
    shown = waiting(policy=GLASS, half_passed=True)
    assert (await pressed(counter, "break_glass", shown=shown))["ok"]
    assert presses(counter) == []
    assert (
        "A reason is required" in (await submit(counter, {"field:reason": {"entry": "   "}}))["errors"]["field:reason"]
    )
    assert (await submit(counter, {"field:reason": {"entry": "users are cut off"}}))["ok"]
    [press] = presses(counter)
    assert (press.action, press.reason, press.digest) == (
        "break_glass",
        "users are cut off",
        request().plan.digest,
    )


async def test_approving_what_was_just_refused_asks_for_a_new_reason_and_stores_it(counter: Counter) -> None:
    assert (await pressed(counter, "approve_with_reason", shown=asked_before()))["ok"]
    assert presses(counter) == []
    assert "A reason is required" in (await submit(counter, {"field:reason": {"entry": " "}}))["errors"]["field:reason"]
    assert (await submit(counter, {"field:reason": {"entry": "the queue has doubled"}}))["ok"]
    [press] = presses(counter)
    assert (press.action, press.about, press.reason) == ("approve", "R3", "the queue has doubled")
    assert press.digest == request().digest


async def test_the_form_of_an_approval_names_what_else_it_allows(counter: Counter) -> None:
    later = [Covered(state=state, title="Roll it out to every replica", risk="high") for state in ("roll", "again")]
    shown = counter.inbound.runs["INC-7"] = waiting(asked_before="R2", covers=tuple(later))
    assert (await pressed(counter, "approve_with_reason", shown=shown))["ok"]
    view = json.dumps((await view_of(counter))["blocks"], ensure_ascii=False)
    assert view.count("*Then, with the same approval:* Roll it out to every replica.") == 1
    assert "*Impact of the first step:* " in view


async def _thread(counter: Counter) -> list[dict[str, Any]]:
    return [message for message in await counter.slack.messages() if "thread_ts" in message]


@pytest.mark.parametrize("about", ["question", "request"])
async def test_a_choice_from_a_menu_that_closes_the_incident_is_asked_about_first(counter: Counter, about: str) -> None:
    """A slip of the hand in a menu would end it, with its alert firing and its pages resolved."""
    firing = alert()
    more: dict[str, Any] = {"lead": "U0BEN", "alerts": {firing.fingerprint: firing}}
    if about == "question":
        others = {f"other{number}": f"Other {number}" for number in range(6)}
        asked = question(choices={**others, "hand_over": "Hand over"}, notes={"hand_over": TAKEN_AND_CLOSED})
        shown = run(questions={"Q2": asked}, question="Q2", posts=(post("question", "question:Q2", "Q2"),), **more)
        value = ButtonValue(shown.incident_id, "Q2", choice="hand_over")
    else:
        kept = Alternative(key="hand_over", label="Hand over", effect=TAKEN_AND_CLOSED)
        shown = waiting(alternatives=(kept,)).with_(**more)
        value = ButtonValue(shown.incident_id, "R3", shown.requests["R3"].digest, "hand_over")
    counter.inbound.runs[shown.incident_id] = shown
    await pressed(counter, f"choose:{MENU}", shown=shown, value=value.packed())
    text = str((await view_of(counter, "close"))["blocks"])
    assert "The incident closes here, and its alerts are yours." in text
    assert "Still firing: VLLMPreemptionThrash." in text
    assert "<@U0BEN> leads now; then you do." in text
    assert presses(counter) == []
    assert (await submit(counter, {}))["ok"]
    [press] = presses(counter)
    assert (press.action, press.value) == ("choose", "hand_over")
