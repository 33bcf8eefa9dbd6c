"""Effect: bring a team's page to what its incident wants. It is sent again until the pager has answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from bot.domain.incidents.effect import PageTeam
from bot.domain.incidents.event import CARD, Event, Paged, PageFailed
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import PagerError
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.people import PageCall, Pager

MAX_BACKOFF_SECONDS = 60.0
Links = Callable[[str], Awaitable[Mapping[str, str]]]


class PageHandler:
    def __init__(self, pager: Pager, links: Links, *, deployment: str) -> None:
        """`links` returns the addresses of an incident's messages by slot; `deployment` distinguishes two bots."""
        self._pager, self._links, self._deployment = pager, links, deployment

    async def __call__(self, context: EffectContext, effect: PageTeam) -> Done | Later:
        run, page = context.run, context.run.pages.get(effect.page)
        if page is None or page.sent == page.wanted:
            return Done()
        call = PageCall(
            key=f"{self._deployment}:{run.incident_id}:{page.name}",
            team=page.team,
            action=page.wanted,
            at=context.now,
            text=page.text,
            incident=run.incident_id,
            title=run.called,
            target=str(run.target),
            link=_where_people_answer(run, await self._links(run.incident_id)),
        )
        name = f"{page.name}/{page.wanted}/{run.version}"
        try:
            through = await self._pager.send(page.team, call)
        except PagerError as error:
            failed = PageFailed(event_id=f"unpaged/{name}", page=page.name, reason=error.reason, lasting=error.lasting)
            if error.lasting:
                return Done((failed,))
            wait = max(error.retry_after_seconds, min(2.0 ** min(context.owed.attempts, 10), MAX_BACKOFF_SECONDS))
            events: tuple[Event, ...] = () if page.error == error.reason else (failed,)
            return Later(wait, events=events, failed=True)
        paged = Paged(event_id=f"paged/{name}", page=page.name, action=page.wanted, through=through, key=call.key)
        return Done((paged,))


def _where_people_answer(run: Run, links: Mapping[str, str]) -> str:
    """Returns the address of the open question or request, else of the card; empty while nothing is posted."""
    question, request = run.open_question, run.open_request
    slots = [waiting.slot for waiting in (question, request) if waiting is not None]
    return next((links[slot] for slot in (*slots, CARD) if slot in links), "")
