"""The real flow over the real Redis and the real messenger, in virtual time; cluster, signals and people are fakes.

A `Scene` is what outlives a bot: Redis, the cluster, Slack, the people. A `Bot` is one process: everything in its
memory is gone when it crashes, and the next one begins with what the scene holds.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio as aioredis

from bot.adapters.redis.claims import RedisClaims
from bot.adapters.redis.connection import Connection
from bot.adapters.redis.pace import RedisPace
from bot.adapters.redis.planned_windows import RedisPlannedWindows
from bot.adapters.redis.samples import RedisSamples
from bot.adapters.redis.shown import RedisShown
from bot.adapters.redis.store import RedisStore, StoreLimits
from bot.adapters.redis.summary import RedisSummary
from bot.adapters.redis.watch_log import RedisWatchLog
from bot.adapters.slack.outbound.incident_channel import ChannelRules
from bot.adapters.slack.outbound.lookup import METADATA_TYPE
from bot.adapters.slack.outbound.messenger import Place, SlackMessenger
from bot.adapters.slack.outbound.shown import Shown
from bot.adapters.slack.outbound.summary import Summary
from bot.adapters.slack.outbound.summary_message import summary_message
from bot.adapters.yaml_playbooks import StoredPlaybooks
from bot.domain.approvals.advice import Observing
from bot.domain.approvals.contacts import Contacts
from bot.domain.approvals.grant import Press
from bot.domain.approvals.rules import ApprovalRules
from bot.domain.incidents.effect import ApplyStep
from bot.domain.incidents.machine import Rules
from bot.domain.incidents.run import Run
from bot.domain.incidents.stored_form import StoredForm
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import StorageUnavailableError
from bot.domain.kernel.planned_window import WindowRule
from bot.domain.kernel.timeline import first_break
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.library import Library
from bot.flow.clusters import ClusterPorts
from bot.flow.handlers.apply import ApplyCall
from bot.flow.ports.people import PageCall
from bot.flow.restrictions import Restrictions
from bot.flow.sample_replicas import SampledHistory, SnapshotReplicas
from bot.runtime import Pictures, Ports, Runtime, Time
from bot.sandbox.slack.directory import BOT_USER
from bot.sandbox.slack.team import Settings, Team
from tests import builders
from tests.fakes.cluster import MemoryCluster
from tests.fakes.engines import MemoryEngines
from tests.fakes.incident_service import KnownPeople
from tests.fakes.signals import Script, ScriptedSignals
from tests.flow.stage import (
    Crash,
    Life,
    Stage,
    StagedCluster,
    StagedConnection,
    StagedEngines,
    StagedPager,
    StagedPeople,
    StagedSlack,
)
from tests.redis_server import VirtualTime

CHANNEL = "C0INC"
DIGEST = "digest/"
ALL_HAVE_CARDS = summary_message({}).text
APPROVERS = ("U0ANA", "U0BEN")
LEAD = "U0LEA"
"""Answers the questions; whoever chose a change is not the one who approves it."""
GRANT_VALID_SECONDS = 600.0
STEP_SECONDS = 1.0
RESTART_SECONDS = 16.0
"""A new process is there before this long, and every lease of the old one has lapsed by then."""
MAX_STEPS = 400
RULES = Rules(
    approvals=ApprovalRules(
        grant_valid_seconds=GRANT_VALID_SECONDS,
        low=builders.policy(users=APPROVERS),
        medium=builders.policy(users=APPROVERS),
        high=builders.policy(users=APPROVERS, needed=2),
    )
)
Answers = Mapping[str, str]
"""State to the choice that is made there."""


@functools.cache
def _compiled(source: tuple[tuple[str, str], ...]) -> Bundle:
    return StoredPlaybooks()(dict(source))


def compiled_once(bundle: Mapping[str, str]) -> Bundle:
    """`StoredPlaybooks`, shared by all bots of the tests: frozen, and slower to read than a whole run."""
    return _compiled(tuple(sorted(bundle.items())))


@dataclass
class Scene:
    """Everything that a crash of the bot leaves as it was, and what the people and Alertmanager do."""

    client: aioredis.Redis
    tag: str
    time: VirtualTime
    stage: Stage
    cluster: MemoryCluster
    playbook: CompiledPlaybook
    script: Script
    answers: Answers
    alerts: list[Alert]
    """Not yet answered with 200: they are sent again until they are."""
    team: Team = field(init=False)
    eyes: RedisStore = field(init=False)
    people_are_there: bool = True
    pressed: set[tuple[str, str]] = field(default_factory=set)
    """What each person pressed and saw acknowledged."""
    attempts: int = 0
    engines: MemoryEngines = field(init=False)
    besides: tuple[CompiledPlaybook, ...] = ()
    """Further playbooks that alerts may open."""
    cards: tuple[int, float] | None = None
    """How many new cards there may be in any period, and its seconds; None: there is no digest."""
    pages: list[PageCall] = field(default_factory=list)
    """What the pager was sent."""
    contacts: Contacts = field(default_factory=Contacts)
    own: ChannelRules = field(default_factory=ChannelRules)
    form_of: Callable[[str], StoredForm] = lambda owner: StoredForm()
    """The form that the version of this bot stores."""
    otherwise: str = ""
    """The choice in any other question than those of `answers`, such as what to do after a failed read."""
    observing: Observing = field(default_factory=Observing)
    window_rules: tuple[WindowRule, ...] = ()
    limits: StoreLimits = field(default_factory=StoreLimits)

    def __post_init__(self) -> None:
        self.stage.now = self.time.now
        self.engines = MemoryEngines(self.time.now)
        self.team = Team(Settings(bot_url="", signing_secret="", pace="off"), self.time.now)
        self.eyes = RedisStore(Connection(self.client, tag=self.tag, clock=self.time.prelude), owner="a test")

    def signals(self) -> Mapping[str, object]:
        """What can be read now; a test may put another script in place at any time."""
        return self.script()

    async def run(self) -> Run | None:
        incidents = await self.eyes.recent_incidents(2)
        assert len(incidents) < 2, f"one alert opened {incidents}"
        return await self.eyes.load(incidents[0]) if incidents else None

    def messages(self) -> list[dict[str, Any]]:
        """Of the channel, and of those that the bot made."""
        return [message for channel in self.team.messages.channels.values() for message in channel.values()]

    def digests(self) -> list[str]:
        return [message["text"] for message in self.messages() if _slot(message).startswith(DIGEST)]

    def open_digests(self) -> list[str]:
        return [text for text in self.digests() if text != ALL_HAVE_CARDS]

    def channels(self) -> Counter[str]:
        made = [channel for channel in self.team.directory.channels.values() if channel.creator == BOT_USER]
        return Counter(f"channel {'archived' if channel.is_archived else 'open'}" for channel in made)

    def slots(self) -> list[str]:
        """What stands in Slack about incidents, by the key of each message, without the incident's number."""
        keys = [slot for message in self.messages() if (slot := _slot(message)) and not slot.startswith(DIGEST)]
        return [key.partition("/")[2] for key in keys]

    def place_of(self, slot: str) -> str:
        """The channel in which it stands; empty while it does not."""
        channels = self.team.messages.channels.items()
        found = [name for name, every in channels for each in every.values() if _slot(each).partition("/")[2] == slot]
        return found[0] if found else ""

    def files(self) -> list[str]:
        return [file["name"].split("-", 2)[2] for m in self.messages() for file in m.get("files", ())]

    async def left(self) -> dict[str, object]:
        """What is still owed, waiting or held; empty when nothing is."""
        key = self.eyes._redis.key
        found: dict[str, object] = {
            "intake": await self.client.lrange(key("intake"), 0, -1),
            "pending": await self.client.zrange(key("pending"), 0, -1),
            "due": await self.client.zrange(key("due"), 0, -1),
            "owed": await self.client.zrange(key("owed"), 0, -1),
            "owners": await self.client.hgetall(key("owners")),
            "leases": await self.client.hgetall(key("leases")),
            "open": await self.client.hgetall(key("open")),
            "digests": self.open_digests(),
        }
        return {name: what for name, what in found.items() if what}


