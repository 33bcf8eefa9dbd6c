"""Serves the read-only page of an incident: opened by a signed link, live by server-sent events, whole without script.

The page is the report's own. It shows no buttons: decisions are made in Slack.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import NewerFormError, StorageUnavailableError
from bot.domain.kernel.last_kept import keep_last
from bot.domain.kernel.page_links import PageLinks

LOOK_EVERY_SECONDS = 2.0
CHECKS_PER_KEEPALIVE = 8
"""Proxies close a stream on which nothing is sent."""
VIEWERS = 100
KEPT = 16
"""Pages that are kept rendered: each takes most of a second."""
CLOSED_FOR_SECONDS = 600.0
"""How long a stream stays open after the end: the report may still get a follow-up."""
HEADERS = {
    # The address is the permission: it must not reach another site, a shared cache or a frame.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
NO_PAGE = "This link does not work: it has expired, or it is not complete. The incident's card has a newer one."
SCRIPT = """\
const source = new EventSource(location.pathname + "/events" + location.search);
source.onmessage = async () => {
  const answer = await fetch(location.href);
  if (!answer.ok) return source.close();
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const open = [...document.querySelectorAll("details")].map((each) => each.open);
  document.querySelector("main").replaceWith(page.querySelector("main"));
  document.querySelectorAll("details").forEach((each, number) => (each.open = open[number] ?? each.open));
  document.title = page.title;
};
"""


class IncidentPages:
    def __init__(
        self,
        links: PageLinks,
        load: Callable[[str], Awaitable[Run | None]],
        render: Callable[[Run], Awaitable[str]],
        now: Callable[[], float],
    ) -> None:
        self._links, self._load, self._render, self._now = links, load, render, now
        self._kept: dict[str, tuple[int, asyncio.Future[str]]] = {}
        """The page of each incident's version that was seen last: drawn once for all who ask."""
        self._viewers = 0

    @property
    def routes(self) -> list[Route]:
        if not self._links.base:
            return []
        return [
            Route("/incidents/live.js", self.script),
            Route("/incidents/{incident_id}", self.page),
            Route("/incidents/{incident_id}/events", self.events),
        ]

    async def script(self, _request: Request) -> Response:
        return Response(SCRIPT, media_type="text/javascript; charset=utf-8", headers={"Cache-Control": "max-age=300"})

    async def page(self, request: Request) -> Response:
        run = await self._permitted(request)
        version, drawn = self._kept.get(run.incident_id, (-1, None))
        if drawn is None or version != run.version or _has_failed(drawn):
            drawn = asyncio.ensure_future(self._render(run))
            keep_last(self._kept, run.incident_id, (run.version, drawn), at_most=KEPT)
        # One viewer who leaves does not end it for the others.
        content = await asyncio.shield(drawn)
        return Response(content, media_type="text/html; charset=utf-8", headers=HEADERS)

    async def events(self, request: Request) -> Response:
        run = await self._permitted(request)
        if self._viewers >= VIEWERS:
            raise HTTPException(503, f"{VIEWERS} people watch incidents already; reload the page to see what is new")
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._changes(request, run), media_type="text/event-stream", headers=headers)

    async def _changes(self, request: Request, run: Run) -> AsyncIterator[str]:
        self._viewers += 1
        shown, checks = run.version, 0
        try:
            yield "retry: 5000\n\n"
            while not await request.is_disconnected():
                await asyncio.sleep(LOOK_EVERY_SECONDS)
                checks += 1
                try:
                    newest = await self._load(run.incident_id)
                except (StorageUnavailableError, NewerFormError):
                    return  # the browser comes back
                if newest is None or (newest.closed_at or self._now()) < self._now() - CLOSED_FOR_SECONDS:
                    return
                if newest.version != shown:
                    shown = newest.version
                    yield f"data: {shown}\n\n"
                elif checks % CHECKS_PER_KEEPALIVE == 0:
                    yield ": still here\n\n"
        finally:
            self._viewers -= 1

    async def _permitted(self, request: Request) -> Run:
        """Raise 404 for a link that is not ours, and for an incident that is not stored: a guess learns nothing."""
        incident_id = request.path_params["incident_id"]
        shown = request.query_params
        if not self._links.permits(incident_id, shown.get("until", ""), shown.get("signature", ""), at=self._now()):
            raise HTTPException(404, NO_PAGE)
        try:
            run = await self._load(incident_id)
        except StorageUnavailableError as away:
            raise HTTPException(503, "the bot's storage does not answer; try again in a moment") from away
        except NewerFormError as newer:
            raise HTTPException(503, f"{newer}; try again in a moment") from newer
        if run is None:
            raise HTTPException(404, NO_PAGE)
        return run


def _has_failed(drawn: asyncio.Future[str]) -> bool:
    return drawn.done() and (drawn.cancelled() or drawn.exception() is not None)
