"""A pull request with a patch for the owner of a workload: opened once, and only for who may approve."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.grant import Authority
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import PullRequestSettled
from bot.domain.incidents.run import Halt
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

MAY = Authority(allowed=True, reason="is in @serving", teams=("approvers",), read_at=0.0)
PLACE = "example/deploy: production/llm.yaml"
URL = "https://github.test/example/deploy/pull/7"


def edit(**fields: Any) -> OwnersEdit:
    return OwnersEdit.model_validate(
        {"kind": "Deployment", "namespace": "serving", "name": "llm", "fields": {"replicas": 6}} | fields
    )


def handed_out(**fields: Any) -> Story:
    """The owner of the workload has to scale it; the patch is in the thread."""
    known = {"owners_edit": edit(), "repository": PLACE} | fields
    result = PlanResult(outcome="impossible", reason="Argo CD would revert it", hint="spec:\n  replicas: 6", **known)
    return Story().opened().reads(0.95).chooses("grow").planned(result)


def slot(story: Story) -> str:
    return next(post.slot for post in reversed(story.run.posts) if post.kind == "outcome")


def shown(story: Story) -> dict[str, Any]:
    data: dict[str, Any] = next(post.data for post in reversed(story.run.posts) if post.kind == "outcome")
    return data


def wanted(story: Story | None = None, **fields: Any) -> Story:
    story = story or handed_out()
    return story.says("pull_request", **{"to": slot(story), "authority": MAY} | fields)


def settled(story: Story, **fields: Any) -> Story:
    story.happens(PullRequestSettled(event_id=story.id(), slot=slot(story), user="ana", **fields))
    return story


def has_effect(story: Story) -> bool:
    return OpenPullRequest in {type(effect) for effect in story.last.effects}


def test_a_patch_offers_a_pull_request_where_its_file_is_known() -> None:
    assert shown(handed_out())["repository"] == PLACE
    assert "repository" not in shown(handed_out(repository=""))
    assert "repository" not in shown(handed_out(owners_edit=None))


def test_a_patch_with_a_secret_offers_none_since_its_masked_value_would_be_committed() -> None:
    secret = edit(fields={}, flags=[{"env": "HF_TOKEN", "value": "hf_abcdefghijklmnopqrstuvwxyz0123456789"}])
    assert "repository" not in shown(handed_out(owners_edit=secret))


def test_what_was_wanted_is_opened_and_linked_in_the_message_with_the_patch() -> None:
    story = wanted()
    effect = story.wanted(OpenPullRequest)
    assert (effect.edit, effect.slot, effect.wanted_by, effect.visit) == (edit(), slot(story), "ana", None)
    assert shown(story)["pull_request"] == {"by": "ana"}
    settled(story, url=URL)
    assert shown(story)["pull_request"] == {"by": "ana", "url": URL, "reason": ""}
    assert story.texts("note")[-1] == f"pull request opened: {URL}"


def test_who_wanted_it_and_why_they_may_is_evidence() -> None:
    [decided] = [entry for entry in wanted().last.entries if entry.kind == "decided"]
    assert (decided.who, decided.text) == ("ana", f"wants a pull request in {PLACE}: replicas: 6")
    assert decided.data["reason"] == "is in @serving"


@pytest.mark.parametrize(
    "without",
    [
        pytest.param({"authority": None}, id="nobody"),
        pytest.param({"authority": MAY.model_copy(update={"allowed": False})}, id="a-stranger"),
        pytest.param({"to": "outcome:99:0"}, id="no-such-patch"),
    ],
)
def test_nothing_is_opened_without_somebody_who_may_and_a_patch(without: dict[str, Any]) -> None:
    story = wanted(**without)
    assert not has_effect(story)
    assert "No pull request was opened" in story.texts("note")[-1]


def test_it_is_opened_once() -> None:
    for story in (wanted(), settled(wanted(), url=URL)):
        wanted(story)
        assert not has_effect(story)
        assert "was wanted already" in story.texts("note")[-1]


def test_after_a_failure_it_may_be_wanted_again() -> None:
    story = settled(wanted(), reason="GitHub answers HTTP 503, with token=hunter2hunter2")
    state = shown(story)["pull_request"]
    assert state["reason"].startswith("GitHub answers HTTP 503")
    assert "hunter2hunter2" not in state["reason"]
    assert story.texts("note")[-1].startswith("no pull request could be opened: GitHub answers HTTP 503")
    assert has_effect(wanted(story))


def test_a_halt_stops_it_as_it_stops_changes() -> None:
    story = handed_out()
    story.run = story.run.with_(halt=Halt(by="ben"))
    wanted(story)
    assert not has_effect(story)
    assert "Changes are halted" in story.texts("note")[-1]


def test_its_address_is_kept_after_the_incident_was_closed() -> None:
    story = settled(wanted().says("resolve"), url=URL)
    assert shown(story)["pull_request"]["url"] == URL


def test_an_edit_in_words_names_what_changes_and_no_secret() -> None:
    flags = ({"flag": "--max-num-seqs", "value": 14}, {"flag": "--enforce-eager", "value": None})
    image = ({"image": "vllm/vllm-openai:v0.32.0"}, {"env": "HF_TOKEN", "value": "hf_secretsecretsecret"})
    many = edit(flags=(*flags, *image), fields={"replicas": 6, "strategy": {"type": "RollingUpdate"}})
    in_words = str(many)
    assert in_words.startswith("--max-num-seqs 14, no --enforce-eager, image vllm/vllm-openai:v0.32.0, HF_TOKEN ")
    assert in_words.endswith(", replicas: 6")
    assert "hf_secret" not in in_words
