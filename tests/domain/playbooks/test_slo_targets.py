"""The SLO targets of a workload: which source wins, and what the card says of it."""

from __future__ import annotations

import pytest

from bot.domain.kernel.target import Target
from bot.domain.playbooks.compiled import CompiledPlaybook
from bot.domain.playbooks.settings import Override
from tests.kit.packaged import library as packaged_library
from tests.kit.packaged import library_with

pytestmark = pytest.mark.fast
CHAT = Target(cluster="c", namespace="llm", kind="Deployment", name="chat")
TUNED = Override(target="llm/chat", settings={"ttft_target": "2s"})


def playbook(labels: dict[str, str], *overrides: Override, **annotations: str) -> CompiledPlaybook:
    target = CHAT.model_copy(update={"slo": tuple(annotations.items())})
    bundle = library_with(*overrides).bundle("inference-slo-breach", target, labels)
    assert bundle is not None
    return bundle.entry_playbook


@pytest.mark.parametrize(
    ("annotation", "overrides", "label", "ttft", "source"),
    [
        ("300ms", (TUNED,), "1s", 0.3, "the workload's annotations"),
        ("", (TUNED,), "1s", 2.0, "the bot's settings"),
        ("", (), "1s", 1.0, "the alert's labels"),
        ("", (), "", 0.5, "the playbook's defaults"),
    ],
)
def test_the_most_specific_target_is_in_force_and_named(
    annotation: str, overrides: tuple[Override, ...], label: str, ttft: float, source: str
) -> None:
    annotations = {"ttft_target": annotation} if annotation else {}
    found = playbook({"ttft_target": label} if label else {}, *overrides, **annotations).settings
    assert found["ttft_target"] == ttft
    rest = "" if source == "the playbook's defaults" else "first token by "
    assert str(found["slo_from"]).startswith(f"{rest}{source}")


def test_one_source_of_all_targets_is_named_once() -> None:
    found = playbook({}, ttft_target="1s", tpot_target="80ms", objective="0.95").settings
    assert (found["ttft_target"], found["tpot_target"], found["objective"]) == (1.0, 0.08, 0.95)
    assert found["slo_from"] == "the workload's annotations"


@pytest.mark.parametrize("wrong", ["soon", "1h", "500"])
def test_a_text_that_is_no_target_is_ignored_and_named(wrong: str) -> None:
    found = playbook({"ttft_target": "1s"}, ttft_target=wrong).settings
    assert found["ttft_target"] == 1.0
    assert f"first token '{wrong}' in the workload's annotations is not valid and was ignored" in str(found["slo_from"])


@pytest.mark.parametrize("wrong", ["nan", "NaN", "inf"])
def test_an_objective_that_is_no_number_is_ignored_and_named(wrong: str) -> None:
    for found in (playbook({"objective": wrong}).settings, playbook({}, objective=wrong).settings):
        assert found["objective"] == playbook({}).settings["objective"]
        assert f"objective '{wrong}' in the " in str(found["slo_from"])


def test_a_playbook_that_does_not_say_who_set_the_targets_keeps_its_own() -> None:
    target = CHAT.model_copy(update={"slo": (("ttft_target", "1s"),)})
    bundle = packaged_library().bundle("kv-compression-no-savings", target)
    assert bundle is not None
    assert "slo_from" not in bundle.entry_playbook.settings


def test_the_targets_are_in_the_digest_that_an_incident_keeps() -> None:
    library = packaged_library()
    own = CHAT.model_copy(update={"slo": (("ttft_target", "1s"),)})
    bundles = [library.bundle("inference-slo-breach", target) for target in (CHAT, own)]
    assert bundles[0] is not None
    assert bundles[1] is not None
    assert bundles[0].digest != bundles[1].digest


def test_workloads_with_the_same_settings_share_a_bundle() -> None:
    """It is built, and its digest computed, once for thousands of them."""
    library = packaged_library()
    shared = library.bundle("inference-slo-breach", CHAT)
    assert library.bundle("inference-slo-breach", CHAT.model_copy(update={"name": "other"})) is shared
    assert library.bundle("inference-slo-breach", CHAT, {"ttft_target": "2s"}) is not shared


def test_settings_of_a_target_win_over_labels_also_where_they_equal_the_default() -> None:
    as_by_default = Override(target="llm/chat", settings={"ttft_target": "500ms"})
    assert playbook({"ttft_target": "2s"}, as_by_default).settings["ttft_target"] == 0.5
    assert playbook({"ttft_target": "2s"}).settings["ttft_target"] == 2.0
