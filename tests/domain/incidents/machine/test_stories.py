"""Some whole stories, word for word: what is written down, put into the thread, wanted, and kept.

The other tests say the rules. These say that nothing else changes by the way: read the differences of a snapshot in a
review, and renew it with UPDATE_SNAPSHOTS=1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_text
from bot.domain.approvals.grant import Demand
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.event import (
    ALL,
    AlertChanged,
    Commanded,
    Due,
    EffectFailed,
    Event,
    Judged,
    OpenedByHand,
    Posted,
    Progressed,
    SeriesRead,
    SignalsRead,
    StepSettled,
)
from bot.domain.incidents.impact import Impact
from bot.domain.incidents.machine import Decision, set_aside, without_playbook
from bot.domain.incidents.run import NEXT_STATUS, Run
from bot.domain.incidents.series import Series
from bot.domain.playbooks.bundle import Bundle
from bot.domain.signals.signal import Reading
from tests import builders
from tests.domain.incidents.machine.steps import TEXT, TWO_STEPS, Story
from tests.domain.incidents.machine.test_deciding import asked as asked_for
from tests.domain.incidents.machine.test_deciding import breaks_glass, edits, half_time, planned_anew
from tests.domain.incidents.machine.test_diverts import after_a_more_urgent_alert, after_many_diverts
from tests.domain.incidents.machine.test_diverts import story as diverted
from tests.domain.incidents.machine.test_forms import opened as opened_by_hand
from tests.domain.incidents.machine.test_operator_actions import MAY, SHOWN, silenced
from tests.domain.incidents.machine.test_residual import stopped_after
from tests.domain.incidents.machine.test_stopped import ROLLOUT, stopped

pytestmark = pytest.mark.fast
FOLDER = Path(__file__).parents[2] / "snapshots" / "stories"
LEFT_OUT = frozenset({"plan", "digest", "version", "posts", "alerts", "differences"})
"""Posts have lines of their own, and the rest is evidence that other tests look into."""


def shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "…" if key in LEFT_OUT else shortened(part) for key, part in value.items()}
    return [shortened(part) for part in value] if isinstance(value, list) else value


def as_text(value: Any) -> str:
    return json.dumps(shortened(value), ensure_ascii=False)


def changes(before: Any, after: Any, path: str = "") -> list[str]:
    """One line for each value of a run that is another than before."""
    if before == after or path.rpartition(".")[2] in LEFT_OUT:
        return []
    if isinstance(after, dict) and isinstance(before, dict):
        gone = [f"{path}.{key}".removeprefix(".") + " no more" for key in before if key not in after]
        return [*gone, *(line for key in after for line in changes(before.get(key), after[key], f"{path}.{key}"))]
    return [f"{path.removeprefix('.')} = {as_text(after)}"]


def lines_of(event: Event, before: Run, decision: Decision) -> list[str]:
    """What one decision writes down, puts into the thread, wants and keeps."""
    lines = [f"> {event.kind}"]
    for entry in decision.entries:
        where = f"{entry.kind} by {entry.who or 'the bot'} in {entry.state} at {entry.at - builders.START:g} s"
        lines.append(f"  {where}: {entry.text}{' ' + as_text(entry.data) if entry.data else ''}")
    posted = {post.slot: post for post in before.posts}
    for post in decision.run.posts:
        if posted.get(post.slot) != post:
            lines.append(f"  thread {post.slot}: {post.kind} {post.ref} {as_text(post.data)}")
    for effect in decision.effects:
        wanted = effect.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)
        lines.append(f"  wants {effect.kind} {as_text(wanted)}")
    was, kept = (run.model_dump(mode="json", exclude_defaults=True) for run in (before, decision.run))
    return [*lines, *(f"  keeps {line}" for line in changes(was, kept))]


StoryOf = Callable[[], Story | tuple[Story, ...]]


def receives(story: Story, status: Any = "firing", *, truncated: int = 0, **labels: Any) -> Story:
    alert = builders.alert(status, **labels)
    story.happens(AlertChanged(event_id=story.id(), alert=alert, truncated=truncated))
    return story


def fixed() -> Story:
    """From the first alert to the end, and what is posted and drawn at the end."""
    story = Story().asked()
    story.happens(Posted(event_id=story.id(), slot="question:Q1", ts="0.9", channel="C1"))
    story.presses("approve", user="ben").settles(detail="200 OK", evidence={"resource_version": "7"})
    story.watched("held", parts={"calm": "true"}, detail="calm for 10 s")
    story.happens(Posted(event_id=story.id(), slot=story.run.posts[-1].slot, ts="2.2", channel="C1"))
    line = Series(signal="usage", points=((builders.START, 0.95), (builders.START + 60, 0.5)))
    story.happens(SeriesRead(event_id=story.id(), effect_id="series/closed", lines=(line,)))
    return story


def refused() -> Story:
    """Two must approve: one does, twice; one who may not; one says no with a reason; one is late."""
    story = asked_for(demands=(Demand(needed=2, users=("ana", "ben", "cay")),))
    story.presses("approve", user="cay").presses("approve", user="cay").presses("approve", user="eve", allowed=False)
    story.presses("refuse", user="ben", reason="wait for the night").presses("approve", user="ana")
    story.judged(builders.press(press_id="x", about="R9")).chooses("grow", about="Q9").presses("approve", user="cay")
    story.chooses("grow").planned(PlanResult(outcome="planned", plan=builders.plan(choices={"to": 5}))).posted()
    story.presses("approve", user="cay").presses("approve", user="cay", reason="again").presses("more_time")
    nameless = builders.press(press_id="n", action="refuse", about=story.request, user="ben", user_name="")
    return story.judged(nameless)


def nobody() -> Story:
    """Half time, more time, and then nobody decides; then nobody answers either."""
    story = half_time(asked_for()).presses("more_time", user="ben")
    story.due("request:R2:expiry").presses("approve").chooses("goto:choose")
    return story.due(f"question:{story.run.question}:expiry")


def glass() -> Story:
    return breaks_glass(half_time(asked_for(glass=True)).presses("approve", user="ana", teams=("serving",)))


def edited() -> Story:
    story = edits(asked_for(), "900")
    planned_anew(story, PlanResult(outcome="impossible", reason="0 free accelerators.", hint="Write a smaller number."))
    planned_anew(story, PlanResult(outcome="planned", plan=builders.plan(choices={"to": 5})))
    return edits(story, "7", user="ben")


def halfway() -> Story:
    """Two calls and a wait: halted between them, resumed, failed, and taken back."""
    story = Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=TWO_STEPS)).posted()
    story.presses("approve").says("undo").says("resolve").says("divert", text="other").settles()
    story.happens(
        Progressed(event_id=story.id(), effect_id=f"v{story.run.visit.number}/apply", text="3 of 5 replicas Ready")
    )
    story.says("halt", text="I look first").says("halt").settles("halted", detail="the kill switch is on")
    story.says("resume").says("resume").settles(call_id="", detail="5 of 5 replicas Ready")
    story.settles("failed", detail="403: forbidden", evidence={"status": 403}).says("undo")
    back = builders.plan(verb="undo", steps=(builders.call().undo[0],), choices={"of": ["INC-1/R2/0"]})
    story.planned(PlanResult(outcome="planned", plan=back)).posted().presses("approve").settles()
    return story.says("undo").chooses("hand_over").chooses("close")


def affected() -> Story:
    story = stopped().chooses("go_on")
    story.settles("affected", detail="requests waiting per replica 4.0 → 9.0", impact=Impact(waiting=9.0))
    return story.chooses("hand_over")


def rolls_on() -> tuple[Story, ...]:
    """Stopped while Kubernetes goes on by itself, with something to take back and with nothing."""
    return stopped(builders.call(), ROLLOUT), stopped(builders.call(undo=()), ROLLOUT)


def evidence() -> tuple[Story, ...]:
    """What a request shows of its readings: one that is not known, one of several parts, and none."""
    unknown = Story().opened().reads(None).chooses("grow").planned()
    parts = Story().opened()
    reading = Reading(name="usage", fields={"now": 0.95, "trend": "", "rising": True}, at=parts.at)
    parts.happens(SignalsRead(event_id="parts", effect_id="v1/read", readings={"usage": reading}))
    parts.chooses("grow").planned()
    grows = TEXT.replace("start: look", "start: grow").replace("{label: Stop, to: calm}", "{label: Look, to: look}")
    none = Story(Bundle.of(load_text(grows, file="small.yaml"))).opened()
    none.planned().posted().presses("refuse").chooses("grow").planned()
    return unknown, parts, none


def residual_changes() -> Story:
    return stopped_after(1).chooses("undo").says("resolve").chooses("keep", user="ben")


def unplanned() -> Story:
    """Each way in which a change cannot be planned."""
    text = TEXT.replace("still: usage", "still: results.look.usage")
    story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95)
    story.chooses("grow").planned(PlanResult(outcome="impossible", reason="Nothing fits.", hint="Ask the owner."))
    story.chooses("again").planned(PlanResult(outcome="not_needed", reason="It has 5 replicas already."))
    unread = PlanResult(outcome="unknown", reason="not read.", hint="- a\n+ b", missing=("results.look.usage",))
    story.chooses("again").planned(unread).chooses("goto:look").reads(0.95)
    return story.chooses("grow").planned(PlanResult(outcome="failed", reason="The API server says no."))


def settled(result: str, **fields: Any) -> StoryOf:
    """How the first call of a granted change ends, and the same outcome once more."""

    def play() -> Story:
        story = Story().granted()
        story.settles(result, detail="the reason", **fields)
        return story

    return play


def alerts() -> Story:
    """Late, joined, resolved while a request waits, closed, and firing again."""
    story = Story()
    story.run = story.run.with_(target=builders.TARGET.model_copy(update={"resolved": False}))
    receives(story, truncated=3)
    receives(story, starts_at=builders.START - 600)
    receives(story, fingerprint="f2", alertname="Slow", severity="critical", truncated=2)
    story.reads(0.95).chooses("grow").planned().posted().presses("approve", allowed=False)
    receives(story, "resolved", fingerprint="f2", alertname="Slow", severity="critical")
    receives(story, "resolved")
    story.presses("refuse").says("resolve", text="it went away")
    receives(story, "resolved", fingerprint="f3")
    return receives(story, fingerprint="f4", alertname="Again")


def by_hand() -> Story:
    """What people do beside the questions of a playbook."""
    story = Story()
    opened = {"what": "answers are slow"}
    story.happens(OpenedByHand(event_id=story.id(), user="ana", fields=opened))
    story.happens(OpenedByHand(event_id=story.id(), user="ben", fields=opened))
    story.reads(None).says("note", text="I look").says("lead").says("lead", text="ben").says("reset")
    story.says("status", text="two are back", seconds=900).says("export", text="json").says("export", text="doc")
    story.says("graph").says("pin", text="XIDs", happened_at=builders.START, author="cay", link="https://slack/p1")
    story.says("halt", to=ALL).says("halt", to=ALL).says("resume").says("skip", to="grow", text="now")
    story.says("skip", to="left", text="nobody is here").says("note", text="late").says("status", text="late")
    return story.says("reopen", text="it came back").says("reopen", text="again").says("undo").says("resolve")


def silences() -> Story:
    story = silenced().says("silence", text="x", seconds=60, silences=SHOWN)
    story.says("silence", text="longer", seconds=600, silences=SHOWN, authority=MAY).says("unsilence")
    story.happens(EffectFailed(event_id="f", effect_id="silence/1", effect_kind="silence_alerts", reason="HTTP 400"))
    return story.says("resolve")


def reminded() -> Story:
    story = Story()
    story.run = story.run.with_(severity="page")
    story.opened()
    for lead in ("", "ana"):
        story.run = story.run.with_(lead=lead)
        story.at = story.run.deadlines[NEXT_STATUS] - 10
        story.due(NEXT_STATUS)
    return story


def another_playbook() -> tuple[Story, ...]:
    there_and_back = diverted().chooses("not_it").chooses("leave").chooses("people")
    by_command = after_many_diverts().says("divert", text="inner").says("divert", text="urgent")
    by_answer = after_many_diverts().reads(None).chooses("divert:urgent")
    return there_and_back, by_command, by_answer, after_a_more_urgent_alert().chooses("fixed")


def given_up() -> tuple[Story, ...]:
    """Effects that could not be done, and an event that could not be handled."""
    story = Story().opened()
    for kind in ("show_in_slack", "read_series"):
        story.happens(EffectFailed(event_id=story.id(), effect_id="x", effect_kind=kind, reason="no answer"))
    effect = {"effect_id": f"v{story.run.visit.number}/read", "effect_kind": "read_signals", "reason": "no answer"}
    story.happens(EffectFailed.model_validate({"event_id": story.id()} | effect))
    applying = Story().granted()
    effect = {
        "effect_id": f"v{applying.run.visit.number}/apply/R2/0/0",
        "effect_kind": "apply_step",
        "reason": "no answer",
    }
    applying.happens(EffectFailed.model_validate({"event_id": applying.id()} | effect))
    return story, applying


RICH = TEXT.replace("    ask: What now?\n", "    ask: Is it too much?\n    why: A person knows the traffic.\n").replace(
    "{label: Grow, to: grow, style: primary}", "{label: Grow, note: adds one replica, to: grow, style: primary}"
)


def rich() -> Story:
    """A question with a reason, notes and a style; asked again it shows what was tried."""
    story = Story(Bundle.of(load_text(RICH, file="small.yaml"))).asked().presses("refuse", user="ben", reason="not now")
    for _ in range(5):
        story.chooses("grow").planned().posted().presses("refuse")
    return story


def forms() -> Story:
    """Two questions with forms, and who must not answer them."""
    story = opened_by_hand().chooses("none", user="eve").chooses("given", user="ana").chooses("given", size="0.5")
    story.chooses("given", user="ana", size="1").reads(2).chooses("sure", user="ana")
    return story.chooses("sure", user="ben")


def copies() -> Story:
    """Presses on copies of a question and of a request, on nothing, and on what is left behind."""
    story = Story().opened().reads(0.95)
    story.happens(Posted(event_id=story.id(), slot="question:Q1", ts="0.9", channel="C1"))
    for place in ({"channel": "C9"}, {"message_ts": "9.9"}):
        press = builders.press(press_id=story.id(), action="choose", about="Q1", value="grow", **place)
        story.judged(press)
    story.chooses("grow", allowed=False).chooses("more").chooses("grow").chooses("stop", about="Q1").planned().posted()
    for place in ({"channel": "C9"}, {"message_ts": "9.9"}):
        story.judged(builders.press(press_id=story.id(), about="R2", digest=builders.plan().digest, **place))
    return story.judged(builders.press(press_id=story.id(), about="X1"))


HANDED = "{divert: people, to_group: facilities, why: The hall is hot., expires: settings.within, taken: calm}"


def taken_over() -> tuple[Story, ...]:
    """People are asked to take over: one does; then nobody does."""
    text = TEXT.replace("{end: handed_over, say: Nobody answered.}", HANDED)
    stories = []
    for _ in range(2):
        story = Story(Bundle.of(load_text(text, file="small.yaml"))).opened().reads(0.95)
        stories.append(story.due("question:Q1:expiry"))
    taken, expired = stories
    return taken.chooses("taken", user="ben"), expired.due(f"question:{expired.run.question}:expiry")


def stranded() -> tuple[Story, ...]:
    """Every event of a run whose playbook cannot be read any more."""
    return without(Story().granted(), EVENTS), without(Story().asked(), (EXPIRY, command("resolve", "by hand")))


def without(story: Story, events: Sequence[Event]) -> Story:
    for event in events:
        before = story.run
        decision = without_playbook(before, event.model_copy(update={"at": story.at}), "no such file", story.rules)
        story.happened.append((event, before, decision))
        story.run = decision.run
    return story


def command(word: Any, text: str = "x") -> Commanded:
    return Commanded(event_id=f"{word} {text}", command=word, user="ana", text=text)


PRESS = builders.judged_press()
EXPIRY = Due(event_id="d", deadline="request:R2:expiry", due_at=1.0)
EVENTS: tuple[Event, ...] = (
    *map(command, ("note", "halt", "lead", "export", "pin", "undo")),
    Posted(event_id="p", slot="card", ts="1", channel="C1"),
    Judged(event_id="j", press=PRESS.press, pressed_at=builders.START, authority=PRESS.authority),
    AlertChanged(event_id="a", alert=builders.alert("resolved", fingerprint="f2")),
    EXPIRY,
    StepSettled(event_id="s", effect_id="v3/a", request_id="R2", step=0, call_id="INC-1/R2/0", result="done"),
    command("resolve", "by hand"),
    command("resolve", "again"),
)


def put_aside() -> Story:
    """Events that failed three times: one that people have to know of, and one that they need not."""
    story = Story().opened()
    for event in (Progressed(event_id="p", effect_id="v1/x", text="x"), Due(event_id="d", deadline="x", due_at=1.0)):
        before = story.run
        decision = set_aside(before, event.model_copy(update={"at": story.at}), "KeyError", story.bundle, story.rules)
        story.happened.append((event, before, decision))
        story.run = decision.run
    return story


def after_the_end() -> Story:
    """The events that a closed incident accepts, and those that it ignores."""
    story = Story().granted()
    change, digest = story.run.change, story.run.requests["R2"].digest
    assert change is not None
    story.settles("failed", detail="409").says("resolve", text="by hand").says("undo").says("graph")
    story.judged(builders.press(press_id="late", about="R2", digest=digest))
    late = {"request_id": "R2", "step": 0, "call_id": "INC-1/R2/0", "result": "done"}
    story.happens(StepSettled.model_validate({"event_id": story.id(), "effect_id": "v3/apply"} | late))
    story.happens(StepSettled.model_validate({"event_id": story.id(), "effect_id": "v3/apply"} | late))
    story.reads(0.5).watched("held").planned().due("request:R2:expiry")
    return story


RISKIER = builders.plan(risk="high")
STORIES: Mapping[str, StoryOf] = {
    "fixed": fixed,
    "refused": refused,
    "nobody": nobody,
    "glass": glass,
    "edited": edited,
    "halfway": halfway,
    "affected": affected,
    "rolls_on": rolls_on,
    "evidence": evidence,
    "residual_changes": residual_changes,
    "unplanned": unplanned,
    "settled_superseded": settled("superseded", replanned=PlanResult(outcome="planned", plan=RISKIER)),
    "settled_not_needed": settled("not_needed"),
    "settled_still_unknown": settled("still_unknown"),
    "settled_lapsed": settled("lapsed"),
    "settled_withheld": settled("withheld"),
    "settled_interfered": settled("interfered", evidence={"calls": []}),
    "settled_unclear": settled("unclear", evidence={"status": 504}),
    "alerts": alerts,
    "by_hand": by_hand,
    "silences": silences,
    "reminded": reminded,
    "another_playbook": another_playbook,
    "given_up": given_up,
    "rich": rich,
    "forms": forms,
    "copies": copies,
    "taken_over": taken_over,
    "stranded": stranded,
    "put_aside": put_aside,
    "after_the_end": after_the_end,
}


@cache
def begins() -> tuple[str, ...]:
    return tuple("\n".join(lines_of(*step)) for step in fixed().happened)


def text_of(stories: Story | tuple[Story, ...]) -> list[str]:
    """Every decision of these stories; what begins as the story `fixed` does is left out."""
    texts = []
    for story in stories if isinstance(stories, tuple) else (stories,):
        steps = ["\n".join(lines_of(*step)) for step in story.happened]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(begins(), steps, strict=False)))
        texts += steps[same:] or steps
    return texts


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_written_word_for_word(name: str) -> None:
    now = "\n".join(text_of(STORIES[name]())) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.write_text(now)
    assert path.exists(), f"no snapshot {path.name}: run with UPDATE_SNAPSHOTS=1 and review it"
    assert now == path.read_text(), f"{path.name} differs: review it, then run with UPDATE_SNAPSHOTS=1"
