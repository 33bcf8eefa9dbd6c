"""Label and field selectors: the objects that a list, a watch or a controller selects.

A selector that cannot be parsed is refused, never taken as "everything".
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from bot.sandbox.kubernetes.errors import bad_request
from bot.sandbox.kubernetes.resources import EVENTS, NAMESPACES, PODS, Resource

Obj = dict[str, Any]
Predicate = Callable[[Obj], bool]

_KEY = r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"^(?P<key>{_KEY})\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALS = re.compile(rf"^(?P<key>{_KEY})\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE})$")
_EXISTS = re.compile(rf"^(?P<not>!?)\s*(?P<key>{_KEY})$")

_FIELDS: dict[Resource, tuple[str, ...]] = {
    PODS: ("spec.nodeName", "spec.schedulerName", "spec.restartPolicy", "status.phase", "status.podIP"),
    NAMESPACES: ("status.phase",),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def everything(_: Obj) -> bool:
    return True


def labels_of(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return obj.get("metadata", {}).get("labels") or {}


def label_selector(text: str) -> Predicate:
    """`app=llm,tier!=x,!old,zone in (a,b)` as a predicate."""
    tests = [_requirement(part) for part in _split(text)]
    return lambda obj: all(test(labels_of(obj)) for test in tests)


def _split(text: str) -> list[str]:
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    return [part for part in parts if part]


def _requirement(text: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(text):
        key, wanted = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in wanted
        return lambda labels: labels.get(key) not in wanted
    if found := _EQUALS.match(text):
        key, value = found["key"], found["value"] or ""
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(text):
        key, must_exist = found["key"], not found["not"]
        return lambda labels: (key in labels) is must_exist
    raise bad_request(f'unable to parse requirement: found "{text}"')


def field_selector(resource: Resource, text: str) -> Predicate:
    """`metadata.name=x,status.phase!=Failed` as a predicate; 400 for a field this kind cannot select by."""
    tests: list[Predicate] = []
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(resource, ()))
    for part in _split(text):
        found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if found is None:
            raise bad_request(f'invalid selector: "{text}"; can\'t understand "{part}"')
        path, sign, value = found[1].strip(), found[2], found[3].strip()
        if path not in allowed:
            raise bad_request(f"field label not supported: {path}")
        tests.append(_field_test(path, value, wanted=sign != "!="))
    return lambda obj: all(test(obj) for test in tests)


def _field_test(path: str, value: str, *, wanted: bool) -> Predicate:
    def test(obj: Obj) -> bool:
        return (field_text(obj, path) == value) is wanted

    return test


def field_text(obj: Obj, path: str) -> str:
    if path == "source":
        # As pkg/registry/core/event/strategy.go: the newer API has no source.
        path = "source.component" if (obj.get("source") or {}).get("component") else "reportingComponent"
    here: Any = obj
    for part in path.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return "" if here is None else str(here)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Applies a `LabelSelector` object to labels. Empty matches everything; the caller refuses empty if necessary."""
    if not selector:
        return True
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression(one, labels) for one in selector.get("matchExpressions") or [])


def _expression(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case other:
            raise ValueError(f"{other!r} is not a valid label selector operator")


def selector_text(selector: Mapping[str, Any]) -> str:
    """A `LabelSelector` object in the string format of `Scale.status.selector`."""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or []:
        key, values = one["key"], ",".join(sorted(one.get("values") or []))
        shown = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        parts.append(shown[one["operator"]])
    return ",".join(parts)
