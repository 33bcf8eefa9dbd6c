"""Readings and verdicts: which ones count, and how people see them."""

from __future__ import annotations

from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.incidents.effect import DrawChart
from bot.domain.incidents.event import SeriesRead, SignalsRead, Watched
from bot.domain.incidents.run import Looked
from bot.domain.incidents.series import Series
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading, unknown
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, Story

pytestmark = pytest.mark.fast

TWO_READS = """
language: 1
playbook: two
title: Two reads
opens_on: ['alertname=~".+"']
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
  waiting: {metric: num_requests_waiting, over: 60s}
start: first
states:
  first:
    read: [usage, waiting]
    go: [{when: usage > 0.9, to: second}, {otherwise: calm}]
    unknown: second
  second:
    read: [waiting]
    go: [{when: waiting > 3, to: choose}, {otherwise: calm}]
    unknown: choose
  choose: {ask: What now?, choices: {stop: {label: Stop, to: calm}}}
  calm: {end: fixed}
"""


def two(**values: float | None) -> Story:
    story = Story(Bundle.of(load_text(TWO_READS))).opened()
    return reads(story, **values)


def reads(story: Story, **values: float | None) -> Story:
    found = {
        name: unknown(name, f"no {name}", at=story.at)
        if value is None
        else Reading(name=name, value=value, at=story.at)
        for name, value in values.items()
    }
    story.happens(SignalsRead(event_id=story.id(), effect_id=f"v{story.run.visit.number}/read", readings=found))
    return story


def test_the_next_message_to_people_has_all_that_was_read_since_the_one_before_and_each_way() -> None:
    story = reads(two(usage=0.95, waiting=1), waiting=5)
    (post,) = story.run.posts
    looked = Looked.model_validate(post.data["looked"])
    assert post.kind == "question"
    assert {name: reading.value for name, reading in looked.readings.items()} == {"usage": 0.95, "waiting": 5}
    assert looked.decisions == (("first", "KV cache in use 0.95 → second"), ("second", "Requests waiting 5 → choose"))
    assert story.run.looked == Looked()


def test_reading_alone_posts_nothing() -> None:
    assert two(usage=0.95, waiting=1).run.posts == ()


NOTED = TWO_READS.replace(
    "{otherwise: calm}]\n    unknown: second", "{otherwise: choose, note: a full pool}]\n    unknown: second"
)


def test_what_was_ruled_out_found_and_not_known_is_in_the_diagnosis() -> None:
    story = reads(Story(Bundle.of(load_text(NOTED))).opened(), usage=0.5, waiting=1)
    diagnosis, asked = story.run.posts
    assert (diagnosis.kind, diagnosis.data["checks"]) == ("diagnosis", [["ruled_out", "a full pool"]])
    looked = Looked.model_validate(diagnosis.data["looked"])
    assert looked.readings.keys() == {"usage", "waiting"}
    assert looked.decisions[-1][1] == "ruled out: a full pool → choose"
    assert asked.kind == "question"
    assert "looked" not in asked.data
    unread = reads(reads(Story(Bundle.of(load_text(NOTED))).opened(), usage=None, waiting=1), waiting=None)
    assert unread.run.posts[0].data["checks"] == [["unknown", "a full pool"]]


FOUND_LATER = """
language: 1
playbook: two
title: Two checks
opens_on: ['alertname=~".+"']
signals:
  usage: {metric: kv_cache_usage_perc, over: 60s}
  polls: {probe: no_progress}
start: first
states:
  first:
    go: [{when: usage > 0.9, to: calm, note: a full pool}, {otherwise: beside, note: a full pool}]
    unknown: beside
  beside: {ask: Continue anyway?, choices: {go_on: {label: Continue, to: second}, grow: {label: Grow, to: grow}}}
  second:
    go: [{when: 'polls.bad > 2', to: beside, note: a replica hangs}, {otherwise: beside, note: a hang}]
    unknown: calm
  grow: {change: scale, with: {by: 1}, why: More room., risk: low, done: second}
  calm: {end: fixed}
"""


def polled(story: Story, bad: float, detail: str = "") -> Story:
    polls = Reading(name="polls", fields={"bad": bad}, detail=detail, at=story.at)
    effect_id = f"v{story.run.visit.number}/read"
    story.happens(SignalsRead(event_id=story.id(), effect_id=effect_id, readings={"polls": polls}))
    return story


