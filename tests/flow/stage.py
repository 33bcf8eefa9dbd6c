"""The bot's contacts with the outside: each step runs alone, in a fixed order, and is numbered if it changes something.

At a chosen step the bot dies, before the step happened or after it happened and before its answer was seen; or only
the answer is lost. Where several wait, the first to come goes on, unless a test says who.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

import aiohttp
import redis.asyncio as aioredis

from bot.adapters.kubernetes.writer import NOT_SENT_RETRY_SECONDS
from bot.adapters.redis.connection import Connection
from bot.adapters.slack.client import SlackCircuits, SlackClient
from bot.domain.approvals.grant import Approved, Authority, Policy
from bot.domain.changes.plan import Call
from bot.domain.cluster.snapshot import ClusterSnapshot
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.errors import BotError, ClusterError, StorageUnavailableError
from bot.domain.kernel.target import Target
from bot.flow.ports.cluster import EarlierAttempt, Generated, Replica, Sent
from bot.flow.ports.people import PageCall
from bot.sandbox.slack.api_routes import EVERY_METHOD
from bot.sandbox.slack.arguments import Arguments
from bot.sandbox.slack.errors import ApiError
from bot.sandbox.slack.team import Team
from tests.fakes.cluster import MemoryCluster
from tests.fakes.engines import MemoryEngines
from tests.fakes.incident_service import KnownPeople

T = TypeVar("T")
Side = Literal["before", "after"]
LEFT_FOR_OTHERS = 2
"""Turns of the event loop in which every other task comes to the point where it waits for its own step."""
READS = frozenset(
    {
        "now",
        "get",
        "hexists",
        "hget",
        "hgetall",
        "hmget",
        "hvals",
        "keep_time",
        "llen",
        "look",
        "whole_timeline",
        "lrange",
        "mget",
        "owed_now",
        "pending",
        "zrangebyscore",
        "zrevrange",
    }
)
"""Looking whether the clock went back changes nothing here: it never does."""


class Crash(BaseException):
    """The process is gone. No handler of the bot catches this."""


@dataclass
class Life:
    """One process of the bot; what it still tries after its end fails at once."""

    owner: str
    is_over: bool = False
    runs: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while the process is frozen."""
    thaws_at: float = 0.0

    def __post_init__(self) -> None:
        self.runs.set()


Dependency = Literal["redis", "slack", "cluster"]
NO_ANSWER: dict[Dependency, Callable[[str], BotError | aiohttp.ClientError]] = {
    "redis": StorageUnavailableError,
    "slack": aiohttp.ClientConnectionError,
    "cluster": ClusterError,
}
"""What the bot meets when it cannot connect."""


@dataclass(frozen=True)
class Outage:
    """From this step on, these dependencies cannot be reached for a while: nothing that is sent arrives."""

    step: int
    of: frozenset[Dependency]
    seconds: float


