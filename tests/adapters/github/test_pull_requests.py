"""Pull requests over HTTP against a double that behaves as GitHub does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from bot.adapters.github.pull_requests import PullRequests
from bot.domain.changes.kept_in import KeptIn
from bot.domain.changes.owners_edit import OwnersEdit
from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import PullRequestSettled
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import RepositoryError, SecretFileError
from bot.domain.kernel.target import Target
from bot.flow.handlers.pull_request import ATTEMPTS, UNSET, PullRequestHandler, proposal
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.repositories import Proposal
from bot.flow.ports.storage import Owed
from bot.sandbox.github import Fault, GitHubRoutes, Repository
from bot.sandbox.plain_http import async_http
from tests import builders
from tests.adapters.slack.runs import post
from tests.kit.served import served

pytestmark = pytest.mark.fast
TOKEN = "github_pat_of_the_bot"
MANIFEST = """\
kind: Deployment
metadata: {name: llm, namespace: serving}
spec:
  replicas: 4  # one for each node
"""
FILE = "production/llm.yaml"
TARGET = Target(cluster="east", namespace="serving", kind="Deployment", name="llm")
EDIT = OwnersEdit(kind="Deployment", namespace="serving", name="llm", fields={"replicas": 6})
PROPOSAL = Proposal(TARGET, EDIT, "incident-bot/inc-1-0a1b2c3d", "llm: replicas: 6", "**INC-1**: `llm preempts`")


def kept(**fields: Any) -> KeptIn:
    return KeptIn.model_validate({"targets": ("serving/*",), "repository": "example/deploy", "path": FILE} | fields)


@dataclass
class Lab:
    url: str
    github: Repository
    http: httpx.AsyncClient

    def repositories(self, *files: KeptIn, token: str = TOKEN) -> PullRequests:
        return PullRequests(self.http, self.url, lambda: token, files or (kept(),))

    @property
    def proposed(self) -> Mapping[str, str]:
        """The files of the proposal's branch."""
        return self.github.branches[PROPOSAL.branch]


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    github = Repository(
        "example/deploy", TOKEN, {FILE: MANIFEST, "production/chat.yaml": "a: 1\n", "large.yaml": "#" * 1_000_001}
    )
    async with served(GitHubRoutes(github).routes()) as url, async_http() as http:
        yield Lab(url, github, http)


async def test_a_pull_request_has_the_edit_and_nothing_else(lab: Lab) -> None:
    url = await lab.repositories().propose(PROPOSAL)
    assert url == f"{lab.url}/example/deploy/pull/1"
    [pull] = lab.github.pulls
    assert (pull.title, pull.body, pull.head, pull.base) == (
        PROPOSAL.title, PROPOSAL.body, PROPOSAL.branch, "main",
    )  # fmt: skip
    assert lab.proposed == lab.github.branches["main"] | {FILE: MANIFEST.replace("replicas: 4", "replicas: 6")}
    assert lab.github.commits == [(PROPOSAL.branch, PROPOSAL.title)]


@pytest.mark.parametrize("lost", range(8))
async def test_a_lost_answer_leads_to_the_same_pull_request(lab: Lab, lost: int) -> None:
    """Whichever of the requests it belongs to."""
    lab.github.faults.append(Fault(lost=True, after=lost))
    repositories = lab.repositories()
    with pytest.raises(RepositoryError) as failed:
        await repositories.propose(PROPOSAL)
    assert not failed.value.lasting
    urls = [await repositories.propose(PROPOSAL) for _ in range(2)]
    assert set(urls) == {f"{lab.url}/example/deploy/pull/1"}
    assert len(lab.github.pulls) == len(lab.github.commits) == 1


async def test_a_pull_request_that_was_merged_or_closed_is_not_opened_again(lab: Lab) -> None:
    url = await lab.repositories().propose(PROPOSAL)
    lab.github.merge(1)
    assert await lab.repositories().propose(PROPOSAL) == url
    assert len(lab.github.pulls) == 1


async def test_the_branch_that_is_deployed_is_the_one_of_the_settings(lab: Lab) -> None:
    lab.github.branches["production"] = {FILE: MANIFEST.replace("4", "5")}
    await lab.repositories(kept(branch="production")).propose(PROPOSAL)
    assert lab.github.pulls[0].base == "production"
    assert lab.proposed == {FILE: MANIFEST.replace("replicas: 4", "replicas: 6")}


