"""Argo CD: which application keeps an object, and which of its fields that application leaves alone.

`ignoreDifferences` keeps fields out of the comparison that self-heal starts from. A sync still writes them, unless the
option RespectIgnoreDifferences is on. What argocd-cm ignores for all applications is not read.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.domain.cluster.json_patch import pointer
from bot.domain.cluster.objects import FIELD_MANAGER, annotations_of, dig, labels_of, name_of, namespace_of, writers_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

APPLICATIONS = "applications"
"""Argo CD's, in a snapshot."""
INSTANCE = "app.kubernetes.io/instance"
MANAGERS = ("argocd-controller", "argocd-application-controller")
"""Argo CD's names as a field manager."""
RESPECTS = "RespectIgnoreDifferences"
PLAIN_JQ = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_]*)+")


def argo_application(obj: Obj) -> str:
    """Returns the name of the Argo CD application that tracks the object; empty without one.

    In a namespace other than Argo CD's own the name is `<namespace>_<name>`. Before version 3 Argo CD tracks by a label
    that others set too, unless it is configured otherwise; since then it tracks by an annotation.
    """
    labels, tracked = labels_of(obj), annotations_of(obj).get("argocd.argoproj.io/tracking-id")
    name = tracked or labels.get("argocd.argoproj.io/instance") or ""
    return name.split(":")[0] or (labels.get(INSTANCE, "") if _is_applied_by_argo(obj) else "")


def _is_applied_by_argo(obj: Obj) -> bool:
    """Whether Argo CD has written the object, and Helm has not since then."""
    written = {one.manager: one.time for one in writers_of(obj) if not one.subresource}
    return any(written.get(manager, "") > written.get("helm", "") for manager in MANAGERS)


def applications_named(app: str, snapshot: ClusterSnapshot) -> list[Obj]:
    return [one for one in snapshot.applications if app in (name_of(one), f"{namespace_of(one)}_{name_of(one)}")]


def heals_itself(application: Obj) -> bool:
    automated = dig(application, "spec", "syncPolicy", "automated") or {}
    return automated.get("selfHeal") is True and automated.get("enabled") is not False


def ignored_fields(application: Obj, obj: Obj, spec: Mapping[str, Any], group: str, kind: str) -> tuple[str, ...]:
    """Returns these parts of the object's spec if the application leaves them all out of its comparison; else none.

    `jqPathExpressions` count if they are plain paths. What we write counts as ours, outside of lists. An edit of a pod
    template also edits how it is rolled out, so the whole spec has to be ignored.
    """
    is_plain = not any(isinstance(value, Mapping | list | tuple) for value in spec.values())
    fields = tuple(f"/spec{pointer(name)}" for name in spec) if is_plain else ("/spec",)
    rules = [rule for rule in dig(application, "spec", "ignoreDifferences") or [] if _is_about(rule, obj, group, kind)]
    if is_plain and any(FIELD_MANAGER in (rule.get("managedFieldsManagers") or []) for rule in rules):
        return fields
    ignored = [path for rule in rules for path in _pointers(rule)]
    is_ignored = all(any(path == each or path.startswith(f"{each}/") for each in ignored) for path in fields)
    return fields if is_ignored else ()


def respects_ignored(application: Obj, obj: Obj) -> bool:
    """Whether its syncs leave alone what it ignores.

    The object's own annotation may turn that off; that it turns it on is new, so it does not count.
    """
    options = dig(application, "spec", "syncPolicy", "syncOptions") or []
    own = annotations_of(obj).get("argocd.argoproj.io/sync-options", "").split(",")
    return f"{RESPECTS}=true" in options and f"{RESPECTS}=false" not in map(str.strip, own)


def _is_about(rule: Obj, obj: Obj, group: str, kind: str) -> bool:
    return (
        fnmatch.fnmatchcase(group, rule.get("group") or "")
        and fnmatch.fnmatchcase(kind, rule.get("kind") or "")
        and rule.get("name") in (None, "", name_of(obj))
        and rule.get("namespace") in (None, "", namespace_of(obj))
    )


def _pointers(rule: Obj) -> Iterator[str]:
    yield from rule.get("jsonPointers") or []
    for expression in rule.get("jqPathExpressions") or []:
        if PLAIN_JQ.fullmatch(expression.strip()):
            yield expression.strip().replace(".", "/")
