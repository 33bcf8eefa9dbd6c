"""Forms in modals: fields within Slack's limits, submitted values returned, and nothing lost."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from bot.adapters.slack.inbound import forms
from bot.adapters.slack.limits import OPTIONS
from bot.domain.approvals.grant import Press
from bot.domain.incidents.run import Run
from bot.domain.kernel.form import MAX_MOMENT_LENGTH, Form, FormField, answers, problems
from bot.sandbox.slack.block_kit import checked_view
from bot.sandbox.slack.interactions import state_of
from tests.adapters.slack.conftest import CHANNEL, Counter, send_in, view_of, whispered
from tests.adapters.slack.runs import post, question, run
from tests.adapters.slack.test_app import presses

FORM: Form = {
    "method": FormField(label="Which method?", kind="choice", options={"fp8": "fp8 KV cache", "evict": "Eviction"}),
    "gain": FormField(label="Gain", kind="number", min=1, max=64, unit="times", why="As the vendor claims."),
    "since": FormField(label="Enabled at", optional=True, max_length=200),
}


def shown(form: Form, **filled: float | str) -> dict[str, Any]:
    modal = forms.Modal("x", "A form with a title too long for Slack", "Send", forms.inputs(form, filled=filled), {})
    return checked_view(modal.view)


def typed(view: dict[str, Any], **values: Any) -> dict[str, Any]:
    """The view as Slack sends it once people have typed."""
    given = {f"field:{name}": {"entry": value} for name, value in values.items()}
    return view | {"state": state_of(view["blocks"], given)}


@pytest.mark.fast
def test_what_was_filled_in_comes_back_as_answers() -> None:
    given = forms.given(typed(shown(FORM), method="fp8", gain="4.5"))
    assert problems(FORM, given) == {}
    assert answers(FORM, given) == {"method": "fp8", "gain": 4.5}


@pytest.mark.fast
def test_what_stood_there_already_comes_back_when_nobody_changes_it() -> None:
    given = forms.given(typed(shown(FORM, method="evict", gain=2.0, since="yesterday")))
    assert answers(FORM, given) == {"method": "evict", "gain": 2.0, "since": "yesterday"}


@pytest.mark.fast
def test_a_time_is_typed_as_text() -> None:
    (field,) = shown({"at": FormField(label="When?", kind="time")})["blocks"]
    assert (field["element"]["type"], field["element"]["max_length"]) == ("plain_text_input", MAX_MOMENT_LENGTH)


@pytest.mark.fast
@pytest.mark.parametrize("kind", get_args(FormField.model_fields["kind"].annotation))
def test_slack_takes_every_kind_of_field(kind: Any) -> None:
    options = {"one": "One"} if kind == "choice" else {}
    shown({"field": FormField(label="Field", kind=kind, options=options)})


@pytest.mark.fast
@pytest.mark.parametrize(("kind", "decimal"), [("number", True), ("integer", False)])
def test_slack_accepts_decimals_only_where_they_count(kind: Any, decimal: bool) -> None:
    (field,) = shown({"revision": FormField(label="Revision", kind=kind)})["blocks"]
    assert field["element"]["is_decimal_allowed"] is decimal


@pytest.mark.fast
def test_slack_gets_the_range_and_so_do_people() -> None:
    gain = shown(FORM)["blocks"][1]
    assert (gain["element"]["min_value"], gain["element"]["max_value"]) == ("1", "64")
    assert gain["label"]["text"] == "Gain (times)"
    assert gain["hint"]["text"] == "As the vendor claims. At least 1, at most 64."


@pytest.mark.fast
def test_a_hint_begins_with_a_capital_letter() -> None:
    (field,) = shown({"since": FormField(label="Since when?", why="all is compared with it")})["blocks"]
    assert field["hint"]["text"] == "All is compared with it."


@pytest.mark.fast
def test_the_worst_texts_and_most_options_make_a_form_that_slack_takes() -> None:
    many = {f"k{number}": "<!channel> " * 40 for number in range(OPTIONS + 20)}
    worst: Form = {
        "a" * 300: FormField(label="& <b>`\n" * 500, kind="choice", options=many, why="x" * 5_000),
        "text": FormField(label="", max_length=3_000),
    }
    view = shown(worst, text="y" * 4_000)
    assert len(view["blocks"][0]["element"]["options"]) == OPTIONS
    assert "<!channel>" not in str(view)


@pytest.mark.fast
def test_what_is_wrong_stands_below_its_field_and_the_rest_below_the_last() -> None:
    errors = forms.errors({"gain": "at most 64", "": "not stored"}, FORM)
    assert errors == {"field:gain": "at most 64", "field:since": "not stored"}


# --- the form of a choice --------------------------------------------------------------------------------------------


def asking() -> Run:
    asked = question(forms={"scale": FORM})
    return run(questions={"Q2": asked}, question="Q2", posts=(post("question", "question:Q2", "Q2"),))


async def opened(counter: Counter) -> dict[str, Any]:
    counter.inbound.runs["INC-7"] = asking()
    await press_it(counter)
    return await view_of(counter)


async def press_it(counter: Counter) -> None:
    await counter.bench.messenger.show(asking())
    ts = [m for m in await counter.slack.messages() if "thread_ts" in m][-1]["ts"]
    answer = await counter.slack.do("press", user="U0ANA", channel=CHANNEL, ts=ts, action_id="fill:1")
    assert answer["ok"], answer


def the_press(counter: Counter) -> Press:
    [press] = presses(counter)
    return press


async def test_a_choice_with_a_form_is_stored_with_what_was_filled_in(counter: Counter) -> None:
    view = await opened(counter)
    assert presses(counter) == []
    assert (await send_in(counter, view, method="fp8", gain="4"))["ok"]
    press = the_press(counter)
    assert (press.action, press.about, press.value, press.user) == ("choose", "Q2", "scale", "U0ANA")
    assert press.fields == {"method": "fp8", "gain": 4.0}
    assert (press.channel, bool(press.response_url)) == (CHANNEL, True)


async def test_a_form_that_cannot_be_stored_stays_open_as_it_was_filled(counter: Counter) -> None:
    view = await opened(counter)
    counter.inbound.away = True
    answer = await send_in(counter, view, method="fp8", gain="4")
    assert "may or may not have been recorded" in answer["errors"]["field:since"]
    counter.inbound.away = False
    assert (await send_in(counter, view, method="fp8", gain="4"))["ok"]
    assert the_press(counter).fields["gain"] == 4.0


async def test_a_number_out_of_range_is_refused_below_its_field(counter: Counter) -> None:
    view = await opened(counter)
    stricter = {**FORM, "gain": FORM["gain"].model_copy(update={"max": 3.0})}
    counter.inbound.runs["INC-7"] = asking().with_(questions={"Q2": question(forms={"scale": stricter})})
    answer = await send_in(counter, view, method="fp8", gain="4")
    assert "at most 3 times" in answer["errors"]["field:gain"]
    assert presses(counter) == []


async def test_a_form_of_a_question_that_was_answered_meanwhile_says_so(counter: Counter) -> None:
    view = await opened(counter)
    answered = question(forms={"scale": FORM}, status="answered")
    counter.inbound.runs["INC-7"] = asking().with_(questions={"Q2": answered})
    answer = await send_in(counter, view, method="fp8", gain="4")
    assert "already answered" in answer["errors"]["field:since"]


async def test_without_storage_no_form_is_opened_and_the_reason_is_shown(counter: Counter) -> None:
    counter.inbound.runs["INC-7"] = asking()
    counter.inbound.away = True
    await press_it(counter)
    await whispered(counter, "Nothing was decided; please try again")
    assert not (await counter.slack.page())["views"].get("U0ANA")
