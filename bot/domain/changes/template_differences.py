"""Differences of two pod templates, line by line: flags, variables, images, ConfigMaps by name; the rest by path."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from bot.domain.changes.differences import changed
from bot.domain.changes.plan import Difference
from bot.domain.cluster.json_patch import pointer
from bot.domain.cluster.objects import dig
from bot.domain.cluster.rollout import TEMPLATE, comparable, same_template
from bot.domain.cluster.snapshot import Obj
from bot.domain.flags.flags_in_spec import FlagsInSpec, flags_of_template

COMMAND_LINE = ("command", "args")
"""Shown as a whole if flags are not known: an option may be followed by a secret."""


def template_differences(before: Obj, after: Obj) -> tuple[Difference, ...]:
    """Returns every difference for people; for a secret only that it differs."""
    old, new = comparable(before), comparable(after)
    was, now = flags_of_template(old), flags_of_template(new)
    flags_are_known = not (was.unparsable or now.unparsable)
    differences = list(_flags(was, now)) if flags_are_known else []
    differences += _variables(old, new, now.container)
    skipped = set()
    if flags_are_known:
        skipped = {pointer("spec", "containers", now.container_index, part) for part in COMMAND_LINE}
    own = pointer("spec", "containers", now.container_index)
    for path, before_it, after_it in _leaves(_named(old), _named(new)):
        if not any(path.startswith(skip) for skip in skipped):
            name = path.removeprefix(own if path == f"{own}/image" else "/spec").lstrip("/")
            name = name if name == "image" else f"{name}:"
            differences.append(changed(name, TEMPLATE + path, before_it, after_it))
    if not differences and not same_template(old, new):
        differences.append(Difference(path=TEMPLATE, text="the order or spelling of the command line"))
    return tuple(differences)


def _flags(was: FlagsInSpec, now: FlagsInSpec) -> Iterator[Difference]:
    path = TEMPLATE + pointer("spec", "containers", now.container_index, "args")
    for name in sorted(was.values.keys() | now.values.keys()):
        before, after = was.values.get(name), now.values.get(name)
        if before != after:
            yield changed(name, path, before, after)


def _variables(old: Obj, new: Obj, engine: str) -> Iterator[Difference]:
    """Compares variables by name, in containers that both templates have."""
    earlier = {one.get("name"): one for one in dig(old, "spec", "containers") or []}
    for index, container in enumerate(dig(new, "spec", "containers") or []):
        name = container.get("name")
        if name not in earlier:
            continue
        was, now = _environment(earlier[name]), _environment(container)
        whose = "" if name == engine else f"{name}: "
        for variable in sorted(was.keys() | now.keys()):
            if was.get(variable) != now.get(variable):
                path = TEMPLATE + pointer("spec", "containers", index, "env")
                yield changed(f"{whose}{variable}", path, was.get(variable), now.get(variable))


def _environment(container: Obj) -> dict[str, str]:
    """Returns display names (`env NAME`, `envFrom ConfigMap NAME`) with their value or its source."""
    found = {f"env {one['name']}": _value(one) for one in container.get("env") or []}
    for one in container.get("envFrom") or []:
        for kind, field in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
            if field in one:
                found[f"envFrom {kind} {dig(one, field, 'name')}"] = (
                    f"prefix {one['prefix']}" if one.get("prefix") else "all"
                )
    return found


def _value(entry: Obj) -> str:
    for kind, field in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
        if (source := dig(entry, "valueFrom", field)) is not None:
            # The dollar sign marks a reference, which is not a secret.
            return f"${kind} {source.get('name')}/{source.get('key')}"
    if "valueFrom" in entry:
        return f"${dig(entry, 'valueFrom', 'fieldRef', 'fieldPath') or 'elsewhere'}"
    return str(entry.get("value") or "")


def _named(template: Obj) -> Obj:
    """Variables are compared separately; volumes compare by name, whatever their order."""
    cleaned = copy.deepcopy(template)
    spec = cleaned.get("spec") or {}
    for container in spec.get("containers") or []:
        container.pop("env", None)
        container.pop("envFrom", None)
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = {str(volume.get("name")): volume for volume in spec["volumes"]}
    return cleaned


def _leaves(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if path.rsplit("/", 1)[-1] in COMMAND_LINE:
        yield path, old, new
    elif isinstance(old, dict) and isinstance(new, dict):
        if "value" in old.keys() & new.keys() and "name" in old.keys() & new.keys():
            # Whether the value is a secret is known by its name.
            yield path, old, new
            return
        for key in sorted(old.keys() | new.keys()):
            yield from _leaves(old.get(key), new.get(key), path + pointer(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _leaves(was, now, path + pointer(index))
    else:
        yield path, old, new
