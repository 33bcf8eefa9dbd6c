"""Settings of an operator: for a playbook, for targets, judged by the playbook's own ranges, all faults at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.adapters.yaml_playbooks import load_folder
from bot.domain.kernel.target import Target
from bot.domain.playbooks.settings import Override

pytestmark = pytest.mark.fast

SMALL = Path(__file__).parent / "small.yaml"
CHAT = Target(cluster="c", namespace="llm", kind="Deployment", name="chat-large")
OTHER = Target(cluster="c", namespace="llm", kind="Deployment", name="embed")


def ratio(target: Target, *overrides: Override) -> object:
    bundle = load_folder(SMALL.parent, *overrides).bundle("small", target)
    assert bundle is not None
    return bundle.entry_playbook.settings["ratio"]


EVERYWHERE = Override(playbook="small", settings={"ratio": "0.3"})
ON_CHAT = Override(playbook="small", target="llm/chat-*", settings={"ratio": "0.5"})


def test_a_target_counts_more_than_a_playbook_and_that_more_than_the_file() -> None:
    assert ratio(CHAT) == 0.1
    assert [ratio(OTHER, *each) for each in ((EVERYWHERE, ON_CHAT), (ON_CHAT, EVERYWHERE))] == [0.3, 0.3]
    assert [ratio(CHAT, *each) for each in ((EVERYWHERE, ON_CHAT), (ON_CHAT, EVERYWHERE))] == [0.5, 0.5]


def test_of_equal_overrides_the_later_one_counts() -> None:
    assert ratio(CHAT, EVERYWHERE, Override(settings={"ratio": "0.4"})) == 0.4
    assert ratio(CHAT, ON_CHAT, Override(target="*", settings={"ratio": "0.4"})) == 0.4


def test_settings_of_a_target_are_in_the_digest() -> None:
    library = load_folder(SMALL.parent, ON_CHAT)
    bundles = [library.bundle("small", target) for target in (CHAT, OTHER)]
    assert bundles[0] is not None
    assert bundles[1] is not None
    assert bundles[0].digest != bundles[1].digest


def test_all_faults_are_reported_at_once_and_what_is_wrong_does_not_count() -> None:
    wrong = (
        Override(playbook="smal", settings={"ratio": "0.3"}),
        Override(playbook="small", settings={"windw": "5m"}),
        Override(playbook="small", target="llm/*", settings={"ratio": "7", "window": "soon"}),
        Override(target="llm/*", settings={"ratoi": "7"}),
    )
    assert [str(fault) for fault in load_folder(SMALL.parent, *wrong).faults["settings"]] == [
        "overrides: smal: unknown playbook 'smal'. Did you mean 'small'?",
        "overrides: llm/*: no playbook has a setting 'ratoi'. Did you mean 'ratio'?",
        "overrides: small: no setting 'windw' to override. Did you mean 'window'?",
        "overrides: llm/*: small: window: 'soon' is not a duration. Write 90s, 5m or 1h30m.",
        "overrides: llm/*: small: ratio: 7 is above the most allowed, 1. Write a value from 0.02 to 1.",
    ]
    assert ratio(CHAT, *wrong) == 0.1


# --- overrides of one target, together -------------------------------------------------------------------------------

HELD_AND_LIMIT = (
    SMALL.read_text(encoding="utf-8")
    .replace("settings:\n", "settings:\n  hold: {default: 5m}\n  limit: {default: 10m}\n", 1)
    .replace("    for: settings.window\n    within: 40m\n", "    for: settings.hold\n    within: settings.limit\n")
)


def on(target: str, **settings: str) -> Override:
    return Override(target=target, settings=settings)


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        pytest.param((on("prod/*", limit="6m"), on("prod/llm", hold="8m")), "prod/llm (with prod/*)", id="wider"),
        pytest.param((on("prod/llm", hold="8m"), on("prod/*", limit="6m")), "prod/* (with prod/llm)", id="narrower"),
        pytest.param((on("*/llm", hold="8m"), on("prod/*", limit="6m")), "prod/* (with */llm)", id="overlapping"),
        pytest.param((on("c/*/llm", hold="8m"), on("prod/*", limit="6m")), "prod/* (with c/*/llm)", id="a-cluster"),
        pytest.param((on("prod/*-b", limit="6m"), on("prod/a-*", hold="8m")), "prod/a-* (with prod/*-b)", id="parts"),
        pytest.param((on("*", limit="6m"), on("prod/llm", hold="8m")), "prod/llm (with *)", id="any"),
        pytest.param((on("prod/*", limit="6m"), on("dev/*", hold="8m")), "", id="other-targets"),
        pytest.param((on("prod*", limit="6m"), on("dev/llm", hold="8m")), "", id="other-namespaces"),
        pytest.param((on("prod*", limit="6m"), on("prod-b/*", hold="8m")), "prod-b/* (with prod*)", id="begins-alike"),
        pytest.param((on("c/prod/*", limit="6m"), on("d/prod/*", hold="8m")), "", id="other-clusters"),
        pytest.param((on("prod/*", limit="20m"), on("prod/llm", hold="15m")), "", id="sound-only-together"),
        pytest.param((on("prod/llm", limit="6m"), on("prod/llm", limit="9m", hold="8m")), "", id="replaced"),
        pytest.param(
            (on("prod/llm", limit="6m"), on("*/*", limit="9m"), on("prod/*", hold="8m")), "", id="replaced-by-a-third"
        ),
    ],
)
def test_overrides_of_one_target_are_checked_together(
    tmp_path: Path, overrides: tuple[Override, ...], fault: str
) -> None:
    (tmp_path / "small.yaml").write_text(HELD_AND_LIMIT, encoding="utf-8")
    library = load_folder(tmp_path, *overrides)
    what = "calm: 'settings.limit' is shorter than 'for', so it can never hold. Take a longer one."
    faults = [str(each) for each in library.faults.get("settings", ())]
    assert faults == ([f"overrides: {fault}: {what}"] if fault else [])


def test_an_override_that_cannot_hold_with_an_earlier_one_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(HELD_AND_LIMIT, encoding="utf-8")
    library = load_folder(tmp_path, on("*/chat-large", limit="6m"), on("llm/*", hold="8m"))
    for target in (CHAT, OTHER):
        bundle = library.bundle("small", target)
        assert bundle is not None
        assert bundle.entry_playbook.settings["hold"] == 300.0