def test_what_is_found_after_the_diagnosis_is_in_it_with_the_sentence_of_its_probe() -> None:
    story = reads(Story(Bundle.of(load_text(FOUND_LATER))).opened(), usage=0.5).chooses("go_on")
    polled(story, 5.0, "llm-1: 5 of 10 polls without progress")
    found = ["found", "a replica hangs (llm-1: 5 of 10 polls without progress)"]
    assert [post.kind for post in story.run.posts] == ["diagnosis", "question", "question"]
    assert story.run.posts[0].data["checks"] == [["ruled_out", "a full pool"], found]
    diagnoses = [entry for entry in story.entries if entry.kind == "diagnosis"]
    assert [entry.data["checks"] for entry in diagnoses] == [
        [["ruled_out", "a full pool"]],
        story.run.posts[0].data["checks"],
    ]
    polled(story.chooses("go_on"), 5.0, "llm-1: 5 of 10 polls without progress")
    assert len([entry for entry in story.entries if entry.kind == "diagnosis"]) == 2


def test_what_is_found_after_a_change_is_not_in_the_diagnosis_before_it() -> None:
    story = reads(Story(Bundle.of(load_text(FOUND_LATER))).opened(), usage=0.5)
    story.chooses("grow").planned().posted().presses("approve").settles()
    assert polled(story, 5.0).run.posts[0].data["checks"] == [["ruled_out", "a full pool"]]


@pytest.mark.parametrize(
    ("notes", "named"),
    [
        pytest.param(["a full pool"], "a full pool", id="the one that it could have found"),
        pytest.param(["a full pool", "a queue"], "“Is the pool full?”", id="its title, where it has no single name"),
    ],
)
def test_a_check_that_is_not_known_has_a_name(notes: list[str], named: str) -> None:
    clauses = ", ".join(
        f"{{when: usage > 0.{9 - place}, to: second, note: {note}}}" for place, note in enumerate(notes)
    )
    noted = TWO_READS.replace("{when: usage > 0.9, to: second}", clauses, 1)
    titled = noted.replace("  first:\n", "  first:\n    title: Is the pool full?\n", 1)
    unread = reads(reads(Story(Bundle.of(load_text(titled))).opened(), usage=None, waiting=1), waiting=None)
    assert unread.run.posts[0].data["checks"] == [["unknown", named]]


@pytest.mark.parametrize(("waiting", "found"), [(None, "unknown"), (5, "found"), (1, "ruled_out")])
def test_two_checks_of_the_same_thing_are_listed_once(waiting: float | None, found: str) -> None:
    noted = TWO_READS.replace("to: second}", "to: second, note: a full pool}", 1)
    noted = noted.replace(
        "to: choose}, {otherwise: calm}", "to: choose, note: a full pool}, {otherwise: choose, note: a full pool}"
    )
    story = reads(reads(Story(Bundle.of(load_text(noted))).opened(), usage=None, waiting=1), waiting=waiting)
    assert story.run.posts[0].data["checks"] == [[found, "a full pool"]]


def test_an_incident_that_ends_at_once_found_no_trouble() -> None:
    story = reads(
        Story(
            Bundle.of(
                load_text(
                    NOTED.replace("to: second}", "to: choose}", 1).replace("otherwise: choose", "otherwise: calm")
                )
            )
        ).opened(),
        usage=0.5,
        waiting=1,
    )
    diagnosis, closed = story.run.posts
    assert (diagnosis.data["title"], closed.kind) == ("no trouble found", "closed")


@pytest.mark.parametrize(
    ("usage", "checks"),
    [
        pytest.param(0.95, [["found", "a full pool"]], id="found"),
        pytest.param(None, [["unknown", "a full pool"]], id="not known"),
    ],
)
def test_an_incident_that_ends_at_once_is_not_without_trouble_if_a_check_says_otherwise(
    usage: float | None, checks: list[list[str]]
) -> None:
    ends = NOTED.replace("to: second}", "to: calm, note: a full pool}", 1).replace("unknown: second", "unknown: calm")
    ends = ends.replace("to: calm}}}", "to: second}}}")
    diagnosis, closed = reads(Story(Bundle.of(load_text(ends))).opened(), usage=usage, waiting=1).run.posts
    assert (closed.kind, diagnosis.data["checks"]) == ("closed", checks)
    assert diagnosis.data["title"] == ""


