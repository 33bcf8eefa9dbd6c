"""Whether the images of a rollout have been pulled on some node before it begins.

Only a pull proves that an image can be pulled. A node that lists it, or the canary that runs it, has done so. A node
lists only some of its images, so an unlisted image is unknown, never missing.
"""

from __future__ import annotations

from collections.abc import Sequence

from bot.domain.changes.plan import Circumstance
from bot.domain.cluster.objects import dig, is_ready, name_of
from bot.domain.cluster.rotation import pods_of_canary
from bot.domain.cluster.snapshot import ClusterSnapshot, Obj

HUB = "docker.io"
UNKNOWN = "no node lists it, so whether it can be pulled is not known until the first new pod has tried"


def image_notes(snapshot: ClusterSnapshot, present: Sequence[Obj], wanted: Sequence[Obj]) -> tuple[Circumstance, ...]:
    """One circumstance about the images of `wanted` that `present` does not have; none if there are no such images."""
    have = {image for template in present for image in _images(template)}
    new = list(dict.fromkeys(image for template in wanted for image in _images(template) if image not in have))
    if not new:
        return ()
    found = [_where(snapshot, image) for image in new]
    is_known = all(known for known, _ in found)
    return (Circumstance(name="image", grade="fine" if is_known else "warning", text="; ".join(t for _, t in found)),)


def _where(snapshot: ClusterSnapshot, image: str) -> tuple[bool, str]:
    if any(is_ready(pod) and image in _images(pod) for pod in pods_of_canary(snapshot)):
        return True, f"{image}: the canary runs it"
    if "nodes" in snapshot.unreadable:
        return (
            False,
            f"{image}: the nodes cannot be read ({snapshot.unreadable['nodes']}), so nothing shows that it exists",
        )
    having = [name_of(node) for node in snapshot.nodes if full_name(image) in _listed(node)]
    if not having:
        return False, f"{image}: {UNKNOWN}"
    return True, f"{image}: pulled before on {', '.join(having)}"


def _images(obj: Obj) -> list[str]:
    """Returns the images of a pod or a template."""
    containers = [*(dig(obj, "spec", "initContainers") or []), *(dig(obj, "spec", "containers") or [])]
    return [str(each["image"]) for each in containers if each.get("image")]


def _listed(node: Obj) -> set[str]:
    images = dig(node, "status", "images") or []
    return {full_name(str(name)) for each in images for name in each.get("names") or []}


def full_name(image: str) -> str:
    """Returns the image with registry and tag, as container runtimes list it."""
    first, slash, _ = image.partition("/")
    is_registry = bool(slash) and ("." in first or ":" in first or first == "localhost")
    if not is_registry:
        image = f"{HUB}/{image}" if slash else f"{HUB}/library/{image}"
    has_tag = "@" in image or ":" in image.rpartition("/")[2]
    return image if has_tag else f"{image}:latest"
