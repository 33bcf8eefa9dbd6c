"""`python -m tests.bench.replicas`: several replicas of the bot, faults at random moments; counts what went wrong.

A storm of alerts, the demo's incident, and presses in a crowd of open incidents, each with real processes. A cell of
the table is `lost/doubled/out of order seconds`: acknowledged alerts and presses without their effect; cards, messages,
calls and presses that are there twice; timelines and threads that are not in order; and the time until everything was
shown.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import aiohttp
import httpx
import redis

from bot.adapters.slack.press_value import APPROVE, CHOOSE
from bot.cli.demo import is_verified
from bot.domain.incidents.run import Run
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.timeline import Chained, first_break
from bot.sandbox import demo
from bot.sandbox.scenarios import OVERLOAD
from tests.bench.load import USER, Post, id_of_press, press, press_id, targets, webhook
from tests.bench.systems import Surroundings, settings_of_bot, surroundings
from tests.earlier_code import code_of
from tests.end_to_end.stage import SHORT, Stage
from tests.replicas import Replicas
from tests.waiting import until

OF_A_REPLICA = ("kill", "term", "stop")
"""SIGKILL, SIGTERM, and SIGSTOP with SIGCONT later."""
OF_REPLICAS = ("none", *OF_A_REPLICA, "any", "upgrade")
"""`any` draws one of them each time; `upgrade` replaces one replica of an earlier commit after the other."""
OF_THE_DEMO = ("redis", "slack", "kubernetes")
"""What the bot depends on goes away."""
FAULTS = (*OF_REPLICAS, *OF_THE_DEMO)
FROZEN_SECONDS = 17.0
"""Longer than a lease, so that another replica takes over before the frozen one goes on."""
AWAY_SECONDS = 8.0
SHOWN_WITHIN_SECONDS = 240.0
SENDER_SECONDS, PERSON_SECONDS = 5.0, 3.0
"""How long Alertmanager and Slack wait for an answer here."""
AT_ONCE = 8
AGAIN_SECONDS = 0.3


@dataclass(frozen=True)
class Size:
    alerts: int = 200
    crowd: int = 1000
    presses: int = 100


@dataclass(frozen=True)
class Cell:
    scenario: str
    replicas: int
    fault: str
    seed: int
    since: str = "HEAD~1"
    """The commit that is upgraded from."""

    @property
    def strikes(self) -> int:
        return self.replicas if self.fault == "upgrade" else 2


@dataclass
class Outcome:
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> list[str]:
        named = {"lost": self.lost, "doubled": self.doubled, "out of order": self.disordered}
        return [f"{what}: {each}" for what, every in named.items() for each in every]


# --- what can be seen afterwards --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """One incident as it is stored."""

    run: Run
    timeline: Sequence[Chained]
    known: frozenset[str]
    """The ids of its events."""


def kept_incidents(redis_url: str) -> dict[str, Kept]:
    form, found = StoredForm(), {}
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        for key in client.keys("{bot}:run:*"):
            name = key.rpartition(":")[2]
            entries = [Chained.model_validate_json(raw) for raw in client.lrange("{bot}:timeline:" + name, 0, -1)]
            known = frozenset(map(str, client.smembers("{bot}:known:" + name)))
            found[name] = Kept(form.run(str(client.get(key))), entries, known)
    return found


def messages_of(slack_url: str) -> dict[str, list[tuple[str, str]]]:
    """Incident to its messages, each with its ts and what it is, in the order in which Slack got them."""
    asked = {"channel": demo.CHANNEL}
    answer = httpx.get(f"{slack_url}/__sandbox__/messages", params=asked, timeout=60).raise_for_status()
    found: dict[str, list[tuple[str, str]]] = {}
    for message in answer.json():
        slot = ((message.get("metadata") or {}).get("event_payload") or {}).get("slot", "")
        incident, _, what = slot.partition("/")
        if incident.startswith("INC-"):
            found.setdefault(incident, []).append((message["ts"], what))
    return {incident: sorted(every) for incident, every in found.items()}


@dataclass(frozen=True)
class Seen:
    incidents: Mapping[str, Kept]
    messages: Mapping[str, Sequence[tuple[str, str]]]
    asked_to_press_again: int = 0
    """How often a person read that a press was not stored."""

    def of_target(self, name: str) -> list[str]:
        return [incident for incident, kept in self.incidents.items() if kept.run.target.name == name]

    def has_shown(self, incident: str) -> bool:
        shown = {what for _, what in self.messages.get(incident, ())}
        return {"card", *(post.slot for post in self.incidents[incident].run.posts)} <= shown

    def lost(self, alerted: Sequence[str], pressed: Sequence[tuple[str, str]]) -> Iterator[str]:
        for name in alerted:
            incidents = self.of_target(name)
            if not incidents:
                yield f"the alert of {name} opened no incident"
            for incident in incidents:
                if not self.has_shown(incident):
                    yield f"{incident} is not shown: {self.messages.get(incident, ())}"
        unstored: list[str] = []
        for incident, pressed_id in pressed:
            known = self.incidents[incident].known
            if f"press/{pressed_id}" not in known:
                unstored.append(f"press {pressed_id} of {incident} was not stored, and nobody was told")
            elif f"judged/{pressed_id}" not in known:
                yield f"press {pressed_id} of {incident} was not judged"
        # Slack gets a 200 also for a press that was not stored: the person reads that nothing was decided.
        yield from unstored[self.asked_to_press_again :]

    def doubled(self) -> Iterator[str]:
        targets = Counter(kept.run.target.name for kept in self.incidents.values())
        yield from (f"{name} has {count} incidents" for name, count in targets.items() if count > 1)
        for incident, every in self.messages.items():
            for what, count in Counter(what for _, what in every).items():
                if count > 1:
                    yield f"{incident}/{what} is in Slack {count} times"
        for incident, kept in self.incidents.items():
            recorded = (item.entry.data.get("press_id") for item in kept.timeline if item.entry.kind == "press")
            for one, count in Counter(filter(None, recorded)).items():
                if count > 1:
                    yield f"{incident}: press {one} is recorded {count} times"

    def disordered(self) -> Iterator[str]:
        for incident, kept in self.incidents.items():
            if (number := first_break(kept.timeline)) is not None:
                yield f"{incident}: the timeline breaks at entry {number}"
            if any(one.entry.at > other.entry.at for one, other in pairwise(kept.timeline)):
                yield f"{incident}: a later entry of the timeline has an earlier time"
            wanted = ["card", *(post.slot for post in kept.run.posts)]
            shown = [what for _, what in self.messages.get(incident, ()) if what in wanted]
            if shown != [slot for slot in wanted if slot in shown]:
                yield f"{incident}: the thread has {shown}, and the run {wanted}"


def looked(redis_url: str, slack_url: str) -> Seen:
    # Slack first: what is shown was stored before.
    messages = messages_of(slack_url)
    return Seen(kept_incidents(redis_url), messages, asked_to_press_again(slack_url))


def asked_to_press_again(slack_url: str) -> int:
    asked = {"channel": demo.CHANNEL, "user": USER}
    answer = httpx.get(f"{slack_url}/__sandbox__/messages", params=asked, timeout=60).raise_for_status()
    whispers = [message.get("text", "") for message in answer.json() if message.get("is_ephemeral")]
    return sum("press again" in text for text in whispers)


# --- faults -----------------------------------------------------------------------------------------------------------


@dataclass
class Disturber:
    """Strikes when as many things have happened as were drawn, each time another replica."""

    replicas: Replicas
    fault: str
    moments: list[int]
    draw: random.Random
    besides: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    _threads: list[threading.Thread] = field(default_factory=list)
    _errors: list[Exception] = field(default_factory=list)

    def happened(self, count: int) -> None:
        if self.fault != "none" and self.moments and count >= self.moments[0]:
            self.moments.pop(0)
            # One after the other: a replica that starts is not killed again.
            self.wait()
            self._threads.append(threading.Thread(target=self._strike, daemon=True))
            self._threads[-1].start()

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _strike(self) -> None:
        number = self.draw.randrange(len(self.replicas.members))
        fault = self.draw.choice(OF_A_REPLICA) if self.fault == "any" else self.fault
        try:
            match fault:
                case "upgrade":
                    self.replicas.upgrade()
                case "kill":
                    self.replicas.kill(number)
                case "term":
                    self.replicas.replace(number)
                case "stop":
                    with self.replicas.frozen(number):
                        time.sleep(FROZEN_SECONDS)
                case _:
                    self.besides[fault]()
        except Exception as error:  # noqa: BLE001 - `wait` raises it in the thread of the scenario
            self._errors.append(error)


# --- scenarios --------------------------------------------------------------------------------------------------------


async def send(url: str, posts: Sequence[Post], *, again: bool, on_answer: Callable[[], None]) -> list[Post]:
    """Those that were acknowledged. `again`: until each was, as Alertmanager sends; a person may press again or not."""
    waiting, acknowledged = iter(posts), []

    async def one_connection(client: aiohttp.ClientSession) -> None:
        for post in waiting:
            is_stored = await _is_stored(client, url, post)
            while again and not is_stored:
                await asyncio.sleep(AGAIN_SECONDS)
                is_stored = await _is_stored(client, url, post)
            if is_stored:
                acknowledged.append(post)
                on_answer()

    timeout = aiohttp.ClientTimeout(total=SENDER_SECONDS if again else PERSON_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        await asyncio.gather(*(one_connection(client) for _ in range(AT_ONCE)))
    return acknowledged


async def _is_stored(client: aiohttp.ClientSession, url: str, post: Post) -> bool:
    try:
        async with client.post(url + post.path, data=post.body, headers=post.headers) as answer:
            await answer.read()
            return 200 <= answer.status < 300
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


@dataclass
class Played:
    """What was acknowledged, and what was seen in the end."""

    alerted: Sequence[str] = ()
    pressed: Sequence[tuple[str, str]] = ()


def shown(around: Surroundings, played: Played, began: float) -> Outcome:
    """Wait until everything that was acknowledged is shown and judged; then look for what went wrong."""
    deadline = time.monotonic() + SHOWN_WITHIN_SECONDS
    while True:
        seen = looked(around.redis_url, around.slack_url)
        lost = list(seen.lost(played.alerted, played.pressed))
        if not lost or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    return Outcome(lost, list(seen.doubled()), list(seen.disordered()), time.monotonic() - began)


def storm(around: Surroundings, cell: Cell, size: Size) -> Outcome:
    """Hundreds of alerts about as many workloads, and then a press in each incident."""
    names = targets("storm", size.alerts)
    posts = {name: webhook(name, alerts=1, token=around.alert_token) for name in names}
    with prepared(around, cell, size.alerts, size.alerts) as (replicas, disturber, count):
        began = time.monotonic()
        asyncio.run(send(replicas.url, list(posts.values()), again=True, on_answer=count))
        opened = until(lambda: _opened(around, names), "each alert has an incident", SHOWN_WITHIN_SECONDS, every=1.0)
        pressed = press_each(around, replicas, list(opened.values()), count)
        disturber.wait()
        return shown(around, Played(names, pressed), began)


def _opened(around: Surroundings, names: Sequence[str]) -> Mapping[str, str] | None:
    found = {kept.run.target.name: name for name, kept in kept_incidents(around.redis_url).items()}
    return {name: found[name] for name in names} if set(names) <= found.keys() else None


def press_each(
    around: Surroundings, replicas: Replicas, incidents: Sequence[str], count: Callable[[], None]
) -> list[tuple[str, str]]:
    """The presses that were acknowledged, one for each incident."""
    sign = {"channel": demo.CHANNEL, "secret": around.signing_secret}
    posts = {number: press(name, number, **sign) for number, name in enumerate(incidents)}
    stored = asyncio.run(send(replicas.url, list(posts.values()), again=False, on_answer=count))
    return [
        (incidents[number], press_id(number, channel=demo.CHANNEL)) for number, post in posts.items() if post in stored
    ]


def crowd(around: Surroundings, cell: Cell, size: Size) -> Outcome:
    """Presses, and alerts about new workloads, while a thousand incidents are open."""
    names = targets("new", size.presses // 4)
    with prepared(around, cell, size.presses, len(names)) as (replicas, disturber, count):
        opening = [webhook("first", alerts=1, token=around.alert_token)]
        asyncio.run(send(replicas.url, opening, again=True, on_answer=lambda: None))
        [first] = until(lambda: _opened(around, ["first"]), "the first incident is open", 60).values()
        until(lambda: looked(around.redis_url, around.slack_url).has_shown(first), "its card is shown", 60)
        others = random.Random(cell.seed).sample(list(around.crowd(first, size.crowd)), size.presses)
        began = time.monotonic()
        pressed = press_each(around, replicas, others, count)
        posts = [webhook(name, alerts=1, token=around.alert_token) for name in names]
        asyncio.run(send(replicas.url, posts, again=True, on_answer=count))
        disturber.wait()
        return shown(around, Played(names, pressed), began)


@contextlib.contextmanager
def prepared(around: Surroundings, cell: Cell, *parts: int) -> Iterator[tuple[Replicas, Disturber, Callable[[], None]]]:
    """Replicas on empty stores, and what counts the answers; faults come at random answers, in each part in turn.

    `parts`: the number of answers of each part of the scenario.
    """
    around.forget()
    draw = random.Random(cell.seed)
    before = list(itertools.accumulate(parts, initial=0))
    # Not at the very end, where nothing is left to go wrong.
    at = [before[n % len(parts)] + draw.randint(1, max(1, parts[n % len(parts)] * 2 // 3)) for n in range(cell.strikes)]
    with replicas_of(cell, settings_of_bot(around)) as replicas:
        disturber = Disturber(replicas, cell.fault, sorted(at), draw)
        answers: list[None] = []

        def count() -> None:
            answers.append(None)
            disturber.happened(len(answers))

        yield replicas, disturber, count


@contextlib.contextmanager
def replicas_of(cell: Cell, environment: Mapping[str, str], port: int = 0) -> Iterator[Replicas]:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(code_of(cell.since)) if cell.fault == "upgrade" else None
        replicas = stack.enter_context(Replicas(environment, port=port, cwd=folder))
        replicas.start(cell.replicas)
        yield replicas


OF_AROUND: Mapping[str, Callable[[Surroundings, Cell, Size], Outcome]] = {"storm": storm, "crowd": crowd}

# --- the demo ---------------------------------------------------------------------------------------------------------

ENTRIES = 45
"""So many entries has the demo's timeline at least, before its fix is verified."""
CALLS = [
    ("create", "/apis/apps/v1/namespaces/serving/deployments"),
    ("patch", "/apis/apps/v1/namespaces/serving/deployments/llm"),
    ("delete", "/apis/apps/v1/namespaces/serving/deployments/llm-incident-bot-canary-inc-1"),
]