DIAGNOSED = TWO_READS.replace(
    "start: first",
    """settings: {most: {default: 2s, why: w}}
users:
  - {when: 'waiting > 3', say: 'Users wait ${waiting} (target ${settings.most})'}
  - {say: 'Users are served'}
diagnoses:
  - {when: 'usage > 0.9', title: the pool is full, say: 'It is ${usage} full.'}
start: first""",
)


def test_the_newest_readings_are_described_in_sentences() -> None:
    story = two_of(DIAGNOSED, usage=0.95, waiting=1)
    run = story.run
    assert (run.diagnosis, run.cause, run.users) == ("the pool is full", "It is 0.95 full.", "Users are served")
    run = reads(story, waiting=5).run
    assert run.users == "Users wait 5 (target 2 s)"
    assert (run.diagnosis, run.cause) == ("the pool is full", "It is 0.95 full."), "usage was not read again"


def test_a_diagnosis_at_the_end_leaves_what_users_feel_to_the_closing_message() -> None:
    text = DIAGNOSED.replace("to: second}", "to: choose}", 1).replace("otherwise: second", "otherwise: calm")
    noted = text.replace("otherwise: calm}", "otherwise: calm, note: a full pool}", 1)
    story = two_of(noted, usage=0.5, waiting=1)
    diagnosis, closed = story.run.posts
    assert (diagnosis.data["users"], closed.data["users"]) == ("", "Users are served")
    (written,) = (entry for entry in story.entries if entry.kind == "diagnosis")
    assert written.data["users"] == "Users are served"


def test_a_sentence_that_is_not_known_to_be_true_is_not_shown() -> None:
    run = two_of(DIAGNOSED, usage=0.95, waiting=None).run
    assert run.users == "", "the last line stands for: none of the others"
    assert two_of(DIAGNOSED, usage=None, waiting=1).run.diagnosis == ""


def two_of(text: str, **values: float | None) -> Story:
    return reads(Story(Bundle.of(load_text(text))).opened(), **values)


def test_a_way_that_cannot_be_decided_names_what_was_missed_and_nothing_else() -> None:
    run = two(usage=None, waiting=None).run
    assert run.looked.decisions == (("first", "cannot decide: KV cache in use could not be read (no usage)"),)
    assert run.visit.state == "second"


def test_a_replica_that_was_picked_is_known_from_then_on() -> None:
    text = TWO_READS.replace(
        "  usage: {metric: kv_cache_usage_perc, over: 60s}\n",
        "  usage: {metric: kv_cache_usage_perc, over: 60s}\n"
        "  each: {metric: kv_cache_usage_perc, over: 60s, across: each}\n",
    ).replace("read: [usage, waiting]\n", "read: [usage, waiting, each]\n    pick: {worst: worst(each)}\n")
    text = text.replace("{when: usage > 0.9, to: second}", "{when: picked.worst == 'llm-2', to: second}")
    story = Story(Bundle.of(load_text(text))).opened()
    story.run = story.run.with_(findings=story.run.findings.model_copy(update={"picked": {"earlier": "llm-9"}}))
    each = Reading(name="each", value={"llm-1": 0.5, "llm-2": 0.9}, at=story.at)
    usage, waiting = (Reading(name=name, value=0.1, at=story.at) for name in ("usage", "waiting"))
    found = {"each": each, "usage": usage, "waiting": waiting}
    story.happens(SignalsRead(event_id="r", effect_id="v1/read", readings=found))
    assert story.run.visit.state == "second"
    assert story.run.findings.picked == {"earlier": "llm-9", "worst": "llm-2"}


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", ["of another visit", "without a watch"])
def test_a_verdict_of_a_watch_that_was_left_decides_nothing(late: str) -> None:
    story = Story().applied()
    if late == "without a watch":
        story.run = story.run.with_(watch=None)
    visit = story.run.visit.number - (late == "of another visit")
    story.happens(Watched(event_id="w", effect_id=f"v{visit}/watch", verdict="held"))
    assert (story.run.visit.state, story.run.is_open) == ("watch", True)
    assert story.texts("ignored") == ["a verdict for a watch that was left"]


