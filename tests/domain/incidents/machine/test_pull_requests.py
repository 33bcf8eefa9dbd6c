"""A pull request with a patch for the owner of a workload: opened once, and only for who may approve."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.approvals.grant import Authority
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.changes.plan import PlanResult
from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import EffectFailed, PullRequestSettled
from bot.domain.incidents.offered_patch import edit_of, to_commit
from bot.domain.incidents.run import Halt, PullRequest
from tests import builders
from tests.domain.incidents.machine.steps import Story

pytestmark = pytest.mark.fast

MAY = Authority(allowed=True, reason="is in @serving", teams=("approvers",), read_at=0.0)
PLACE = "example/deploy: production/llm.yaml"
URL = "https://github.test/example/deploy/pull/7"


def edit(**fields: Any) -> OwnersEdit:
    return OwnersEdit.model_validate(
        {"kind": "Deployment", "namespace": "serving", "name": "llm", "fields": {"replicas": 6}, "file": PLACE} | fields
    )


def handed_out(**fields: Any) -> Story:
    """The owner of the workload has to scale it; the patch is in the thread."""
    known = {"owners_edit": edit()} | fields
    result = PlanResult(outcome="impossible", reason="Argo CD would revert it", hint="spec:\n  replicas: 6", **known)
    return Story().opened().reads(0.95).chooses("grow").planned(result)


def slot(story: Story) -> str:
    return next(post.slot for post in reversed(story.run.posts) if post.kind == "outcome")


def wanted(story: Story | None = None, **fields: Any) -> Story:
    story = story or handed_out()
    return story.says("pull_request", **{"to": fields.get("to") or slot(story), "authority": MAY} | fields)


def settled(story: Story, **fields: Any) -> Story:
    story.happens(PullRequestSettled(event_id=story.id(), slot=slot(story), user="ana", **fields))
    return story


def has_effect(story: Story) -> bool:
    return OpenPullRequest in {type(effect) for effect in story.last.effects}


def test_a_patch_offers_a_pull_request_where_its_file_is_known() -> None:
    offered = [edit_of(story.run, slot(story)) for story in (handed_out(), handed_out(owners_edit=edit(file="")))]
    assert offered == [edit(), None]
    nothing = handed_out(owners_edit=None)
    assert edit_of(nothing.run, slot(nothing)) is None


def test_a_patch_with_a_secret_offers_none_since_its_masked_value_would_be_committed() -> None:
    secret = edit(fields={}, flags=[{"env": "HF_TOKEN", "value": "hf_abcdefghijklmnopqrstuvwxyz0123456789"}])
    story = handed_out(owners_edit=secret)
    assert edit_of(story.run, slot(story)) is None


def test_what_was_wanted_is_opened_and_linked_in_the_message_with_the_patch() -> None:
    story = wanted()
    effect = story.wanted(OpenPullRequest)
    assert (effect.edit, effect.slot, effect.wanted_by, effect.visit) == (edit(), slot(story), "ana", None)
    assert story.run.pull_requests == {slot(story): PullRequest(by="ana", effect_id=effect.effect_id)}
    settled(story, url=URL)
    assert story.run.pull_requests == {slot(story): PullRequest(by="ana", url=URL)}
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
    reason = story.run.pull_requests[slot(story)].reason
    assert reason.startswith("GitHub answers HTTP 503")
    assert "hunter2hunter2" not in reason
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
    assert story.run.pull_requests[slot(story)].url == URL


def test_a_patch_is_moot_once_its_incident_is_closed() -> None:
    story = wanted(handed_out().says("resolve"))
    assert not has_effect(story)


def drifting(**fields: Any) -> Story:
    """A change that was applied, and that a Helm release does not know of."""
    planned = builders.plan(commit="spec:\n  replicas: 6", owners_edit=edit(), **fields)
    return Story().opened().reads(0.95).chooses("grow").planned(PlanResult(outcome="planned", plan=planned)).posted()


def of_request(story: Story) -> str:
    return next(post.slot for post in reversed(story.run.posts) if post.kind == "request")


def test_a_text_to_commit_offers_one_once_the_change_is_in_force_also_after_the_end() -> None:
    story = drifting()
    assert edit_of(story.run, of_request(story)) is None
    story.presses("approve").settles()
    assert edit_of(story.run, of_request(story)) == edit()
    story.says("resolve")
    if story.run.is_open:
        story.chooses("close")
    wanted(story, to=of_request(story))
    assert story.wanted(OpenPullRequest).edit == edit()


def test_a_change_that_was_taken_back_is_not_committed() -> None:
    story = drifting().presses("approve").settles()
    undone = [entry.model_copy(update={"undone_by": "INC-1/R9/0"}) for entry in story.run.ledger]
    story.run = story.run.with_(ledger=tuple(undone))
    assert edit_of(story.run, of_request(story)) is None


def changed_again(first: OwnersEdit, later: OwnersEdit) -> Story:
    """Two changes in force, of which the owner of the workload has none."""
    story = drifting().presses("approve").settles()
    [request] = story.run.requests.values()
    made = {
        name: request.model_copy(
            update={"request_id": name, "plan": request.plan.model_copy(update={"owners_edit": owners})}
        )
        for name, owners in ((request.request_id, first), ("R9", later))
    }
    entry = story.run.ledger[0].model_copy(update={"call_id": "INC-1/R9/0"})
    story.run = story.run.with_(requests=made, ledger=(*story.run.ledger, entry))
    return story


SEQS, SEED = {"flag": "--max-num-seqs", "value": 9}, {"flag": "--seed", "value": 1}


@pytest.mark.parametrize(
    ("first", "later", "is_proposed", "listed"),
    [
        pytest.param(edit(), edit(fields={"replicas": 8}), False, 1, id="all-of-it"),
        pytest.param(edit(flags=[SEQS, SEED]), edit(fields={}, flags=[SEQS]), False, 2, id="a-part-of-it"),
        pytest.param(edit(), edit(fields={}, flags=[SEQS]), True, 2, id="something-else"),
        pytest.param(edit(), edit(name="chat", fields={"replicas": 8}), True, 2, id="of-another-object"),
    ],
)
def test_what_a_later_change_replaced_is_not_committed(
    first: OwnersEdit, later: OwnersEdit, *, is_proposed: bool, listed: int
) -> None:
    story = changed_again(first, later)
    assert (edit_of(story.run, of_request(story)) is not None) == is_proposed
    assert [each.request_id for each in to_commit(story.run)] == list(story.run.requests)[-listed:]


def test_an_edit_in_words_names_what_changes_and_no_secret() -> None:
    flags = ({"flag": "--max-num-seqs", "value": 14}, {"flag": "--enforce-eager", "value": None})
    image = ({"image": "vllm/vllm-openai:v0.32.0"}, {"env": "HF_TOKEN", "value": "hf_secretsecretsecret"})
    many = edit(flags=(*flags, *image), fields={"replicas": 6, "strategy": {"type": "RollingUpdate"}})
    in_words = str(many)
    assert in_words.startswith("--max-num-seqs 14, no --enforce-eager, image vllm/vllm-openai:v0.32.0, HF_TOKEN ")
    assert in_words.endswith(", replicas: 6")
    assert "hf_secret" not in in_words


def test_a_pull_request_that_was_given_up_may_be_wanted_again() -> None:
    story = wanted()
    effect_id = story.run.pull_requests[slot(story)].effect_id
    failed = EffectFailed(event_id="x", effect_id=effect_id, effect_kind="open_pull_request", reason="no answer")
    story.happens(failed)
    assert story.run.pull_requests[slot(story)].reason == "no answer"
    assert has_effect(wanted(story))
