"""`/__sandbox__/…`: the routes for tests, beside the API and never part of it."""

import dataclasses
import json
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.sandbox.kubernetes.controllers.loop import ControllerLoop
from bot.sandbox.kubernetes.faults import FAULTS
from bot.sandbox.kubernetes.server import ApiServer


def routes(server: ApiServer, controllers: ControllerLoop) -> list[Route]:
    async def faults(request: Request) -> Response:
        if request.method == "POST":
            try:
                server.faults.add(FAULTS.validate_json(await request.body()))
            except ValidationError as error:
                return Response(error.json(include_url=False), 400, media_type="application/json")
        elif request.method == "DELETE":
            server.faults.clear()
        return JSONResponse(server.faults.waiting())

    async def mutations(request: Request) -> Response:
        if request.method == "DELETE":
            server.journal.clear()
        return JSONResponse(server.journal.as_json())

    async def pauses(request: Request) -> Response:
        if request.method == "PUT":
            wanted: Any = json.loads(await request.body())
            unknown = set(wanted) - set(controllers.names)
            if unknown:
                return JSONResponse({"unknown": sorted(unknown), "known": controllers.names}, 400)
            controllers.pause(wanted)
        return JSONResponse(sorted(controllers.paused))

    async def compact(_: Request) -> Response:
        server.store.forget()
        return JSONResponse({"resourceVersion": str(server.store.version)})

    async def end_watches(_: Request) -> Response:
        server.streams.end_all()
        return JSONResponse({})

    return [
        Route("/__sandbox__/faults", faults, methods=["GET", "POST", "DELETE"]),
        Route("/__sandbox__/mutations", mutations, methods=["GET", "DELETE"]),
        Route("/__sandbox__/paused-controllers", pauses, methods=["GET", "PUT"]),
        _token_route(server),
        Route("/__sandbox__/end-watches", end_watches, methods=["POST"]),
        Route("/__sandbox__/compact", compact, methods=["POST"]),
    ]


def _token_route(server: ApiServer) -> Route:
    async def token(request: Request) -> Response:
        """Expects another bearer token from now on, as if the old one had expired."""
        server.access = dataclasses.replace(server.access, token=(await request.body()).decode())
        return JSONResponse({})

    return Route("/__sandbox__/token", token, methods=["PUT"])