async def test_of_two_files_for_a_target_the_later_one_counts(lab: Lab) -> None:
    files = (kept(), kept(targets=("serving/llm",), path="production/chat.yaml"))
    assert lab.repositories(*files).file_of(TARGET) == "example/deploy: production/chat.yaml"
    assert lab.repositories(*files).file_of(replace_name(TARGET, "chat")) == f"example/deploy: {FILE}"
    assert lab.repositories(kept(targets=("chat/*",))).file_of(TARGET) == ""


def replace_name(target: Target, name: str) -> Target:
    return target.model_copy(update={"name": name})


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        pytest.param(
            kept(path="gone.yaml"), "HTTP 404 to repos/example/deploy/contents/gone.yaml: Not Found", id="404"
        ),
        pytest.param(kept(path="production"), "example/deploy: production is a folder", id="folder"),
        pytest.param(kept(path="large.yaml"), "is no file, or one of more than a megabyte", id="large"),
        pytest.param(kept(path="production/chat.yaml"), "it has no Deployment serving/llm", id="another-object"),
        pytest.param(kept(repository="example/other"), "HTTP 404", id="no-repository"),
        pytest.param(kept(targets=("chat/*",)), "the settings name no file for this target any more", id="no-file"),
    ],
)
async def test_what_cannot_work_is_not_tried_again(lab: Lab, file: KeptIn, reason: str) -> None:
    with pytest.raises(RepositoryError, match=reason) as refused:
        await lab.repositories(file).propose(PROPOSAL)
    assert refused.value.lasting
    assert list(lab.github.branches) == ["main"]


@pytest.mark.parametrize(
    ("fault", "lasting", "rest"),
    [
        pytest.param(Fault(503), False, 0.0, id="away"),
        pytest.param(Fault(429, headers={"Retry-After": "7"}), False, 7.0, id="too-many"),
        pytest.param(Fault(403, headers={"X-RateLimit-Remaining": "0"}), False, 0.0, id="limit"),
        pytest.param(Fault(403, headers={"Retry-After": "9999"}), False, 60.0, id="second-limit"),
        pytest.param(Fault(403, message="You have exceeded a secondary rate limit."), False, 60.0, id="said-limit"),
        pytest.param(Fault(403), True, 0.0, id="forbidden"),
        pytest.param(Fault(422), True, 0.0, id="refused"),
    ],
)
async def test_limits_and_outages_pass_and_refusals_do_not(lab: Lab, fault: Fault, lasting: bool, rest: float) -> None:
    lab.github.faults.append(replace(fault))
    with pytest.raises(RepositoryError) as failed:
        await lab.repositories().propose(PROPOSAL)
    assert (failed.value.lasting, failed.value.retry_after_seconds) == (lasting, rest)


async def test_a_wrong_token_and_one_without_permission_say_so_without_it(lab: Lab) -> None:
    with pytest.raises(RepositoryError, match="Bad credentials") as wrong:
        await lab.repositories(token="stolen").propose(PROPOSAL)
    assert "stolen" not in str(wrong.value)
    lab.github.may_push = False
    with pytest.raises(RepositoryError, match="not accessible by personal access token") as refused:
        await lab.repositories().propose(PROPOSAL)
    assert refused.value.lasting


async def test_a_token_file_that_is_gone_is_tried_again(lab: Lab) -> None:
    def gone() -> str:
        raise SecretFileError("'/run/token' cannot be read: No such file or directory")

    with pytest.raises(RepositoryError, match="the token: '/run/token' cannot be read") as failed:
        await PullRequests(lab.http, lab.url, gone, [kept()]).propose(PROPOSAL)
    assert not failed.value.lasting


@pytest.mark.parametrize("body", ["<html>a proxy</html>", "{}", "[]", '[{"html_url": "javascript:alert(1)"}]'])
async def test_what_another_server_answers_is_not_taken_for_a_pull_request(body: str) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=body))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(RepositoryError):
            await PullRequests(http, "https://github.test", lambda: TOKEN, [kept()]).propose(PROPOSAL)


