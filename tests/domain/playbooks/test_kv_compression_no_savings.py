"""Texts of kv-compression-no-savings that name something for the readings of now."""

from __future__ import annotations

import pytest

from bot.domain.signals.signal import Value
from tests.kit.packaged import library as packaged_library

pytestmark = pytest.mark.fast

PLAYBOOK = packaged_library().playbooks["kv-compression-no-savings"]


@pytest.mark.parametrize(
    ("kind", "evidence", "named"),
    [
        pytest.param("eviction_without_compaction", "h2o in the log", "TriAttention, which compacts", id="eviction"),
        pytest.param(
            "eviction_without_compaction",
            "ENABLE_TRIATTENTION=1",
            "fp8 KV with a limit on requests, or StreamingLLM",
            id="never-the-method-itself",
        ),
        pytest.param("quantised_kv", "fp8 in --kv-cache-dtype", "a limit on concurrent requests", id="quantised"),
        pytest.param("page_selection", "quest", "fp8 KV with a limit on concurrent requests", id="page-selection"),
    ],
)
def test_who_turns_a_method_off_reads_what_replaces_it(kind: str, evidence: str, named: str) -> None:
    read: dict[str, Value] = {"method.kind": kind, "method.evidence": evidence}
    why = PLAYBOOK.text("turn_off", "why", read)
    assert why.startswith(f"What replaces it: {named}")
    assert ("TriAttention" in why) is (named.startswith("TriAttention"))


def test_the_end_names_the_methods_that_can_replace_an_eviction() -> None:
    text = PLAYBOOK.text("backed_out_end", "say", {})
    assert "StreamingLLM" in text
    assert "TriAttention" in text
