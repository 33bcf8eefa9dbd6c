"""Pod templates: which two are equal, and the hash that names a ReplicaSet after its template."""

import json
from typing import Any

Obj = dict[str, Any]

TEMPLATE_HASH = "pod-template-hash"
# The alphabet that Kubernetes uses for such hashes: no vowels, so no words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def without_hash(template: Obj) -> Obj:
    metadata = template.get("metadata", {})
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def same_template(left: Obj, right: Obj) -> bool:
    return without_hash(left) == without_hash(right)


def template_hash(template: Obj) -> str:
    """Equal templates have equal hashes, in this process and the next (FNV-1a over canonical JSON)."""
    digest = 0x811C9DC5
    for byte in json.dumps(without_hash(template), sort_keys=True).encode():
        digest = ((digest ^ byte) * 0x01000193) & 0xFFFFFFFF
    return "".join(_LETTERS[int(figure)] for figure in str(digest))