@pytest.mark.parametrize(
    ("title", "verdict", "line"),
    [
        ("", "not_held", "watch: not held — usage 0.97"),
        ("title: It gets calm\n    ", "held", "It gets calm: held — usage 0.97"),
    ],
)
def test_a_verdict_is_recorded_with_the_title_of_its_watch(title: str, verdict: Any, line: str) -> None:
    text = TEXT.replace("    watch: {calm", f"    {title}watch: {{calm")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).applied()
    usage = {"usage": Reading(name="usage", value=0.97, at=story.at)}
    story.watched(verdict, detail="usage 0.97", readings=usage)
    assert story.texts("verdict") == [line]
    assert story.run.latest["usage"].value == 0.97


WITH_SAY = TEXT.replace("    watch: {calm", "    say: 'usage ${usage}'\n    watch: {calm")


@pytest.mark.parametrize(("text", "verdict", "news"), [(TEXT, "held", 0), (TEXT, "not_held", 1), (WITH_SAY, "held", 1)])
def test_a_verdict_with_news_begins_the_next_message(text: str, verdict: Any, news: int) -> None:
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).applied()
    usage = {"usage": Reading(name="usage", value=0.97, at=story.at)}
    story.watched(verdict, detail="usage 0.97", readings=usage)
    posted = story.run.posts[-1].data.get("news", [])
    assert len(posted) == news
    assert not news or (posted[0]["result"], posted[0]["text"]) == (verdict, "usage 0.97" if text == WITH_SAY else "")


@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        pytest.param({"verdict": "not_held", "parts": {"calm": "not held"}}, "KV cache in use 0.97", id="not-held"),
        pytest.param({"verdict": "unknown", "parts": {"calm": "unknown: no answer"}}, "no answer", id="unknown"),
        pytest.param({"verdict": "broke", "broke": 0, "parts": {"calm": "held"}}, "KV cache in use 0.97", id="broke"),
        pytest.param({"verdict": "not_held", "parts": {"calm": "held"}}, "", id="too-late"),
    ],
)
def test_a_verdict_without_a_sentence_says_what_was_read(verdict: dict[str, Any], why: str) -> None:
    story = Story().applied()
    usage = {"usage": Reading(name="usage", value=0.97, at=story.at)}
    (news,) = story.watched(**verdict, readings=usage).run.posts[-1].data["news"]
    assert news["text"] == why


@pytest.mark.parametrize(
    ("parts", "missing"),
    [
        ({"recovered": "held", "enough_load": "not held"}, "not met: enough load; "),
        ({"recovered": "not held", "enough_load": "not held"}, ""),
    ],
)
def test_a_sentence_of_good_numbers_says_what_was_missing(parts: dict[str, str], missing: str) -> None:
    story = Story(Bundle.of(load_text(WITH_SAY, file="small.yaml"))).applied()
    usage = {"usage": Reading(name="usage", value=0.26, at=story.at)}
    (news,) = story.watched("not_held", parts=parts, readings=usage).run.posts[-1].data["news"]
    assert news["text"] == f"{missing}usage 0.26"


# --- charts -----------------------------------------------------------------------------------------------------------

KNOWN = Series(signal="usage", points=((builders.START, 0.95), (builders.START + 60, 0.5)))
UNKNOWN = Series(signal="waiting", unknown="no answer")


def test_a_chart_on_the_timeline_names_its_lines_as_people_read_them() -> None:
    story = Story().opened()
    labelled = KNOWN.model_copy(update={"label": "KV cache in use"})
    story.happens(SeriesRead(event_id="s", effect_id="series/1", lines=(labelled, UNKNOWN)))
    [drawn] = story.texts("chart")
    assert drawn == "so far: KV cache in use (2 points); waiting unknown: no answer"


@pytest.mark.parametrize(
    ("lines", "is_drawn"), [((KNOWN, UNKNOWN), True), ((UNKNOWN,), False), ((), False)], ids=["one", "none", "nothing"]
)
def test_a_chart_is_drawn_where_one_moment_is_known(lines: tuple[Series, ...], is_drawn: bool) -> None:
    story = Story().opened()
    story.happens(SeriesRead(event_id="s", effect_id="series/1", lines=lines))
    assert (DrawChart in {type(effect) for effect in story.last.effects}) is is_drawn


def test_a_chart_says_whether_its_time_is_over() -> None:
    story = Story().opened()
    story.happens(SeriesRead(event_id="s", effect_id="series/1", lines=(KNOWN,)))
    story.says("resolve")
    story.happens(SeriesRead(event_id="t", effect_id="series/2", lines=(KNOWN,)))
    assert [text.partition(":")[0] for text in story.texts("chart")] == ["so far", "over the whole time"]