def play_demo(cell: Cell) -> Outcome:
    """The demo's incident through its approvals to verified; two faults at random entries of its timeline."""
    draw = random.Random(cell.seed)
    with demo.world(settings=SHORT, start_bot=False) as world:
        port = int(world.bot_url.rpartition(":")[2])
        with replicas_of(cell, world.bot_environment, port) as replicas:
            stage = Stage(world)
            moments = sorted(draw.sample(range(1, ENTRIES), cell.strikes))
            disturber = Disturber(replicas, cell.fault, moments, draw, outages(stage))
            world.cause_trouble(OVERLOAD)
            began = time.monotonic()

            def closed() -> Run | None:
                run = stage.run()
                disturber.happened(run.timeline.length if run else 0)
                return run if run and not run.is_open else None

            run = stage.pressing_until(closed, "the incident is closed", 400)
            disturber.wait()
            return _of_demo(stage, run, began)


def _of_demo(stage: Stage, run: Run, began: float) -> Outcome:
    deadline = time.monotonic() + 60
    while True:
        seen = looked(stage.world.redis_url, stage.world.slack_url)
        if seen.has_shown(run.incident_id) or time.monotonic() > deadline:
            break
        time.sleep(1.0)
    found = Outcome([], list(seen.doubled()), list(seen.disordered()), time.monotonic() - began)
    if not seen.has_shown(run.incident_id):
        found.lost.append(f"not everything is shown: {stage.describe()}")
    if not is_verified(run, stage.timeline()):
        found.lost.append(f"the fix is not verified: {stage.describe()}")
    known = seen.incidents[run.incident_id].known
    found.lost += [f"press {one} was not judged" for one in acknowledged_presses(stage) if f"judged/{one}" not in known]
    calls = stage.changes()
    found.lost += [f"{verb} {path} was not made" for verb, path in CALLS if (verb, path) not in calls]
    found.doubled += [f"{verb} {path} was made {n} times" for (verb, path), n in Counter(calls).items() if n > 1]
    return found


