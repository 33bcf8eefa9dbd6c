"""Two complete bots on one Redis, in any order of steps: each call succeeds at most once, and the run ends well.

Who takes the next step is drawn, step by step, and so is when one dies, which answers of Redis are lost, and what
becomes of the calls to the cluster. Redis is real and time is virtual, so that one example takes half a second.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence

import redis.asyncio as aioredis
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fakes.cluster import Trouble
from tests.flow.harness import Ending, differences, play, timeline_text
from tests.flow.scenes import drill_scene
from tests.flow.stage import Side

STEPS = 320
"""About as many as the drill takes with two bots; what is drawn beyond its end does not happen."""
EXAMPLES = 25

runs_of_steps = st.lists(st.integers(1, 25), min_size=1, max_size=40)
"""So many steps by the one, so many by the other, and so on, over and over."""
deaths = st.none() | st.tuples(st.integers(1, STEPS), st.sampled_from(["before", "after"]))
lost_answers = st.frozensets(st.integers(1, STEPS), max_size=4)
troubles = st.lists(st.sampled_from([None, None, "lost_reply", "never_arrived", "429"]), max_size=4)


def alternating(runs: Sequence[int]) -> Callable[[Sequence[str]], int]:
    """The bot whose turn it is, as long as it waits for a step; else whoever came first."""
    turns = itertools.chain.from_iterable(
        itertools.repeat(number % 2, count) for number, count in enumerate(itertools.cycle(runs))
    )

    def whose_turn(owners: Sequence[str]) -> int:
        wanted = f"bot-{next(turns)}"
        return next((place for place, owner in enumerate(owners) if owner.startswith(wanted)), 0)

    return whose_turn


alone: list[Ending] = []
"""How one undisturbed bot ends; the same each time."""


async def ending_alone(client: aioredis.Redis) -> Ending:
    if not alone:
        alone.append(await play(await drill_scene(client, f"alone-{uuid.uuid4().hex}")))
    return alone[0]


@given(runs=runs_of_steps, dies_at=deaths, loses=lost_answers, troubles=troubles)
@example(runs=[6], dies_at=None, loses=frozenset(), troubles=["never_arrived", "never_arrived", "lost_reply"])
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    # A run takes too long to be tried a thousand times: the first example that fails is shown as it was drawn.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_in_any_interleaving_each_call_wins_once(
    client: aioredis.Redis,
    runs: list[int],
    dies_at: tuple[int, Side] | None,
    loses: frozenset[int],
    troubles: list[Trouble | None],
) -> None:
    wanted = await ending_alone(client)
    scene = await drill_scene(client, f"any-{uuid.uuid4().hex}", dies_at)
    scene.stage.loses, scene.stage.whose_turn = loses, alternating(runs)
    scene.cluster.troubles = list(troubles)
    scene.answers = {**scene.answers, "cap": "again", "shrink": "again"}
    with capture_logs():
        ending = await play(scene, bots=2, at_once=True)
    event(f"{len(scene.stage.points) // 50 * 50}+ steps")
    assert set(scene.cluster.applied.values()) == {1}
    text = await timeline_text(scene)
    if "unclear" in text or "got worse" in text:
        # Three checks without an answer: a person was asked and chose "again", so that the path is another one. Where a
        # sample was lost, the load looked different at the call, and people were asked again.
        assert ending.ending == wanted.ending
        assert scene.cluster.flags().count("--max-num-seqs=6") == 1
    else:
        assert differences(wanted, ending) == []