@dataclass
class Stage:
    """Takes the steps of all bots one after the other, so that a run with the same beginning is the same run."""

    dies_at: tuple[int, Side] | None = None
    outage: Outage | None = None
    freezes_at: int | None = None
    """Right before this step its process is frozen, as by SIGSTOP, and goes on `frozen_seconds` later."""
    frozen_seconds: float = 0.0
    froze: asyncio.Event = field(default_factory=asyncio.Event)
    loses: Collection[int] = ()
    """The steps, by number, that happen and whose answer from Redis nobody sees."""
    points: list[str] = field(default_factory=list)
    whose_turn: Callable[[Sequence[str]], int] = lambda owners: 0
    """Which of the waiting bots, given by their owners in the order of their coming, takes the next step."""
    now: Callable[[], float] = lambda: 0.0
    _away_until: float = float("-inf")
    _is_taken: bool = False
    _waiting: list[tuple[Life, asyncio.Future[None]]] = field(default_factory=list)
    _frozen: Life | None = None

    @contextlib.asynccontextmanager
    async def _turn(self, life: Life) -> AsyncIterator[None]:
        if self._is_taken:
            called = asyncio.get_running_loop().create_future()
            self._waiting.append((life, called))
            try:
                await called
            except asyncio.CancelledError:
                if not called.cancelled():
                    self._pass_on()  # it was called in the moment in which it was cancelled
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        self._waiting = [(life, called) for life, called in self._waiting if not called.cancelled()]
        self._is_taken = bool(self._waiting)
        if self._waiting:
            _, called = self._waiting.pop(self.whose_turn([life.owner for life, _ in self._waiting]))
            called.set_result(None)

    async def step(self, life: Life, what: str, work: Callable[[], Awaitable[T]], *, counts: bool) -> T:
        while True:
            await life.runs.wait()
            async with self._turn(life):
                # It may have been frozen while it waited for its turn.
                if life.runs.is_set() and not (counts and self._freezes(life)):
                    return await self._step(life, what, work, counts=counts)

    async def _step(self, life: Life, what: str, work: Callable[[], Awaitable[T]], *, counts: bool) -> T:
        self._live(life, None)
        if counts:
            self.points.append(what)
            if self.outage is not None and len(self.points) == self.outage.step:
                self._away_until = self.now() + self.outage.seconds
            self._live(life, "before")
        self._reach(what)
        result = await work()
        for _ in range(LEFT_FOR_OTHERS):
            await asyncio.sleep(0)
        if counts:
            self._live(life, "after")
            if len(self.points) in self.loses and what.startswith("redis"):
                raise StorageUnavailableError(f"the answer to '{what}' was lost")
        return result

    def _freezes(self, life: Life) -> bool:
        """Whether this process is frozen right now, before the step that would come next."""
        if self.freezes_at != len(self.points) + 1:
            return False
        self.freezes_at, self._frozen = None, life
        life.runs.clear()
        life.thaws_at = self.now() + self.frozen_seconds
        self.froze.set()
        return True

    @property
    def is_frozen(self) -> bool:
        """Whether one of the processes is."""
        return self._frozen is not None

    @property
    def will_freeze(self) -> bool:
        """Whether the step before which a process is frozen has not come yet."""
        return self.freezes_at is not None

    def thaw(self) -> None:
        """The frozen process goes on if its time has come."""
        if self._frozen is not None and self.now() >= self._frozen.thaws_at:
            self._frozen.runs.set()
            self._frozen = None
            self.froze.clear()

    @property
    def loses_storage(self) -> bool:
        """Whether a bot may get no answer from Redis."""
        return bool(self.loses) or (self.outage is not None and "redis" in self.outage.of)

    def _reach(self, what: str) -> None:
        """Raise what the bot meets while the outage lasts."""
        if self.outage is None or self.now() >= self._away_until:
            return
        for dependency in self.outage.of:
            if what.startswith(dependency):
                raise NO_ANSWER[dependency](f"cannot connect for '{what}'")

    def _live(self, life: Life, side: Side | None) -> None:
        """Raise `Crash` when this life is over, or ends here."""
        life.is_over = life.is_over or (side is not None and self.dies_at == (len(self.points), side))
        if life.is_over:
            raise Crash


# --- Redis ------------------------------------------------------------------------------------------------------------