def acknowledged_presses(stage: Stage) -> Iterator[str]:
    """The ids of the presses that decide, as the bot makes them of what Slack sent."""
    answer = httpx.get(f"{stage.world.slack_url}/__sandbox__/deliveries", params={"kind": "block_actions"}, timeout=60)
    for sent in answer.raise_for_status().json():
        payload: dict[str, Any] = sent["payload"]
        [action] = payload["actions"]
        decides = action["action_id"] == APPROVE or action["action_id"].startswith(CHOOSE)
        if sent["error"] is None and decides:
            message = payload["container"]["message_ts"]
            yield id_of_press(payload["channel"]["id"], message, action["action_ts"], payload["user"]["id"])


def outages(stage: Stage) -> Mapping[str, Callable[[], None]]:
    def redis_restarts() -> None:
        stage.world.redis.kill()
        stage.world.redis.restart()

    def slack_is_away() -> None:
        stage.slack_fails({"kind": "500", "seconds": AWAY_SECONDS})

    def kubernetes_is_away() -> None:
        url = f"{stage.world.kubernetes_url}/__sandbox__/faults"
        httpx.post(url, json=[{"match": "* *", "kind": "500", "count": 1000}]).raise_for_status()
        time.sleep(AWAY_SECONDS)
        httpx.delete(url).raise_for_status()

    return {"redis": redis_restarts, "slack": slack_is_away, "kubernetes": kubernetes_is_away}


