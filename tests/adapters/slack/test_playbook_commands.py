"""Playbooks in Slack: the list, the view of one, and opening an incident by hand."""

from __future__ import annotations

import pytest

from bot.adapters.slack import limits
from bot.adapters.yaml_playbooks import load_text
from bot.domain.kernel.errors import Fault
from bot.domain.kernel.target import SLO_ANNOTATIONS
from bot.domain.playbooks.library import Library
from tests.adapters.slack.conftest import Counter, send_in, until, view_of, whispered
from tests.adapters.slack.runs import run
from tests.domain.incidents.machine.steps import TEXT

BY_HAND = "opens: by_hand\n"
FORM = """
form:
  method: {label: Which method?, kind: choice, options: {fp8: fp8 KV cache, evict: Eviction}}
  gain: {label: Gain, kind: number, min: 1, max: 64, unit: times}
"""


def playbooks(counter: Counter) -> None:
    plain = TEXT.replace("playbook: small", "playbook: small-one")
    by_hand = TEXT.replace("playbook: small", "playbook: by-hand").replace("opens_on: ['alertname=~\".+\"']\n", "")
    compiled = [
        load_text(plain),
        load_text(by_hand + BY_HAND + FORM),
        load_text(plain.replace("small-one", "either") + BY_HAND),
    ]
    faults = {"/etc/playbooks/broken.yaml": (Fault("broken.yaml:3:1", "unknown key <!channel>"),)}
    counter.shelf.library = Library({each.name: each for each in compiled}, faults)
    counter.inbound.runs["INC-7"] = run(playbook="small-one", state="grow", path=("look", "choose", "grow"))


async def test_every_playbook_is_named_with_what_opens_it_and_those_refused_with_their_fault(counter: Counter) -> None:
    playbooks(counter)
    answer = await counter.say("playbooks")
    assert "3 playbooks" in answer
    assert "`by-hand` A small playbook\n      opened by `/incident open by-hand`" in answer
    assert 'opened by alerts with `alertname=~".+"`' in answer
    assert "`broken.yaml` is refused: broken.yaml:3:1: unknown key &lt;!channel&gt;" in answer


async def test_the_graph_of_an_incident_shows_its_path_and_comes_as_a_picture(counter: Counter) -> None:
    playbooks(counter)
    answer = await counter.say("graph INC-7")
    assert "will be posted as a picture in its thread" in answer
    assert "flowchart TD" in answer
    assert "class s_grow current" in answer
    assert "linkStyle" in answer
    assert [(incident, event.command) for incident, event in counter.inbound.commands.values()] == [("INC-7", "graph")]


async def test_the_graph_of_a_playbook_comes_as_a_picture_into_the_channel_and_as_text(counter: Counter) -> None:
    playbooks(counter)
    answer = await counter.say("graph small-one")
    assert "will be posted as a picture in this channel" in answer
    assert "flowchart TD" in answer
    assert "linkStyle" not in answer
    assert counter.inbound.commands == {}

    async def is_there() -> bool:
        return any(message.get("files") for message in await counter.slack.messages())

    await until(is_there, "the picture is in the channel")
    [message] = [message for message in await counter.slack.messages() if message.get("files")]
    assert message["text"] == "A small playbook, for <@U0ANA>"
    assert [file["name"] for file in message["files"]] == ["small-one.png"]


async def test_a_picture_that_cannot_be_posted_is_reported_with_what_to_do(counter: Counter) -> None:
    playbooks(counter)
    fault = {"method": "files.completeUploadExternal", "kind": "error:not_in_channel"}
    await counter.slack.faults(fault)
    await counter.say("graph small-one")
    await whispered(counter, "could not be posted here")
    whisper = next(text for text in await counter.slack.whispers("U0ANA") if "could not be posted here" in text)
    assert "Ask in a channel that the bot has joined" in whisper
    assert "incident-bot playbook graph small-one --format png --out small-one.png" in whisper


async def test_a_mistyped_playbook_gets_the_one_that_was_meant(counter: Counter) -> None:
    playbooks(counter)
    assert "Did you mean `small-one`?" in await counter.say("graph smal-one")


async def test_the_bounds_of_a_duration_read_as_its_value(counter: Counter) -> None:
    timed = TEXT.replace("playbook: small", "playbook: timed").replace(
        "calm_for: {default: 10s, why: a test}", "calm_for: {default: 30s, min: 1s, max: 4h, why: it lags}"
    )
    counter.shelf.library = Library({"timed": load_text(timed)})
    assert "`calm_for` *30 s* (at least 1 s, at most 4 h): it lags" in await counter.say("settings timed")


@pytest.mark.parametrize("word", ["skip", "graph", "settings"])
async def test_a_run_whose_playbook_cannot_be_read_is_answered_with_the_reason(counter: Counter, word: str) -> None:
    answer = await counter.say(f"{word} INC-7")
    assert "Nothing was done: INC-7: its playbook 'kv-cache-oom' is not stored any more." in answer


# --- open ------------------------------------------------------------------------------------------------------------


async def chosen(counter: Counter, playbook: str = "by-hand", workload: str = "serving/llm") -> dict[str, object]:
    playbooks(counter)
    assert await counter.say("open") == ""
    return await send_in(counter, await view_of(counter, "open"), playbook=playbook, workload=workload)


