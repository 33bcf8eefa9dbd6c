"""Lists that callers share: one read for all of them, and forgotten once nobody may use them any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.adapters.kubernetes import reader
from bot.adapters.kubernetes.client import Answer, KubernetesClient
from bot.adapters.kubernetes.reader import STATUS_SECONDS, KubernetesReader

pytestmark = pytest.mark.fast


class Answers:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **how: Any) -> Answer:
        self.asked.append(path)
        return Answer(200, {"kind": "List", "items": []})


async def test_a_list_is_read_once_for_all_and_forgotten_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    client = Answers()
    kept = KubernetesReader(cast(KubernetesClient, client))
    for name in ("pods of a", "pods of b", "pods of a"):
        await kept.shared_part(name, "Pod", "serving", seconds=STATUS_SECONDS)
    assert len(client.asked) == 2
    now[0] = STATUS_SECONDS - 1
    await kept.shared_part("pods of a", "Pod", "serving", seconds=1.0)
    now[0] = STATUS_SECONDS + 1
    await kept.shared_part("pods of c", "Pod", "serving")
    assert list(kept._kept) == ["pods of a", "pods of c"]
