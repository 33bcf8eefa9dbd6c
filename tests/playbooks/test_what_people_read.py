"""What the texts of the shipped playbooks say to people at the moments where they once were too short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bot.adapters.slack import limits
from bot.adapters.yaml_playbooks import load_playbook, load_table
from bot.domain.incidents.run import News, Question, Run
from bot.domain.incidents.series import charted
from bot.domain.playbooks.language import AskState, EndState, RecommendState
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Table, table_of
from bot.flow.rehearse_case import play_case


async def played(playbook_name: str, case_name: str, at: dict[str, Any] | None = None, **given: Any) -> Run:
    """The run of a case of a packaged playbook's table; `given` replaces readings of the case, `at` those of states."""
    path = packaged_playbooks() / f"{playbook_name}.yaml"
    table = table_of(load_table(path.with_name(f"{playbook_name}.test.yaml")).data)
    assert isinstance(table, Table)
    case = next(case for case in table.whole() if case.name == case_name)
    case = case.model_copy(update={"given": case.given | given, "at": {**case.at, **(at or {})}})
    return (await play_case(case, with_stand_ins(load_playbook(path)))).rehearsed.run


def asked(run: Run, state: str) -> list[Question]:
    return [question for question in run.questions.values() if question.state == state]


def news_of(run: Run) -> list[News]:
    """What the messages of the thread say has happened."""
    return [News.model_validate(dump) for post in run.posts for dump in post.data.get("news", ())]


@pytest.mark.parametrize("name", ["kv-cache-oom", "inference-slo-breach", "kv-compression-no-savings"])
def test_a_chart_begins_with_the_wait_that_people_read_against_its_target(name: str) -> None:
    playbook = with_stand_ins(load_playbook(packaged_playbooks() / f"{name}.yaml")).entry_playbook
    assert next(iter(charted(playbook, tuple(playbook.playbook.states)))) == "ttft_p99"


COMPRESSION = "kv-compression-no-savings"


async def test_a_waiver_is_asked_for_beside_the_score_of_the_job() -> None:
    run = await played(COMPRESSION, "a Job's score below it needs the model owner's waiver")
    [waiver] = asked(run, "waive")
    assert waiver.text.startswith(
        "No accepted score of this configuration is on record. Does the model's owner waive it"
    )
    scores = "(by the Job: 0.6, with full attention 0.715)"
    assert waiver.why.startswith(f"At most 1 % of the score may be lost {scores}; a perplexity does not count.")


async def test_a_waiver_of_a_score_that_was_typed_names_it_and_does_not_say_that_there_is_none() -> None:
    name = "a typed score below it needs the model owner's waiver, and a score within its day"
    [waiver] = asked(await played(COMPRESSION, name), "waive")
    scores = "(by a person: 70 in mmlu, with full attention 71.2)"
    assert waiver.why.startswith(f"At most 1 % of the score may be lost {scores}; a perplexity does not count.")
    assert "no score" not in waiver.text


async def test_a_waiver_without_any_score_lists_none() -> None:
    name = "an eval that nobody configured, and no score: the model's owner may waive it"
    [waiver] = asked(await played(COMPRESSION, name), "waive")
    assert waiver.why.startswith("At most 1 % of the score may be lost; a perplexity does not count.")


async def test_a_refused_fp8_ends_with_its_score_and_without_other_methods() -> None:
    run = await played(COMPRESSION, "a perplexity is no score, because lower is better there")
    [waiver] = asked(run, "waive")
    assert "(by a person: 9.5 in wikitext perplexity, with full attention 5.9)" in waiver.why
    [end] = [post for post in run.posts if post.kind == "closed"]
    assert "fp8 KV is off again" in end.data["text"]
    assert "accepted (by a person: 9.5 in wikitext perplexity, with full attention 5.9)." in end.data["text"]
    assert "StreamingLLM" not in end.data["text"]


async def test_a_pool_that_did_not_grow_is_asked_about_with_what_was_measured() -> None:
    first, again = asked(await played(COMPRESSION, "measured, broke:0: drop equal comes next"), "not_doubled")
    assert "8,192, before it was enabled not known, on a canary without it not known" in first.why
    assert "8,192, before it was enabled not known, on a canary without it 4,096" in again.why


