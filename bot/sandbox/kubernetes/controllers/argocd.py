"""Argo CD, as far as a workload sees it: an Application syncs what git says to the cluster.

Git is a ConfigMap in the Application's namespace, named by `spec.source.repoURL`; its key `manifest` is one object as
JSON. A new manifest is synced if sync is automated; an edit of somebody else is reverted only with `selfHeal`. Fields
that git does not have are left alone, as in the three-way diff of the real one.
"""

import copy
import json
from collections.abc import Iterable
from typing import Any

from bot.sandbox.kubernetes.controllers.loop import Key
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.resources import APPLICATIONS, CONFIG_MAPS, DEPLOYMENTS
from bot.sandbox.kubernetes.store import Change, name_of, namespace_of

Obj = dict[str, Any]

SCHEME = "configmap://"
TRACKING = "argocd.argoproj.io/tracking-id"


class ArgoCD:
    name = "argocd"

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def keys(self, change: Change) -> Iterable[Key]:
        if change.resource is APPLICATIONS:
            yield namespace_of(change.obj), name_of(change.obj)
        elif change.resource is CONFIG_MAPS or (change.resource is DEPLOYMENTS and _app_of(change.obj)):
            for app in self._store.list(APPLICATIONS, None):
                yield namespace_of(app), name_of(app)

    def reconcile(self, key: Key) -> float | None:
        app = self._store.find(APPLICATIONS, *key)
        git = self._store.find(CONFIG_MAPS, key[0], _repository(app)) if app is not None else None
        if app is None or git is None:
            return None
        wanted = json.loads(git["data"]["manifest"])
        live = self._store.find(DEPLOYMENTS, wanted["metadata"]["namespace"], wanted["metadata"]["name"])
        if live is None or _app_of(live) != name_of(app):
            return None
        revision = git["metadata"]["resourceVersion"]
        synced = app.get("status", {}).get("sync", {}).get("revision")
        policy = app["spec"].get("syncPolicy", {}).get("automated")
        if policy is not None and (synced != revision or policy.get("selfHeal")):
            live = self._registry.edit(DEPLOYMENTS, live, lambda one: one.update(_with(one, wanted)))
            synced = revision
        state = "Synced" if _with(live, wanted) == live else "OutOfSync"
        status = {"sync": {"status": state, "revision": synced}}
        self._registry.edit(APPLICATIONS, app, lambda one: one.update(status=status), "status")
        return None


def _app_of(obj: Obj) -> str:
    tracked: str = (obj["metadata"].get("annotations") or {}).get(TRACKING, "")
    return tracked.split(":", maxsplit=1)[0]


def _repository(app: Obj) -> str:
    url: str = app["spec"]["source"]["repoURL"]
    return url.removeprefix(SCHEME)


def _with(live: Any, wanted: Any) -> Any:
    """The live value with everything that git says; lists are git's."""
    if not (isinstance(live, dict) and isinstance(wanted, dict)):
        return copy.deepcopy(wanted)
    return {**live, **{key: _with(live.get(key), value) for key, value in wanted.items()}}