async def test_the_doctor_reads_each_file_and_the_permission_to_write(lab: Lab) -> None:
    files = (kept(), kept(path="gone.yaml"))
    assert [found.grade for found in await lab.repositories(*files).check()] == ["fine", "broken"]
    lab.github.may_push = False
    [found] = await lab.repositories().check()
    assert (found.grade, found.what) == (
        "broken", f"example/deploy: {FILE}: the token may not write to example/deploy",
    )  # fmt: skip


# --- the effect ------------------------------------------------------------------------------------------------------

EFFECT = OpenPullRequest(effect_id="pull_request/1", slot="outcome:3:0", edit=EDIT, wanted_by="U0ANA")


def linked(slot: str) -> Callable[[str], Awaitable[Mapping[str, str]]]:
    """The addresses that the bot keeps."""
    wanted = "question:Q4" if slot.startswith("outcome:") else slot

    async def links(incident_id: str) -> Mapping[str, str]:
        return {"request:R2": "https://example.slack.com/other", wanted: "https://example.slack.com/archives/C1/p1"}

    return links


async def unlinked(incident_id: str) -> Mapping[str, str]:
    return {}


def context(run: Run | None = None, *, attempts: int = 0) -> EffectContext:
    known = run or builders.run(target=TARGET)
    return EffectContext(known, Owed(known.incident_id, EFFECT, attempts, token="t", run=known), 1_000.0)


async def test_the_effect_reports_the_address_of_the_pull_request(lab: Lab) -> None:
    handler = PullRequestHandler(lab.repositories(), unlinked, deployment="bot")
    for _ in range(2):
        done = await handler(context(), EFFECT)
        assert isinstance(done, Done)
        [event] = done.events
        assert isinstance(event, PullRequestSettled)
        assert (event.slot, event.url, event.user) == ("outcome:3:0", f"{lab.url}/example/deploy/pull/1", "U0ANA")
    assert len(lab.github.pulls) == 1


@pytest.mark.parametrize("slot", ["outcome:3:0", "request:R3"])
async def test_a_reviewer_finds_the_incident_in_slack(lab: Lab, slot: str) -> None:
    """By the request, or by the question below the patch: Slack's address of another message is not kept."""
    below = (
        post("request", "request:R2", "R2"), post("question", "question:Q4", "Q4"), post("note", "note:N5", "N5"),
    )  # fmt: skip
    effect = EFFECT.model_copy(update={"slot": slot})
    run = builders.run(target=TARGET, posts=below)
    await PullRequestHandler(lab.repositories(), linked(slot), deployment="bot")(context(run), effect)
    assert lab.github.pulls[0].body.startswith("[INC-1](<https://example.slack.com/archives/C1/p1>): ")


async def test_an_outage_is_waited_for_and_then_reported(lab: Lab) -> None:
    handler = PullRequestHandler(lab.repositories(), unlinked, deployment="bot")
    lab.github.faults.append(Fault(503, count=2))
    assert isinstance(await handler(context(), EFFECT), Later)
    done = await handler(context(attempts=ATTEMPTS - 1), EFFECT)
    assert isinstance(done, Done)
    [event] = done.events
    assert isinstance(event, PullRequestSettled)
    assert (event.url, "GitHub answers HTTP 503" in event.reason) == ("", True)


async def test_a_bot_whose_settings_name_no_file_any_more_says_so() -> None:
    done = await PullRequestHandler(None, unlinked, deployment="bot")(context(), EFFECT)
    assert isinstance(done, Done)
    assert [event.reason for event in done.events if isinstance(event, PullRequestSettled)] == [UNSET]


def test_two_bots_and_two_patches_have_branches_of_their_own() -> None:
    run = builders.run(target=TARGET)
    other = EFFECT.model_copy(update={"effect_id": "pull_request/2"})
    branches = {proposal(run, effect, bot).branch for effect in (EFFECT, other) for bot in ("bot", "bot-of-tests")}
    assert len(branches) == 4
    assert all(branch.startswith("incident-bot/inc-1-") for branch in branches)


def test_outside_text_in_a_pull_request_notifies_nobody() -> None:
    body = proposal(builders.run(diagnosis="`@everybody` #12 preempts", target=TARGET), EFFECT, "bot").body
    assert body.startswith("INC-1: `'@everybody' #12 preempts`")
