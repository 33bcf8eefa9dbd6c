"""Effect: uploads the playbook as a picture, with the run's path marked, to its thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.domain.incidents.effect import DrawPath
from bot.domain.incidents.run import Run
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.picture.overview import overview
from bot.domain.playbooks.picture.picture import Picture
from bot.flow.perform_effect import Done, EffectContext
from bot.flow.ports.people import Messenger

Share = Callable[[str, str, bytes, str], Awaitable[None]]
"""Uploads a file to a channel: channel, file name, content, and comment. Raises `MessengerError`."""


class DrawPathHandler:
    def __init__(
        self,
        messenger: Messenger,
        playbook_of: Callable[[Run], Awaitable[CompiledPlaybook]],
        draw: Callable[[Picture], bytes],
    ) -> None:
        self._messenger, self._playbook_of, self._draw = messenger, playbook_of, draw

    async def __call__(self, context: EffectContext, effect: DrawPath) -> Done:
        run = context.run

        async def content() -> bytes:
            drawing = path_picture(run, await self._playbook_of(run))
            # Drawing takes most of a second and must not delay button presses.
            return await asyncio.to_thread(self._draw, drawing)

        where = f"now at: {run.visit.doing or run.visit.state}" if run.is_open else run.ending_in_words
        comment = f"The path of {run.incident_id} through {run.playbook}, {where}"
        await self._messenger.upload(
            run, key=effect.effect_id, name=f"{run.incident_id}-path.png", content=content, comment=comment
        )
        return Done()


class DrawForChannel:
    """Posts a playbook's picture in the channel where it was requested. Raises `MessengerError`."""

    def __init__(self, share: Share, draw: Callable[[Picture], bytes]) -> None:
        self._share, self._draw = share, draw

    async def __call__(self, compiled: CompiledPlaybook, channel: str, comment: str) -> None:
        content = await asyncio.to_thread(self._draw, overview(compiled))
        await self._share(channel, f"{compiled.name}.png", content, comment)


def path_picture(run: Run, compiled: CompiledPlaybook) -> Picture:
    return overview(compiled, path=run.findings.path, current=run.visit.state if run.is_open else "")