async def test_the_end_after_a_hang_names_the_replica_and_that_all_make_progress() -> None:
    run = await played("kv-cache-oom", "a replica that begins to hang ends the watch")
    [end] = [post for post in run.posts if post.kind == "closed"]
    hung = "b had requests and finished none. Every replica finishes requests now. No thrash under load"
    assert end.data["text"].startswith(hung)


@pytest.mark.parametrize(("ttft", "waits"), [(5.0, "; users still wait too long"), (0.2, "")])
async def test_a_thrash_that_stays_away_is_not_described_as_if_users_were_served(ttft: float, waits: str) -> None:
    run = await played("kv-cache-oom", "a thrash is limited on a canary, rolled out and verified", ttft_p99=ttft)
    news = [each for post in run.posts for each in post.data.get("news", ())]
    text = next(each["text"] for each in news if each["title"] == "Does the trouble stay away?")
    assert text.endswith(f" preemptions in the last 5 min, KV cache 0.6{waits}")
    assert text.startswith("⚠️ ") == bool(waits)


@pytest.mark.parametrize(("before", "after", "is_high"), [(0.2, 0.4, False), (0.4, 0.7, True)])
async def test_a_first_token_within_the_target_is_no_high_cost(before: float, after: float, is_high: bool) -> None:
    case, now = "a burst of long prompts gets fewer tokens a step, and never more than now", {"ttft_p99": after}
    run = await played("vllm-oom-triage", case, {"verify_capacity": now}, ttft_p99=before)
    [end] = [post for post in run.posts if post.kind == "closed"]
    assert f"first token {before:g} → {after:g}." in end.data["text"]
    assert ("The cost is high." in end.data["text"]) == is_high


async def test_scaling_back_is_asked_about_with_the_load_of_now_and_what_fewer_replicas_would_run() -> None:
    now = {"rotation": {"in_rotation": 5, "ready": 5, "wanted": 5}, "kv_usage": 0.6, "arrivals": 1.5}
    run = await played("kv-cache-oom", "added replicas go again when the cause is gone", {"restore_cause": now})
    [gone] = asked(run, "restore_cause")
    fewer = "5 replicas run 20 requests each at a KV cache of 0.6; 4 would run 25 at 75%."
    assert gone.why == f"Requests arriving: 2 → 1.5 a second. {fewer}"


async def test_replicas_that_went_too_early_are_asked_about_with_what_was_seen_without_them() -> None:
    run = await played("kv-cache-oom", "restore check, not held: restore worse comes next")
    news = [each for post in run.posts if post.kind == "question" for each in post.data.get("news", ())]
    texts = {each["title"]: each["text"] for each in news}
    assert texts["Still calm with fewer replicas?"] == "first token 0.3 (target 500 ms), KV cache 0.6, 0 requests wait"


async def test_a_node_that_the_bad_replicas_share_is_reported_as_what_was_found() -> None:
    case = "three bad replicas on one node are replaced one after the other, and the node is cordoned"
    run = await played("kv-cache-oom", case)
    diagnosis = next(post for post in run.posts if post.kind == "diagnosis")
    assert ["found", "only replicas on one node are bad"] in [list(each) for each in diagnosis.data["checks"]]


@pytest.mark.parametrize(
    ("cordoned", "more"), [(True, ""), (False, "The node is not cordoned: the replacement may start there again. ")]
)
async def test_only_where_a_node_is_not_cordoned_a_replacement_may_start_there_again(cordoned: bool, more: str) -> None:
    case = "a GPU that fell off the bus: cordon first, ours moves, and a person takes the node"
    run = await played("gpu-fault", case, there={"kind": "fatal", "node": "n2", "here": 1, "cordoned": cordoned})
    [out] = [request for request in run.requests.values() if request.state == "ours_out"]
    assert out.why.startswith(
        "It runs on the node with the faulty GPU, which has 1 of ours and must be empty for the repair. "
        f"{more}Its requests finish where they are"
    )


