"""Flux: which HelmRelease or Kustomization keeps an object, and when it writes the object next.

A Kustomization reverts an edit with its next reconciliation. A HelmRelease does so only if its drift detection is
enabled (fluxcd/helm-controller, docs/spec/v2); else with its next upgrade. A suspended one writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.cluster.objects import annotations_of, dig, labels_of, name_of, namespace_of
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

FLUX = "flux"
"""Flux's object, in a snapshot."""
KEYS = {"HelmRelease": "helm.toolkit.fluxcd.io", "Kustomization": "kustomize.toolkit.fluxcd.io"}
LEFT_ALONE = {
    "kustomize.toolkit.fluxcd.io/reconcile": "disabled",
    "kustomize.toolkit.fluxcd.io/ssa": "ignore",
}
"""Labels or annotations by which a Kustomization leaves an object alone; the case of a value does not matter.

Not those that Flux obeys only where git or the chart has them, which the object does not show: `ssa: IfNotPresent`
(fluxcd/pkg, ssa/manager_apply.go) and `helm.toolkit.fluxcd.io/driftDetection` (ssa/jsondiff/unstructured.go).
"""


@dataclass(frozen=True)
class FluxName:
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def flux_name(obj: Obj) -> FluxName | None:
    """Returns the HelmRelease or Kustomization that applies the object, as its labels say."""
    labels = labels_of(obj)
    for kind, key in KEYS.items():
        if name := labels.get(f"{key}/name"):
            return FluxName(kind, labels.get(f"{key}/namespace") or namespace_of(obj), name)
    return None


def next_write_of_flux(of: FluxName, obj: Obj, snapshot: ClusterSnapshot) -> tuple[str, str]:
    """Returns what reverts an edit of the object that was not committed, empty if Flux does within minutes; and why
    that is not known.
    """
    mark = _mark(obj) if of.kind == "Kustomization" else ""
    if mark:
        return f"its first reconciliation without {mark}", ""
    found = next((one for one in snapshot.flux if _name_of(one) == of), None)
    if found is None:
        why = snapshot.unreadable.get(FLUX, "")
        unknown = f"it could not be read: {why}" if why else "it is not in this cluster"
        return "", unknown if of.kind == "HelmRelease" else ""
    if dig(found, "spec", "suspend") is True:
        return "its first reconciliation after it is resumed", ""
    corrects = of.kind == "Kustomization" or dig(found, "spec", "driftDetection", "mode") == "enabled"
    return "" if corrects else "its next upgrade", ""


def _name_of(found: Obj) -> FluxName:
    return FluxName(str(found.get("kind")), namespace_of(found), name_of(found))


def _mark(obj: Obj) -> str:
    """Returns the mark that keeps a Kustomization from writing the object; empty without one."""
    marks = labels_of(obj) | annotations_of(obj)
    mark = next((mark for mark, value in LEFT_ALONE.items() if marks.get(mark, "").lower() == value), "")
    return f"{mark}={marks[mark]}" if mark else ""
