"""Image names as people write them and as nodes list them."""

from __future__ import annotations

import pytest

from bot.domain.changes.images import full_name

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("written", "listed"),
    [
        ("vllm/vllm-openai:v0.32.0", "docker.io/vllm/vllm-openai:v0.32.0"),
        ("vllm/vllm-openai", "docker.io/vllm/vllm-openai:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("ghcr.io/team/engine:7", "ghcr.io/team/engine:7"),
        ("registry:5000/engine", "registry:5000/engine:latest"),
        ("localhost/engine@sha256:ab", "localhost/engine@sha256:ab"),
    ],
)
def test_an_image_is_compared_by_its_full_name(written: str, listed: str) -> None:
    assert full_name(written) == listed
