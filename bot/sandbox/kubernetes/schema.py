"""The fields of the API types, so that a misspelt or mistyped one is refused as a real server refuses it.

The table `schema.json` is read off the official client's models by `write_schema`; a test compares the two.
"""

import functools
import importlib.resources
import json
from dataclasses import dataclass, field
from typing import Any

from bot.sandbox.kubernetes.quantities import canonical

Obj = dict[str, Any]

_PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}
_GO_NAMES = {"str": "string", "int": "int32", "bool": "bool", "float": "float64"}
_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}

_TOP = {"apiVersion": "str", "kind": "str", "metadata": "V1ObjectMeta", "status": "any"}
CUSTOM: dict[str, dict[str, str]] = {
    "V1LeaderWorkerSet": {**_TOP, "spec": "V1LeaderWorkerSetSpec"},
    "V1LeaderWorkerSetSpec": {
        "replicas": "int",
        "leaderWorkerTemplate": "V1LeaderWorkerTemplate",
        "rolloutStrategy": "V1RolloutStrategy",
        "startupPolicy": "str",
        "networkConfig": "any",
    },
    "V1LeaderWorkerTemplate": {
        "leaderTemplate": "V1PodTemplateSpec",
        "workerTemplate": "V1PodTemplateSpec",
        "size": "int",
        "restartPolicy": "str",
        "subGroupPolicy": "any",
        "volumeClaimTemplates": "any",
        "persistentVolumeClaimRetentionPolicy": "any",
    },
    "V1RolloutStrategy": {"type": "str", "rollingUpdateConfiguration": "V1RollingUpdateConfiguration"},
    "V1RollingUpdateConfiguration": {"partition": "int", "maxUnavailable": "any", "maxSurge": "any"},
    "V1InferencePool": {**_TOP, "spec": "V1InferencePoolSpec"},
    "V1InferencePoolSpec": {
        "selector": "V1InferencePoolSelector",
        "targetPorts": "list:V1InferencePoolPort",
        "appProtocol": "str",
        "endpointPickerRef": "any",
    },
    "V1InferencePoolSelector": {"matchLabels": "map:str"},
    "V1InferencePoolPort": {"number": "int"},
    "V1alpha2InferencePool": {**_TOP, "spec": "V1alpha2InferencePoolSpec"},
    "V1alpha2InferencePoolSpec": {"selector": "map:str", "targetPortNumber": "int", "extensionRef": "any"},
    "V1alpha1Application": {**_TOP, "spec": "V1alpha1ApplicationSpec"},
    "V1alpha1ApplicationSpec": {"project": "str", "source": "any", "destination": "any", "syncPolicy": "any"},
    "V1alpha1ScaledObject": {**_TOP, "spec": "V1alpha1ScaledObjectSpec"},
    "V1alpha1ScaledObjectSpec": {
        "scaleTargetRef": "any",
        "minReplicaCount": "int",
        "maxReplicaCount": "int",
        "idleReplicaCount": "int",
        "pollingInterval": "int",
        "cooldownPeriod": "int",
        "initialCooldownPeriod": "int",
        "triggers": "any",
        "fallback": "any",
        "advanced": "any",
    },
}
"""The types of custom resources, for which the official client has no models."""


class MistypedError(Exception):
    """A field has a value that its type does not allow; the message is that of Go's JSON decoder."""


@dataclass
class Decoded:
    """The object without unknown fields, and the paths of those that were dropped."""

    obj: Obj
    unknown: list[str] = field(default_factory=list)
    is_custom: bool = False
    """A custom resource's quantities stay as they were written; those of other objects become canonical."""


@functools.cache
def types() -> dict[str, dict[str, str]]:
    text = importlib.resources.files(__package__).joinpath("schema.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, str]] = json.loads(text)
    return table | CUSTOM


def decode(root: str, obj: Obj) -> Decoded:
    """Reads `obj` as the type `root` (`V1Deployment`). Drops null fields; raises `MistypedError` on a bad value."""
    decoded = Decoded({}, is_custom=root in CUSTOM)
    decoded.obj = _decode_object(root, obj, "", decoded)
    return decoded


def root_of(kind: str, api_version: str) -> str:
    if kind == "Event":
        # Two API groups have an Event; the client distinguishes them by name.
        return "CoreV1Event"
    return f"{api_version.rpartition('/')[2].capitalize()}{kind}"


def _decode_object(type_name: str, obj: Obj, path: str, decoded: Decoded) -> Obj:
    fields = types()[type_name]
    result: Obj = {}
    for key, value in obj.items():
        where = f"{path}.{key}" if path else key
        if key not in fields:
            decoded.unknown.append(where)
        elif value is not None:
            result[key] = _decode_value(fields[key], value, where, decoded)
    return result


def _decode_value(type_name: str, value: Any, path: str, decoded: Decoded) -> Any:
    if type_name == "any":
        return value
    outer, _, inner = type_name.partition(":")
    if outer == "list":
        _expect(isinstance(value, list), value, path, "slice")
        return [_decode_value(inner, one, f"{path}[{i}]", decoded) for i, one in enumerate(value)]
    if outer == "map":
        _expect(isinstance(value, dict), value, path, "map")
        return {key: _decode_value(inner, one, f"{path}.{key}", decoded) for key, one in value.items()}
    if outer == "quantity":
        # A quantity may be written as a number; it is kept as text.
        _expect(isinstance(value, (str, int, float)) and not isinstance(value, bool), value, path, "string")
        return value if decoded.is_custom else _quantity(value)
    if outer in _PLAIN:
        fits = isinstance(value, _PLAIN[outer]) and (outer == "bool" or not isinstance(value, bool))
        _expect(fits, value, path, _GO_NAMES[outer])
        return value
    _expect(isinstance(value, dict), value, path, type_name)
    return _decode_object(type_name, value, path, decoded)


def _quantity(value: str | float) -> str:
    try:
        return canonical(value)
    except ValueError as error:
        raise MistypedError(str(error)) from None


def _expect(fits: bool, value: Any, path: str, wanted: str) -> None:
    if not fits:
        found = _JSON_NAMES.get(type(value), type(value).__name__)
        raise MistypedError(f"json: cannot unmarshal {found} into Go struct field .{path} of type {wanted}")