def _slot(message: Mapping[str, Any]) -> str:
    key = message.get("metadata", {})
    return str(key["event_payload"]["slot"]) if key.get("event_type") == METADATA_TYPE else ""


class Bot:
    """One process of the bot, as wiring joins it."""

    def __init__(self, scene: Scene, owner: str) -> None:
        self.life = Life(owner)
        self._scene = scene
        stage, time = scene.stage, scene.time
        self._redis = StagedConnection(scene.client, stage, self.life, tag=scene.tag, clock=time.prelude)
        self._cluster = StagedCluster(scene.cluster, stage, self.life)
        self.store = RedisStore(self._redis, owner=owner, limits=scene.limits, form=scene.form_of(owner))
        self.claims = RedisClaims(self._redis, observing=scene.observing, owner=owner)
        self.scraped = SampledHistory(
            replicas=SnapshotReplicas(self._cluster),
            scraper=scene.engines,
            store=RedisSamples(self._redis),
            now=time.now,
        )
        self.messenger = self._messenger()
        self.runtime = runtime = Runtime(self._ports(), RULES.model_copy(update={"contacts": scene.contacts}))
        apply = runtime.handlers_of(builders.TARGET)[ApplyStep]
        assert isinstance(apply, ApplyCall)
        self.advance, self.apply, self.wake, self.halts = runtime.advance, apply, runtime.wake, runtime.halts
        self.receive, self.again = runtime.receive, runtime.show_again
        self.reconcile = runtime.reconcile()
        self.accept = runtime.accept(self.reconcile)

    def _ports(self) -> Ports:
        scene, stage = self._scene, self._scene.stage
        return Ports(
            store=self.store,
            claims=self.claims,
            watch_log=RedisWatchLog(self._redis),
            clusters={builders.TARGET.cluster: self._of_cluster()},
            messenger=self.messenger,
            people=StagedPeople(KnownPeople(LEAD, *APPROVERS), stage, self.life),
            playbooks=Library({each.name: each for each in (scene.playbook, *scene.besides)}),
            pictures=Pictures(
                chart_png=lambda chart: chart.title.encode(),
                chart_svg=lambda chart: b"<svg></svg>",
                path_png=lambda picture: b"",
            ),
            silences=None,
            pager=StagedPager(scene.pages, stage, self.life),
            links=self.messenger.links,
            from_bundle=compiled_once,
            restrictions=Restrictions(RedisPlannedWindows(self._redis), scene.observing, scene.window_rules),
            time=Time(pause=self._pause, later=_left_to_the_net, elapsed=scene.time.now, aside=_at_once),
        )

    def _of_cluster(self) -> ClusterPorts:
        scene = self._scene
        return ClusterPorts(
            cluster=self._cluster,
            writer=self._cluster,
            job_logs=scene.cluster,
            signals=ScriptedSignals(scene.signals, scene.time.now),
            history=self.scraped,
            samples=self.scraped,
            scraper=scene.engines,
            generations=StagedEngines(scene.engines, scene.stage, self.life),
        )

    def _messenger(self) -> SlackMessenger:
        scene = self._scene
        client = StagedSlack(scene.team, scene.stage, self.life)
        freely = (1000.0, 1000.0)
        pace = RedisPace(self._redis, {"post": freely, "update": freely})
        digest = None
        if scene.cards:
            waiting = RedisSummary(self._redis, scene.cards)
            digest = Summary(client, waiting, pace, scene.time, channel=CHANNEL, deployment=scene.tag)
        shown = RedisShown(self._redis, Shown, dataclasses.asdict, pace)
        place = Place(channel=CHANNEL, deployment=scene.tag, incident_channels=scene.own)
        return SlackMessenger(client, shown, pace, scene.time, place, digest)

    async def _pause(self, seconds: float) -> None:
        """Waiting passes virtual time, for everybody."""
        await self._scene.stage.step(self.life, "pause", lambda: self._scene.time.advance(seconds), counts=False)

    async def turn(self) -> None:
        """Whatever can be done now: hear the outside, then work until nothing is left but waiting."""
        try:
            await self._hear_alertmanager()
            await self._receive_input()
            await self.reconcile.route()
            await self.reconcile.once()
            await self.halts.once()
        except Crash:
            assert self.life.is_over
        except StorageUnavailableError:
            # Whoever sent it sees no answer and sends it again; the next round finds what is owed.
            assert self._scene.stage.loses_storage
        await self.wake.settled()

    async def _hear_alertmanager(self) -> None:
        for alert in list(self._scene.alerts):
            await self.accept([alert], 0)
            if alert in self._scene.alerts:
                self._scene.alerts.remove(alert)

    async def _receive_input(self) -> None:
        """Everybody presses what stands in Slack and is theirs to press, until they see it acknowledged."""
        scene = self._scene
        run = await scene.run() if scene.people_are_there else None
        for press in wanted_presses(run, scene) if run else ():
            assert run is not None
            scene.attempts += 1
            await self.receive.press(press.model_copy(update={"press_id": f"p{scene.attempts}"}), run.incident_id)
            scene.pressed.add((press.about, press.user))