# --- the matrix -------------------------------------------------------------------------------------------------------


def play(cell: Cell, size: Size, around: Surroundings | None) -> Outcome:
    if around is None:
        return play_demo(cell)
    return OF_AROUND[cell.scenario](around, cell, size)


def matrix(chosen: argparse.Namespace) -> dict[Cell, Outcome]:
    size = Size(chosen.alerts, chosen.crowd, chosen.presses)
    done: dict[Cell, Outcome] = {}
    with contextlib.ExitStack() as stack:
        around = stack.enter_context(surroundings()) if {"storm", "crowd"} & set(chosen.only) else None
        for scenario in chosen.only:
            faults = [fault for fault in chosen.faults if scenario == "demo" or fault in OF_REPLICAS]
            for count in chosen.replicas:
                for fault in faults:
                    for number in range(chosen.rounds):
                        cell = Cell(scenario, count, fault, chosen.seed + number, chosen.since)
                        done[cell] = play(cell, size, None if scenario == "demo" else around)
                        print(_line(cell, done[cell]), *done[cell].faults[:10], sep="\n  ", flush=True)
    return done


def _line(cell: Cell, outcome: Outcome) -> str:
    return f"{cell.scenario} {cell.replicas} {cell.fault} seed {cell.seed}: {_figures([outcome])}"


