"""What a fleet of the demo lives in: the tool it is deployed with, GPUs that others hold, and a quota."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from bot.domain.cluster.owner import yaml_text
from bot.sandbox.kubernetes.controllers.argocd import SCHEME, TRACKING
from bot.sandbox.kubernetes.patches import strategic_merge_patch
from bot.sandbox.plain_http import http

Obj = dict[str, Any]

MERGE = {"Content-Type": "application/merge-patch+json"}
DEPLOYMENT = "/apis/apps/v1/namespaces/serving/deployments/llm"
REPOSITORY, FILE = "example/deploy", "production/llm.yaml"
GIT = "/api/v1/namespaces/argocd/configmaps/deployments"
HELM = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "llm", "meta.helm.sh/release-namespace": "serving"},
}


def put_under(url: str, tool: str) -> None:
    """Marks the demo's workload as deployed by the tool. `argocd` syncs new commits; `argocd-self-heal` reverts too."""
    if tool == "helm":
        _patch(url, {"metadata": HELM})
        return
    live = http().get(url + DEPLOYMENT).raise_for_status().json()
    named = {key: live["metadata"][key] for key in ("name", "namespace")}
    manifest = {"metadata": named, "spec": live["spec"]}
    application = {
        "metadata": {"name": "serving"},
        "spec": {
            "project": "default",
            "source": {"repoURL": f"{SCHEME}deployments", "path": ".", "targetRevision": "main"},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "serving"},
            "syncPolicy": {"automated": {"prune": True, "selfHeal": tool == "argocd-self-heal"}},
        },
    }
    _create(url, "/api/v1/namespaces", {"metadata": {"name": "argocd"}})
    git = {"metadata": {"name": "deployments"}, "data": {"manifest": json.dumps(manifest)}}
    _create(url, "/api/v1/namespaces/argocd/configmaps", git)
    _create(url, "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications", application)
    _patch(url, {"metadata": {"annotations": {TRACKING: "serving:apps/Deployment:serving/llm"}}})


def commit(url: str, patch: str) -> None:
    """Merges a patch, as the bot hands it out, into the manifest in git."""
    wanted = YAML(typ="safe").load(patch)
    manifest = strategic_merge_patch(_in_git(url), {"spec": wanted["spec"]})
    http().patch(url + GIT, content=json.dumps(_as_git(manifest)), headers=MERGE).raise_for_status()


def publish(url: str, github_url: str) -> None:
    """Puts the manifest of the workload, as YAML, into the repository on GitHub."""
    text = yaml_text({"apiVersion": "apps/v1", "kind": "Deployment", **_in_git(url)})
    http().put(f"{github_url}/__sandbox__/github/{FILE}", content=f"{text}\n").raise_for_status()


def in_git(text: str) -> Obj:
    """The manifest's text in the form in which Argo CD of the sandbox reads it."""
    manifest = YAML(typ="safe").load(text)
    return _as_git({key: manifest[key] for key in ("metadata", "spec")})


def kept_in_settings(folder: Path) -> Path:
    """A settings file for the bot, which says where the workload is kept."""
    path = folder / "settings.yaml"
    entry = {"targets": "serving/llm", "repository": REPOSITORY, "path": FILE}
    path.write_text(yaml_text({"github": {"files": [entry]}}) + "\n", encoding="utf-8")
    return path


def _as_git(manifest: Obj) -> Obj:
    return {"data": {"manifest": json.dumps(manifest)}}


def _in_git(url: str) -> Obj:
    manifest: Obj = json.loads(http().get(url + GIT).raise_for_status().json()["data"]["manifest"])
    return manifest


def hold_gpus(url: str, count: int) -> None:
    """Starts pods of another namespace that hold this many GPUs, one each, and do nothing else."""
    container = {"name": "train", "image": "training:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    labels = {"app": "train"}
    spec = {
        "replicas": count,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    _create(url, "/api/v1/namespaces", {"metadata": {"name": "training"}})
    _create(url, "/apis/apps/v1/namespaces/training/deployments", {"metadata": {"name": "train"}, "spec": spec})


def limit(url: str, hard: Mapping[str, str]) -> None:
    """Creates a ResourceQuota in the namespace of the fleet."""
    body = {"metadata": {"name": "gpus"}, "spec": {"hard": dict(hard)}}
    _create(url, "/api/v1/namespaces/serving/resourcequotas", body)


def _create(url: str, path: str, body: Obj) -> None:
    http().post(url + path, json=body).raise_for_status()


def _patch(url: str, body: Obj) -> None:
    http().patch(url + DEPLOYMENT, content=json.dumps(body), headers=MERGE).raise_for_status()
