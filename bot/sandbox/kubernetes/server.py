"""The HTTP layer: from a request to the registry and back, one handler per verb.

Order of every request: fault on demand, token, permission, then the verb. Each refusal is a `Status` body.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from bot.sandbox.kubernetes import discovery, errors, eviction, logs, pod_access, scale, watching
from bot.sandbox.kubernetes.access import Access, Attributes, is_kubelet
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.faults import Fault, Faults, Journal, delay
from bot.sandbox.kubernetes.patches import json_patch, merge_patch, strategic_merge_patch
from bot.sandbox.kubernetes.registry import DeleteOptions, Options, Part, Registry
from bot.sandbox.kubernetes.requests import Target, is_true, parse_target
from bot.sandbox.kubernetes.resources import ACCESS_REVIEWS, NAMESPACES, PODS, SERVICES, Resource
from bot.sandbox.kubernetes.selectors import Predicate, everything, field_selector, label_selector
from bot.sandbox.kubernetes.store import Store, name_of

Obj = dict[str, Any]

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
WATCH_SECONDS = 1800.0
_APPLY_TYPE = "application/apply-patch+yaml"
_PATCH_TYPES: dict[str, Callable[[Obj, Any], Any]] = {
    "application/json-patch+json": json_patch,
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
}


@dataclass
class ApiServer:
    """The parts of one server."""

    registry: Registry
    access: Access = field(default_factory=Access)
    faults: Faults = field(default_factory=Faults)
    journal: Journal = field(default_factory=Journal)
    absent: frozenset[str] = frozenset()
    """API groups whose CustomResourceDefinitions are not installed."""
    streams: watching.Streams = field(init=False)

    def __post_init__(self) -> None:
        self.streams = watching.Streams(self.registry.store)

    @property
    def store(self) -> Store:
        return self.registry.store

    def routes(self) -> list[BaseRoute]:
        """The API takes every remaining path, so these come last."""
        return [
            Route("/healthz", _ok),
            Route("/livez", _ok),
            Route("/readyz", _ok),
            Route("/{path:path}", _Endpoint(self), methods=METHODS),
            WebSocketRoute("/{path:path}", pod_access.ExecEndpoint(self)),
        ]

    async def answer(self, request: Request) -> Response:
        """Never raises because of a client's request."""
        options = Options()
        try:
            response = await self._dispatch(request, options)
        except ApiError as error:
            response = _json(error.body, error.code, error.headers)
        for warning in dict.fromkeys(options.warnings):
            response.headers.append("Warning", f"299 - {json.dumps(warning)}")
        return response

    async def _dispatch(self, request: Request, options: Options) -> Response:
        agent = request.headers.get("user-agent", "")
        self.access.expect_known(request.headers.get("authorization", ""), agent)
        if request.method == "GET" and (document := discovery.answer(request.url.path, self.absent)) is not None:
            return _json(document)
        target = parse_target(request.url.path)
        if target.resource.group in self.absent:
            raise errors.no_such_path()
        attributes = target.attributes(request.method, request.query_params)
        self.access.expect_allowed(attributes, target.resource, agent)
        if request.method in ("GET", "HEAD"):
            return await self._read(request, target, attributes)
        body = await _body(request)
        _read_options(request, body, options)
        code, obj = self._write(request, target, body, options)
        # A review is a query; it changes nothing.
        if not is_kubelet(agent) and target.resource is not ACCESS_REVIEWS:
            self.journal.note(
                verb=attributes.verb,
                path=request.url.path,
                body=body,
                is_dry_run=options.is_dry_run,
                agent=agent,
            )
        return _json(obj, code)

    # --- reads

    async def _read(self, request: Request, target: Target, attributes: Attributes) -> Response:
        if attributes.verb not in target.resource.verbs:
            raise errors.method_not_allowed(attributes.verb, target.resource)
        if attributes.verb == "watch":
            return self._watch(request, target)
        if attributes.verb == "list":
            return self._list(request, target)
        if target.subresource == "proxy":
            return await pod_access.page(self.store, target, request.query_params)
        obj = self.store.get(target.resource, target.namespace, target.name)
        if target.subresource == "exec":
            raise errors.bad_request("Upgrade request required")
        if target.subresource == "log":
            url = logs.address(self.store, obj, request.query_params)
            return Response(status_code=204) if url is None else await logs.fetch(url, request.query_params)
        if target.subresource == "scale":
            return _json(scale.of(obj))
        if target.subresource == "eviction":
            raise errors.method_not_allowed("get", target.resource)
        return _json(obj)

    def _list(self, request: Request, target: Target) -> Response:
        selects = _selection(request, target.resource)
        found = [one for one in self.store.list(target.resource, target.namespace or None) if selects(one)]
        items = [{key: obj[key] for key in obj if key not in ("kind", "apiVersion")} for obj in found]
        return _json(
            {
                "kind": f"{target.resource.kind}List",
                "apiVersion": target.resource.api_version,
                "metadata": {"resourceVersion": str(self.store.version)},
                "items": items,
            }
        )

    def _watch(self, request: Request, target: Target) -> Response:
        query = request.query_params
        version = query.get("resourceVersion") or "0"
        if not version.isdigit():
            raise errors.bad_request(f'invalid resource version: "{version}"')
        watch = watching.Watch(
            resource=target.resource,
            namespace=target.namespace,
            selects=_selection(request, target.resource),
            version=int(version),
            wants_bookmarks=is_true(query.get("allowWatchBookmarks")),
            timeout_seconds=float(query.get("timeoutSeconds") or WATCH_SECONDS),
        )
        return StreamingResponse(self.streams.stream(watch), media_type="application/json")

    # --- writes

    def _write(self, request: Request, target: Target, body: Any, options: Options) -> tuple[int, Obj]:
        resource = target.resource
        is_editable = "update" in resource.verbs and target.name and target.subresource in ("", "status", "scale")
        match request.method:
            case "POST" if resource is ACCESS_REVIEWS:
                return 201, self._review(body)
            case "POST" if target.subresource == "eviction":
                return 201, self._evict(target, body, options)
            case "POST" if not target.name and (target.namespace or not resource.is_namespaced):
                return 201, self.registry.create(resource, target.namespace, body, options)
            case "PUT" if is_editable:
                return 200, self._replace(target, body, options)
            case "PATCH" if is_editable:
                return self._patch(request, target, body, options)
            case "DELETE" if is_editable and not target.subresource:
                return 200, self._delete(request, target, body, options)
            case _:
                raise errors.method_not_allowed(request.method.lower(), resource)

    def _replace(self, target: Target, body: Any, options: Options) -> Obj:
        if not isinstance(body, dict):
            raise errors.bad_request("the request body is no object")
        current = self.store.get(target.resource, target.namespace, target.name)
        if target.subresource == "scale":
            return scale.replaced(self.registry, target.resource, current, body, options)
        if body.setdefault("metadata", {}).get("name") != target.name:
            raise errors.bad_request(
                f"the name of the object ({body['metadata'].get('name', '')}) does not match the name on the URL "
                f"({target.name})"
            )
        if target.namespace:
            body["metadata"].setdefault("namespace", target.namespace)
        return self.registry.replace(target.resource, body, _part(target), options)

    def _patch(self, request: Request, target: Target, body: Any, options: Options) -> tuple[int, Obj]:
        content_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if content_type == _APPLY_TYPE and not target.subresource:
            return self._apply(target, body, options)
        apply = _PATCH_TYPES.get(content_type)
        if apply is None:
            raise errors.unknown_patch_type()
        current = self.store.get(target.resource, target.namespace, target.name)

        def patch(document: Obj) -> Obj:
            return cast(Obj, apply(document, body))

        if target.subresource == "scale":
            return 200, scale.patched(self.registry, target.resource, current, patch, options)
        return 200, self.registry.patch(target.resource, current, patch, _part(target), options)

    def _apply(self, target: Target, body: Any, options: Options) -> tuple[int, Obj]:
        if not isinstance(body, dict) or body.get("metadata", {}).get("name", target.name) != target.name:
            raise errors.bad_request("the name of the object does not match the name on the URL")
        body.setdefault("metadata", {})["name"] = target.name
        is_new, obj = self.registry.apply(target.resource, target.namespace, body, options)
        return (201 if is_new else 200), obj

    def _delete(self, request: Request, target: Target, body: Any, options: Options) -> Obj:
        current = self.store.get(target.resource, target.namespace, target.name)
        wanted = _delete_options(request, body, options)
        left = self.registry.delete(target.resource, current, wanted)
        # Pods, services and objects that linger are returned themselves, the rest as a Status.
        if target.resource in (PODS, SERVICES, NAMESPACES) or "deletionTimestamp" in left["metadata"]:
            return left
        details = {"name": name_of(left), "kind": target.resource.plural, "uid": left["metadata"]["uid"]}
        if target.resource.group:
            details["group"] = target.resource.group
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _evict(self, target: Target, body: Any, options: Options) -> Obj:
        if not isinstance(body, dict) or body.get("metadata", {}).get("name") != target.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        pod = self.store.get(PODS, target.namespace, target.name)
        wanted = _delete_options(None, body.get("deleteOptions"), options)
        # An eviction may request it in its body; the journal must not count it as a change.
        options.is_dry_run = wanted.is_dry_run
        return eviction.evict(self.registry, pod, wanted)

    def _review(self, body: Any) -> Obj:
        spec = body.get("spec", {}) if isinstance(body, dict) else {}
        asked = spec.get("resourceAttributes") or {}
        attributes = Attributes(
            verb=asked.get("verb", ""),
            group=asked.get("group", ""),
            resource=asked.get("resource", ""),
            subresource=asked.get("subresource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
        )
        allowed = self.access.is_allowed(attributes)
        return {
            "kind": ACCESS_REVIEWS.kind,
            "apiVersion": ACCESS_REVIEWS.api_version,
            "metadata": {},
            "spec": spec,
            "status": {"allowed": allowed, **({} if allowed else {"reason": "denied by the sandbox"})},
        }


class _Endpoint:
    """The ASGI application of the API; it can break a connection, which a plain handler cannot."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        fault = await self._fault(request)
        if fault is not None and fault.kind in ("delay", "late"):
            # A real API server has the request by then, and carries it out even if the client has gone.
            await request.body()
        if fault is not None and fault.kind == "delay":
            await delay(fault)
        if fault is not None and fault.kind == "drop":
            await _break_connection(scope, receive)
            return
        if fault is not None and fault.kind in ("500", "403"):
            error = errors.internal("on demand of a test")
            if fault.kind == "403":
                error = errors.forbidden(parse_target(request.url.path).resource, "", "on demand of a test")
            await _json(error.body, error.code)(scope, receive, send)
            return
        holding = self._server.faults.held(fault) if fault and fault.kind == "late" else contextlib.nullcontext()
        async with holding:
            response = await self._server.answer(request)
        if fault is not None and fault.kind == "lost_reply":
            await _break_connection(scope, receive)
            return
        await response(scope, receive, send)

    async def _fault(self, request: Request) -> Fault | None:
        if is_kubelet(request.headers.get("user-agent", "")):
            return None
        try:
            attributes = parse_target(request.url.path).attributes(request.method, request.query_params)
        except ApiError:
            return None
        await self._server.faults.finish_held(request.method, attributes)
        return self._server.faults.take(request.method, attributes)


async def _break_connection(scope: Scope, receive: Receive) -> None:
    """Cuts the TCP connection without an answer. The protocol class puts its transport into the scope's state."""
    transport = cast(asyncio.Transport, scope["state"]["transport"])
    transport.abort()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ok(_: Request) -> Response:
    return PlainTextResponse("ok")


def application(routes: list[BaseRoute]) -> Starlette:
    return Starlette(routes=routes)


def _json(obj: Obj, code: int = 200, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps(obj, separators=(",", ":"))
    return Response(text, code, headers, media_type="application/json")


async def _body(request: Request) -> Any:
    raw = await request.body()
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError as error:
        raise errors.bad_request(f"error decoding the request body: {error}") from None


def _read_options(request: Request, body: Any, options: Options) -> None:
    dry_run = request.query_params.getlist("dryRun")
    if not dry_run and isinstance(body, dict) and body.get("kind") in (None, "DeleteOptions"):
        dry_run = body.get("dryRun") or []
    if dry_run not in ([], ["All"]):
        raise errors.bad_request(f'invalid dryRun value {dry_run}: supported values: "All"')
    options.is_dry_run = bool(dry_run)
    # Without a name, the program is the manager: the part of its user agent before the version.
    agent = request.headers.get("user-agent", "").partition("/")[0]
    is_apply = request.headers.get("content-type", "").startswith(_APPLY_TYPE)
    options.manager = request.query_params.get("fieldManager") or ("" if is_apply else agent)
    options.is_forced = is_true(request.query_params.get("force"))
    wanted = request.query_params.get("fieldValidation") or "Warn"
    match wanted:
        case "Ignore" | "Warn" | "Strict":
            options.field_validation = wanted
        case _:
            raise errors.bad_request(
                f'fieldValidation: Unsupported value: "{wanted}": supported values: "", "Ignore", "Strict", "Warn"'
            )


def _delete_options(request: Request | None, body: Any, options: Options) -> DeleteOptions:
    given = body if isinstance(body, dict) else {}
    query = request.query_params if request is not None else {}
    grace = query.get("gracePeriodSeconds", given.get("gracePeriodSeconds"))
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace_seconds=int(grace) if grace is not None else None,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=query.get("propagationPolicy") or given.get("propagationPolicy") or "Background",
        is_dry_run=options.is_dry_run or given.get("dryRun") == ["All"],
    )


def _selection(request: Request, resource: Resource) -> Predicate:
    by_label = request.query_params.get("labelSelector")
    by_field = request.query_params.get("fieldSelector")
    labels = label_selector(by_label) if by_label else everything
    fields = field_selector(resource, by_field) if by_field else everything
    return lambda obj: labels(obj) and fields(obj)


def _part(target: Target) -> Part:
    return "status" if target.subresource == "status" else "whole"