class StagedConnection(Connection):
    """A real connection whose scripts and commands are steps."""

    def __init__(self, client: aioredis.Redis, stage: Stage, life: Life, *, tag: str, clock: str) -> None:
        super().__init__(cast(aioredis.Redis, _NamedCommands(client)), tag=tag, clock=clock)
        self._stage, self._life = stage, life

    async def script(self, name: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        what = f"redis {name} {keys[0].partition(':')[2]}" if keys else f"redis {name}"
        run = super().script
        # A lease is renewed in real time, so on a busy machine a run has more of these.
        counts = name not in READS and name != "renew"
        return await self._stage.step(self._life, what, lambda: run(name, keys, args), counts=counts)

    async def ask(self, command: Any) -> Any:
        run, counts = super().ask, command.name not in READS
        return await self._stage.step(self._life, f"redis {command}", lambda: run(command), counts=counts)


@dataclass
class _Command:
    """A command that is sent when it is awaited."""

    name: str
    about: str
    send: Callable[[], Awaitable[Any]]

    def __await__(self) -> Generator[Any, None, Any]:
        return self.send().__await__()

    def __str__(self) -> str:
        return f"{self.name} {self.about}"


class _NamedCommands:
    def __init__(self, client: Any) -> None:
        self._client = client
        self.connection_pool = client.connection_pool
        """Scripts are sent on its connections."""

    def pipeline(self, *, transaction: bool) -> _NamedPipeline:
        return _NamedPipeline(self._client.pipeline(transaction=transaction))

    def __getattr__(self, name: str) -> Callable[..., _Command]:
        def command(*args: Any, **options: Any) -> _Command:
            about = str(args[0]).partition(":")[2]
            return _Command(name, about, lambda: getattr(self._client, name)(*args, **options))

        return command


class _NamedPipeline:
    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._names: list[str] = []

    def execute(self) -> _Command:
        return _Command("pipeline", "+".join(self._names), self._pipeline.execute)

    def __getattr__(self, name: str) -> Callable[..., None]:
        def command(*args: Any, **options: Any) -> None:
            self._names.append(name)
            getattr(self._pipeline, name)(*args, **options)

        return command


# --- Slack ------------------------------------------------------------------------------------------------------------


class StagedSlack(SlackClient):
    """The SDK's client over the stand-in in this process: each call is one step and one function call."""

    def __init__(self, team: Team, stage: Stage, life: Life) -> None:
        session = cast(Any, _StagedSession(team, stage, life))
        circuits = SlackCircuits(elapsed=team.clock, now=team.clock)
        super().__init__(circuits, insists=False, token=team.settings.token, session=session, retry_handlers=[])
        self._team, self._stage, self._life = team, stage, life

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        method = api_url.rpartition("/")[2]
        values: dict[str, Any] = {}
        for part in ("params", "data", "json"):
            values |= req_args.get(part) or {}

        async def answer() -> dict[str, Any]:
            try:
                self._refuse(method)
                answer = EVERY_METHOD[method](self._team, Arguments(values))
            except ApiError as refused:
                answer = refused.answer()
            return {"data": answer, "headers": {}, "status_code": 200}

        return await self._stage.step(self._life, f"slack {method}", answer, counts=True)

    def _refuse(self, method: str) -> None:
        """Raise the error that the stand-in was set to answer; here it has no other faults."""
        fault = self._team.faults.next_for(method, self._team.clock())
        if fault is not None:
            assert fault.kind.startswith("error:"), fault
            raise ApiError(fault.kind.removeprefix("error:"))


@dataclass(frozen=True)
class _Response:
    status: int


class _StagedSession:
    """What the messenger posts to addresses that are no methods: the bytes of a file."""

    def __init__(self, team: Team, stage: Stage, life: Life) -> None:
        self._team, self._stage, self._life = team, stage, life

    def post(self, url: str, *, data: bytes) -> _Posting:
        async def receive() -> _Response:
            stored = self._team.files.receive(url.rpartition("/")[2], data)
            return _Response(200 if stored else 400)

        return _Posting(lambda: self._stage.step(self._life, "slack upload", receive, counts=True))


class _Posting:
    def __init__(self, send: Callable[[], Awaitable[_Response]]) -> None:
        self._send = send

    async def __aenter__(self) -> _Response:
        return await self._send()

    async def __aexit__(self, *error: object) -> None: ...


# --- cluster and people -----------------------------------------------------------------------------------------------


class StagedCluster:
    """`Cluster` and `ClusterWriter`; reads are steps too, but change nothing and are not counted."""

    def __init__(self, cluster: MemoryCluster, stage: Stage, life: Life) -> None:
        self._cluster, self._stage, self._life = cluster, stage, life

    async def resolve(self, alert: Alert) -> Target | None:
        return await self._read("resolve", lambda: self._cluster.resolve(alert))

    async def snapshot(self, target: Target, *, incident_id: str) -> ClusterSnapshot:
        return await self._read("snapshot", lambda: self._cluster.snapshot(target, incident_id=incident_id))

    async def lacking(self, calls: Sequence[Call]) -> str:
        return ""

    async def dry_run(self, call: Call) -> str:
        return await self._read("rehearse", lambda: self._cluster.dry_run(call))

    async def look(self, call: Call, *, call_id: str) -> EarlierAttempt:
        try:
            return await self._read("look", lambda: self._cluster.look(call, call_id=call_id))
        except ClusterError:
            return "unclear"

    async def send(self, approved: Approved, call: Call, *, call_id: str) -> Sent:
        what = f"cluster {call.method} {call.target} ({call_id})"
        try:
            return await self._stage.step(
                self._life, what, lambda: self._cluster.send(approved, call, call_id=call_id), counts=True
            )
        except ClusterError as error:
            return Sent("failed", str(error), retry_after_seconds=NOT_SENT_RETRY_SECONDS)

    async def _read(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        return await self._stage.step(self._life, f"cluster {what}", work, counts=False)


class StagedEngines:
    """`Generations`: that the request goes out is a step, and its end is not waited for on the stage."""

    def __init__(self, engines: MemoryEngines, stage: Stage, life: Life) -> None:
        self._engines, self._stage, self._life = engines, stage, life

    async def generate(self, approved: Approved, call: Call, replica: Replica) -> Generated:
        async def begin() -> None:
            self._engines.begin(approved, call, replica)

        await self._stage.step(self._life, f"engine generate on {replica.name}", begin, counts=True)
        return await self._engines.end()


class StagedPager:
    """A pager whose answers may be lost with the process; it keeps what it was sent."""

    def __init__(self, sent: list[PageCall], stage: Stage, life: Life) -> None:
        self._sent, self._stage, self._life = sent, stage, life

    async def send(self, team: str, call: PageCall) -> str:
        return await self._stage.step(self._life, f"page {team} {call.action}", lambda: self._take(call), counts=True)

    async def _take(self, call: PageCall) -> str:
        self._sent.append(call)
        return "PagerDuty"


class StagedPeople:
    def __init__(self, people: KnownPeople, stage: Stage, life: Life) -> None:
        self._people, self._stage, self._life = people, stage, life

    async def authority(self, user: str, policy: Policy, *, at: float) -> Authority:
        return await self._stage.step(
            self._life, f"people {user}", lambda: self._people.authority(user, policy, at=at), counts=True
        )

    async def may_operate(self, user: str, *, at: float) -> Authority:
        return await self._stage.step(
            self._life, f"people {user}", lambda: self._people.may_operate(user, at=at), counts=True
        )
