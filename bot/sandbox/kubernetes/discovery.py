"""API discovery, which clients read before they request objects: versions, groups and resources."""

from collections.abc import Collection
from typing import Any

from bot.sandbox.kubernetes.errors import no_such_path
from bot.sandbox.kubernetes.resources import RESOURCES, Resource

Obj = dict[str, Any]

VERSION: Obj = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-04-22T00:00:00Z",
    "goVersion": "go1.26.0",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_SUBRESOURCE_KINDS = {"scale": ("autoscaling", "v1", "Scale"), "eviction": ("policy", "v1", "Eviction")}


def answer(path: str, absent: Collection[str] = ()) -> Obj | None:
    """The discovery document at this path, or None if this is not a discovery path. `absent`: groups without CRDs."""
    match [part for part in path.split("/") if part]:
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({row.group for row in RESOURCES if row.group} - set(absent))
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in groups]}
        case ["apis", group, *_] if group in absent:
            raise no_such_path()
        case ["apis", group]:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group)}
        case ["api", version]:
            return _resources("", version)
        case ["apis", group, version]:
            return _resources(group, version)
        case _:
            return None


def _group(name: str) -> Obj:
    versions = sorted({row.version for row in RESOURCES if row.group == name})
    if not versions:
        raise no_such_path()
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resources(group: str, version: str) -> Obj:
    rows = [row for row in RESOURCES if (row.group, row.version) == (group, version)]
    if not rows:
        raise no_such_path()
    listed = [entry for row in rows for entry in (_entry(row), *_subresources(row))]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": rows[0].api_version,
        "resources": listed,
    }


def _entry(row: Resource) -> Obj:
    entry: Obj = {
        "name": row.plural,
        "singularName": row.kind.lower(),
        "namespaced": row.is_namespaced,
        "kind": row.kind,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    return entry


def _subresources(row: Resource) -> list[Obj]:
    entries: list[Obj] = []
    for name in row.subresources:
        group, version, kind = _SUBRESOURCE_KINDS.get(name, (row.group, row.version, row.kind))
        verbs = {"eviction": ["create"], "log": ["get"]}.get(name, ["get", "patch", "update"])
        entries.append(
            {
                "name": f"{row.plural}/{name}",
                "singularName": "",
                "namespaced": row.is_namespaced,
                "group": group,
                "version": version,
                "kind": kind,
                "verbs": verbs,
            }
        )
    return entries
