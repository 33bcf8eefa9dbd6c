"""Errors in the wording of a real API server: an exception that carries the `Status` body to send.

Every message and reason here is the text of kube-apiserver, because clients read them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.sandbox.kubernetes.resources import Resource

ACCEPTED_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


@dataclass(frozen=True)
class Cause:
    """One entry of `status.details.causes`."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def as_json(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}

    @classmethod
    def invalid(cls, field: str, value: object, problem: str) -> "Cause":
        shown = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), sort_keys=True)
        quoted = json.dumps(shown) if isinstance(value, str) else shown
        return cls(field, f"Invalid value: {quoted}: {problem}")

    @classmethod
    def required(cls, field: str, problem: str = "") -> "Cause":
        return cls(field, f"Required value: {problem}" if problem else "Required value", "FieldValueRequired")

    @classmethod
    def forbidden(cls, field: str, problem: str) -> "Cause":
        return cls(field, f"Forbidden: {problem}", "FieldValueForbidden")

    @classmethod
    def unsupported(cls, field: str, value: object, allowed: Sequence[str]) -> "Cause":
        listed = ", ".join(json.dumps(one) for one in allowed)
        return cls(
            field,
            f"Unsupported value: {json.dumps(value)}: supported values: {listed}",
            "FieldValueNotSupported",
        )

    @classmethod
    def duplicate(cls, field: str, value: object) -> "Cause":
        return cls(field, f"Duplicate value: {json.dumps(value)}", "FieldValueDuplicate")


class ApiError(Exception):
    """The request is refused; `body` is the `Status` object, `headers` go with it."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.headers = dict(headers or {})
        self.body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
        }
        if reason:
            self.body["reason"] = reason
        if details is not None:
            self.body["details"] = dict(details)
        self.body["code"] = code


def _named(resource: Resource, name: str) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _named(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed(verb: str, resource: Resource) -> ApiError:
    message = f"{verb} is not supported on resources of kind {json.dumps(resource.qualified)}"
    return ApiError(405, "MethodNotAllowed", message, _named(resource, ""))


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _named(resource, name))


def conflict(resource: Resource, name: str, problem: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {problem}'
    return ApiError(409, "Conflict", message, _named(resource, name))


def modified(resource: Resource, name: str) -> ApiError:
    problem = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, problem)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, problem: str) -> ApiError:
    shown = f' "{name}"' if name else ""
    return ApiError(403, "Forbidden", f"{resource.qualified}{shown} is forbidden: {problem}", _named(resource, name))


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with one cause per broken field."""
    shown = [f"{cause.field}: {cause.message}" for cause in causes]
    text = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause.as_json() for cause in causes]
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details)


def unusable_patch() -> ApiError:
    """A JSON patch that cannot be applied (also because of a failed `test`): the server names no cause."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unknown_patch_type() -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(
        ACCEPTED_PATCHES
    )
    return ApiError(415, "UnsupportedMediaType", message, {})


def too_many_requests(message: str, cause: str, retry_after_seconds: int | None) -> ApiError:
    """The 429 of an eviction; `Retry-After` only if the server suggests one."""
    details: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers: dict[str, str] = {}
    if retry_after_seconds is not None:
        details["retryAfterSeconds"] = retry_after_seconds
        headers["Retry-After"] = str(retry_after_seconds)
    return ApiError(429, "TooManyRequests", message, details, headers)


def expired(asked: int, oldest: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def internal(message: str) -> ApiError:
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {message}",
        {"causes": [{"message": message}]},
    )