async def test_a_slow_replica_is_the_diagnosis_and_not_only_the_phase_that_takes_long() -> None:
    run = await played("inference-slo-breach", "one slow replica at a normal share is replaced")
    assert run.diagnosis == "a replica is slow"
    long = "more than 1.5 times as long as the median, the slowest 3 times"
    assert run.cause == f"For requests of equal length, 1 of 4 replicas take {long}."


async def test_a_replica_in_place_of_a_canary_that_ended_the_trouble_says_which_one_goes() -> None:
    run = await played("kv-cache-oom", "a canary that cures a small fleet may stay as a replica")
    [request] = [each for each in run.requests.values() if each.state == "roll_out_cured_keep"]
    assert request.option == "Add a replica in the canary's place"
    assert request.why == "A replica replaces the canary, which ended the trouble and then goes."
    assert [each.label for each in request.alternatives][-1] == "Remove the canary"


def effects() -> Iterator[str]:
    """The effects whose length is known. One that computes a value is cut at a word where it is too long."""
    for path in sorted(packaged_playbooks().glob("*.yaml")):
        if not path.name.endswith(".test.yaml"):
            for state in load_playbook(path).playbook.states.values():
                if isinstance(state, RecommendState):
                    yield from (each.effect for each in state.options.values() if "${" not in each.effect)


def test_the_effect_of_an_option_is_whole_in_the_menu() -> None:
    assert [each for each in effects() if len(each) > limits.OPTION_TEXT] == []


async def test_a_node_that_stays_hot_is_shown_with_its_limit() -> None:
    hot = {"slowed": True, "margin": -6, "detail": "n2 91 °C (limit 85 °C)"}
    run = await played(
        "thermal-emergency", "slowed by heat at a low temperature is not cool", {"cooling": {"hot": hot}}
    )
    assert [each.text for each in news_of(run) if each.title == "Does the node cool down?"] == [hot["detail"]]


async def test_heat_that_cannot_be_read_is_shown_with_the_reason() -> None:
    run = await played("thermal-emergency", "a node whose heat cannot be read is not called cool")
    [cooling] = [each for each in news_of(run) if each.title == "Does the node cool down?"]
    assert cooling.text == "GPU temperatures could not be read"


async def test_a_rollout_whose_replicas_only_thrash_is_not_said_to_be_unable_to_start() -> None:
    name = "a rollout whose new replicas thrash while the old ones serve is not waited for while users are hurt"
    run = await played("kv-cache-oom", name, {"way_back_choose": {"rollout": {"happened": False, "summary": ""}}})
    decides = [post.data.get("decides") for post in run.posts if post.kind == "request"]
    assert decides[0] == "New replicas do not start, or they do badly. Go back?"


async def test_a_scale_back_says_that_a_person_called_the_cause_gone() -> None:
    run = await played("kv-cache-oom", "added replicas go again when the cause is gone")
    whys = [each.why for each in run.requests.values() if each.state.startswith("restore")]
    assert whys == ["A person says that the cause is gone, so the fleet needs no more than before."]


@pytest.mark.parametrize("playbook", ["kv-cache-oom", "inference-slo-breach", "thermal-emergency"])
def test_an_end_without_a_fix_does_not_claim_that_nothing_was_changed(playbook: str) -> None:
    """A canary may have run and be gone again; what is in place is said beside it."""
    states = load_playbook(packaged_playbooks() / f"{playbook}.yaml").playbook.states.values()
    ends = [state.say for state in states if isinstance(state, EndState) and state.end == "self_cleared"]
    assert ends
    assert not [text for text in ends if "changed" in text]


def test_who_waits_for_room_reads_that_a_replica_may_be_proposed_at_once() -> None:
    states = load_playbook(packaged_playbooks() / "kv-cache-oom.yaml").playbook.states
    waits = [
        choice.note
        for state in states.values()
        if isinstance(state, AskState)
        for choice in state.choices.values()
        if choice.label == "Add one when there is room"
    ]
    assert waits
    assert set(waits) == {"Asks again to add one, at once if one fits."}
