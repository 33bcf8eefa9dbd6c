"""Effect: the playbook as a picture, with the way that the run took, as a file in its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.domain.effect import DrawWay
from bot.domain.playbook.compiled import CompiledPlaybook
from bot.domain.playbook.picture import Picture, picture
from bot.domain.run import Run
from bot.flow.perform_effect import Done, Job
from bot.flow.ports import Messenger


class DrawWayForRun:
    def __init__(
        self,
        messenger: Messenger,
        playbook_of: Callable[[Run], Awaitable[CompiledPlaybook]],
        draw: Callable[[Picture], bytes],
    ) -> None:
        self._messenger, self._playbook_of, self._draw = messenger, playbook_of, draw

    async def __call__(self, job: Job, effect: DrawWay) -> Done:
        run = job.run
        drawing = way_picture(run, await self._playbook_of(run))
        # Drawing takes most of a second, in which nobody else's press may wait.
        content = await asyncio.to_thread(self._draw, drawing)
        where = f"now in {run.state}" if run.is_open else f"closed as {run.ending}"
        comment = f"The way of {run.incident_id} through {run.playbook}, {where}"
        await self._messenger.upload(
            run, key=effect.effect_id, name=f"{run.incident_id}-way.png", content=content, comment=comment
        )
        return Done()


def way_picture(run: Run, compiled: CompiledPlaybook) -> Picture:
    """What was written in a piece is drawn as one row."""
    return picture(
        compiled.playbook, way=run.way, current=run.state if run.is_open else "", folded=rows_of_pieces(compiled)
    )


def rows_of_pieces(compiled: CompiledPlaybook) -> dict[str, str]:
    """State to the state that stands for its piece: what was written in a piece carries that file's name."""
    written = {
        (piece.file, at.line): str(where[1])
        for piece in compiled.pieces
        for where, at in piece.keys.items()
        if len(where) == 2 and where[0] == "states"
    }
    states = {
        str(where[1]): written.get((at.file, at.line), "")
        for where, at in compiled.source.keys.items()
        if len(where) == 2 and where[0] == "states"
    }
    return {state: state.removesuffix(f"_{own}") for state, own in states.items() if own}