def _figures(outcomes: Sequence[Outcome]) -> str:
    lost, doubled, disordered = (
        sum(len(each) for each in every)
        for every in zip(*((one.lost, one.doubled, one.disordered) for one in outcomes), strict=True)
    )
    return f"{lost}/{doubled}/{disordered} {statistics.median(one.seconds for one in outcomes):.0f} s"


def table(done: Mapping[Cell, Outcome]) -> Iterator[str]:
    columns = sorted({cell.replicas for cell in done})
    yield f"{'':20}" + "".join(f"{f'{count} replicas':>18}" for count in columns)
    for scenario, fault in dict.fromkeys((cell.scenario, cell.fault) for cell in done):
        line = f"{scenario + ', ' + fault:20}"
        for count in columns:
            key = (scenario, count, fault)
            found = [one for cell, one in done.items() if (cell.scenario, cell.replicas, cell.fault) == key]
            line += f"{_figures(found) if found else '-':>18}"
        yield line


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    def several(allowed: Sequence[str]) -> Callable[[str], list[str]]:
        def read(text: str) -> list[str]:
            if wrong := sorted(set(text.split(",")) - set(allowed)):
                raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: choose from {', '.join(allowed)}")
            return text.split(",")

        return read

    parser = argparse.ArgumentParser(prog="python -m tests.bench.replicas", description=__doc__)
    scenarios = (*OF_AROUND, "demo")
    parser.add_argument("--only", type=several(scenarios), default=list(scenarios))
    parser.add_argument("--replicas", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 3])
    parser.add_argument("--faults", type=several(FAULTS), default=["none", *OF_A_REPLICA])
    parser.add_argument("--since", default="HEAD~1", help="the commit that `--faults upgrade` starts with")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alerts", type=int, default=Size.alerts)
    parser.add_argument("--crowd", type=int, default=Size.crowd)
    parser.add_argument("--presses", type=int, default=Size.presses)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    done = matrix(options(arguments))
    print("lost/doubled/out of order, and the median of the seconds until everything was shown")
    print(*table(done), sep="\n")
    return int(any(outcome.faults for outcome in done.values()))


if __name__ == "__main__":
    raise SystemExit(main())