async def test_an_incident_is_opened_with_the_playbooks_own_form(counter: Counter) -> None:
    assert (await chosen(counter))["ok"]
    assert counter.shelf.openings == {}
    assert (await send_in(counter, await view_of(counter, "open:form"), method="fp8", gain="4.5"))["ok"]
    [opening] = counter.shelf.openings.values()
    assert (opening.playbook, str(opening.target), opening.user) == ("by-hand", "serving/llm", "U0ANA")
    assert dict(opening.fields or {}) == {"method": "fp8", "gain": "4.5"}
    await whispered(counter, "INC-100 about serving/llm is open")
    assert not (await counter.slack.page())["views"]["U0ANA"]


async def test_what_a_form_keeps_fits_however_long_it_is(counter: Counter) -> None:
    [workload] = counter.shelf.workloads
    annotated = {"slo": tuple((name, '"' * 4_000) for name in SLO_ANNOTATIONS)}
    counter.shelf.workloads = [workload.model_copy(update=annotated)]
    playbooks(counter)
    await counter.say("open")
    seen = "🔥" * 300
    await send_in(counter, await view_of(counter, "open"), playbook="by-hand", workload="serving/llm", seen=seen)
    view = await view_of(counter, "open:form")
    assert len(view["private_metadata"]) <= limits.PRIVATE_METADATA
    assert (await send_in(counter, view, method="fp8", gain="4.5"))["ok"]
    [opening] = counter.shelf.openings.values()
    assert (str(opening.target), opening.seen) == ("serving/llm", seen)


async def test_a_playbook_without_a_form_is_opened_at_once(counter: Counter) -> None:
    assert (await chosen(counter, "either"))["ok"]
    await whispered(counter, "INC-100 about serving/llm is open")


async def test_a_workload_with_an_open_incident_gets_no_second_one(counter: Counter) -> None:
    counter.shelf.open_already = "INC-7"
    await chosen(counter, "either")
    await whispered(counter, "INC-7 about serving/llm was open already")


@pytest.mark.parametrize("words", ["either serving/llm", "serving/llm either", "serving/llm  either"])
async def test_the_words_after_the_command_fill_the_form(counter: Counter, words: str) -> None:
    playbooks(counter)
    await counter.say(f"open {words}")
    assert (await send_in(counter, await view_of(counter, "open")))["ok"]
    [opening] = counter.shelf.openings.values()
    assert (opening.playbook, str(opening.target)) == ("either", "serving/llm")


@pytest.mark.parametrize("workload", ["llm", "serving/ghost", "Serving/LLM; rm"])
async def test_a_workload_that_is_none_is_refused_below_its_field(counter: Counter, workload: str) -> None:
    answer = await chosen(counter, workload=workload)
    assert "field:workload" in answer["errors"]  # type: ignore[operator]  # the answer is JSON
    assert counter.shelf.openings == {}


def two_clusters(counter: Counter) -> None:
    (east,) = counter.shelf.workloads
    west = {"cluster": "west", "among_several": True, "slo": (("ttft_target", "2s"),)}
    counter.shelf.workloads = [east.model_copy(update={"cluster": "east"}), east.model_copy(update=west)]


async def test_of_several_clusters_the_one_that_is_written_is_meant(counter: Counter) -> None:
    two_clusters(counter)
    await chosen(counter, workload="west/serving/llm")
    assert (await send_in(counter, await view_of(counter, "open:form"), method="fp8", gain="4.5"))["ok"]
    [opening] = counter.shelf.openings.values()
    assert opening.target == counter.shelf.workloads[1]
    await whispered(counter, "INC-100 about west/serving/llm is open")


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        pytest.param("serving/llm", "Which cluster? ('east', 'west'): write the cluster, the namespace and", id="none"),
        pytest.param("north/serving/llm", "No cluster is named 'north' ('east', 'west'): write the", id="unknown"),
        pytest.param("llm", "Write the cluster, the namespace and the name, as in east/serving/llm", id="no-namespace"),
    ],
)
async def test_without_a_known_cluster_nothing_is_opened(counter: Counter, workload: str, reason: str) -> None:
    two_clusters(counter)
    answer = await chosen(counter, workload=workload)
    assert reason in answer["errors"]["field:workload"]  # type: ignore[index]  # the answer is JSON
    assert counter.shelf.openings == {}


async def test_an_opening_that_cannot_be_stored_keeps_its_form_open(counter: Counter) -> None:
    await chosen(counter)
    counter.shelf.away = True
    view = await view_of(counter, "open:form")
    answer = await send_in(counter, view, method="fp8", gain="4.5")
    assert "may or may not have been recorded" in answer["errors"]["field:gain"]
    counter.shelf.away = False
    assert (await send_in(counter, view, method="fp8", gain="4.5"))["ok"]
    assert len(counter.shelf.openings) == 1


async def test_only_operators_open(counter: Counter) -> None:
    playbooks(counter)
    assert "Not done: you are not in @serving-oncall" in await counter.say("open", user="U0MO")


async def test_a_workload_alone_stands_in_the_form_beside_the_first_playbook(counter: Counter) -> None:
    playbooks(counter)
    await counter.say("open serving/llm")
    blocks = (await view_of(counter, "open"))["blocks"]
    assert any("serving/llm" in str(block) for block in blocks)


async def test_an_unknown_playbook_is_answered_with_the_known_ones(counter: Counter) -> None:
    assert "No playbook is loaded" in await counter.say("open")
    playbooks(counter)
    assert "There are: `by-hand`, `either`, `small-one`" in await counter.say("open other")
    assert "write `/incident open either NAMESPACE/NAME`" in await counter.say("open either llm")


async def test_a_form_that_slack_does_not_open_is_reported(counter: Counter) -> None:
    playbooks(counter)
    await counter.slack.faults({"method": "views.open", "kind": "500"})
    await counter.say("open")
    await whispered(counter, "could not be opened")