async def _at_once(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """A thread ends when it likes; here everything happens in one order."""
    return work(*given, **named)


def _left_to_the_net(seconds: float, call: Callable[[], None]) -> None:
    """Nothing comes back by itself: `Reconcile.once` finds what is due."""


def wanted_presses(run: Run, scene: Scene) -> list[Press]:
    request, question = run.open_request, run.open_question
    presses: list[Press] = []
    if request is not None and (channel := scene.place_of(f"request:{request.request_id}")):
        presses += [
            builders.press(
                channel=channel,
                action="approve",
                about=request.request_id,
                digest=request.digest,
                user=user,
                reason="users wait",
            )
            for user in APPROVERS[: request.policy.needed]
        ]
    if question is not None and (channel := scene.place_of(f"question:{question.question_id}")):
        unknown = f"nobody knows what to answer to: {question.text}"
        answer = scene.answers.get(question.state) or scene.otherwise or unknown
        presses.append(
            builders.press(channel=channel, action="choose", about=question.question_id, value=answer, user=LEAD)
        )
    return [press for press in presses if (press.about, press.user) not in scene.pressed]


@dataclass(frozen=True)
class Ending:
    """Everything about a finished run that a crash must not change."""

    ending: str
    path: tuple[str, ...]
    calls: Mapping[str, int]
    """Call id to how often it won."""
    ledger: tuple[str, ...]
    decisions: Mapping[str, str]
    """Requests and questions to what became of them."""
    cluster: Mapping[str, Any]
    slack: Mapping[str, int]
    """Slot or file to how often it stands in a channel, and how many channels were made."""
    broken_chain: int | None
    left: Mapping[str, object]


async def play(scene: Scene, *, bots: int = 1, at_once: bool = False) -> Ending:
    """Let the bots work, press what there is to press, pass time, until the incident is closed and nothing is left."""
    asyncio.get_running_loop().set_exception_handler(quiet_about_crashes)
    scene.people_are_there = True
    crew = [Bot(scene, f"bot-{number}") for number in range(bots)]
    turns: dict[str, asyncio.Task[None]] = {}
    for step in range(MAX_STEPS):
        if at_once:
            await _take_turns(crew, turns, scene.stage)
        else:
            await crew[step % bots].turn()
        for number, bot in enumerate(crew):
            if bot.life.is_over:
                crew[number] = Bot(scene, f"{bot.life.owner}+")
                await scene.time.advance(RESTART_SECONDS)
        run = await scene.run()
        is_over = run is not None and not run.is_open and not scene.alerts and not scene.stage.is_frozen
        if run is not None and is_over and not await scene.left():
            return await ending_of(scene, run)
        await scene.time.advance(STEP_SECONDS)
        scene.stage.thaw()
    raise AssertionError(f"never came to an end: {await _where(scene)}")


async def _take_turns(crew: Sequence[Bot], turns: dict[str, asyncio.Task[None]], stage: Stage) -> None:
    """Everybody's turn at the same moment. Nobody waits for the end of the turn of a bot that is frozen."""
    for bot in crew:
        if bot.life.owner not in turns:
            turns[bot.life.owner] = asyncio.create_task(bot.turn())
    while running := [turns[bot.life.owner] for bot in crew if bot.life.runs.is_set() and bot.life.owner in turns]:
        froze = asyncio.create_task(stage.froze.wait())
        done, _ = await asyncio.wait([*running, froze], return_when=asyncio.FIRST_COMPLETED)
        froze.cancel()
        for owner in [owner for owner, turn in turns.items() if turn in done]:
            await turns.pop(owner)


async def until(scene: Scene, bot: Bot, reached: Callable[[Run], bool], what: str) -> Run:
    """Let one bot work and time pass until the run is where the test wants it."""
    for _ in range(MAX_STEPS):
        await bot.turn()
        run = await scene.run()
        if run is not None and reached(run):
            return run
        await scene.time.advance(STEP_SECONDS)
    raise AssertionError(f"never {what}: {await _where(scene)}")


async def timeline_text(scene: Scene) -> str:
    """The whole timeline as text."""
    run = await scene.run()
    entries = await scene.eyes.timeline(run.incident_id) if run else ()
    return "\n".join(f"{item.entry.kind}: {item.entry.text}" for item in entries)


async def _where(scene: Scene) -> str:
    run = await scene.run()
    if run is None:
        return "no incident"
    newest = "\n  ".join((await timeline_text(scene)).splitlines()[-12:])
    return f"at {run.visit.machine_state}, left {await scene.left()}; the timeline ends\n  {newest}"


def quiet_about_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


async def ending_of(scene: Scene, run: Run) -> Ending:
    """Without the incident's number, which a crash may skip."""

    def plain(value: Any) -> Any:
        text = json.dumps(value, sort_keys=True)
        return json.loads(text.replace(run.incident_id, "INC").replace(run.incident_id.lower(), "inc"))

    files = Counter(f"file{name}" for name in scene.files())
    return Ending(
        ending=run.ending,
        path=run.findings.path,
        calls=plain(scene.cluster.applied),
        ledger=tuple(plain([entry.call_id for entry in run.ledger])),
        decisions={r.request_id: r.status for r in run.requests.values()}
        | {q.question_id: f"{q.status} {q.answer}" for q in run.questions.values()},
        cluster=plain(scene.cluster.state()),
        slack=dict(Counter(scene.slots()) + files + scene.channels()),
        broken_chain=first_break(await scene.eyes.timeline(run.incident_id)),
        left=await scene.left(),
    )


def differences(wanted: Ending, found: Ending) -> list[str]:
    """What differs, field by field, in few words."""
    found_out = []
    for name in (f.name for f in dataclasses.fields(Ending)):
        one, other = getattr(wanted, name), getattr(found, name)
        if one == other:
            continue
        if isinstance(one, Mapping):
            keys = sorted(k for k in {*one, *other} if one.get(k) != other.get(k))
            found_out += [f"{name}[{k}]: {_short(one.get(k))} became {_short(other.get(k))}" for k in keys]
        else:
            found_out.append(f"{name}: {_short(one)} became {_short(other)}")
    return found_out


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < 300 else f"{text[:300]}…"
