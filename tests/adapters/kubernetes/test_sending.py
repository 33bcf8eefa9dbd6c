"""The writer between the reader and the API server: its checks, its retries, and the meaning of each answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from bot.adapters.kubernetes.client import Answer, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.writer import ANNOTATION_RACES, NOT_SENT_RETRY_SECONDS, KubernetesWriter
from bot.domain.approvals.grant import Approved, grant
from bot.domain.changes.plan import Call
from bot.domain.cluster.objects import CALL_ANNOTATION
from bot.domain.cluster.snapshot import Obj
from bot.domain.kernel.errors import ApprovalError, ClusterError
from bot.flow.ports.cluster import Sent
from tests import builders

pytestmark = pytest.mark.fast
CALL_ID = "INC-1/R1/0"
OK, CONFLICT = Answer(200, {"kind": "Deployment"}), Answer(409, {"kind": "Status", "message": "conflict"})
LLM = builders.call().target


def llm(*, replicas: int = 4, **annotations: str) -> Obj:
    return stamped(annotations, replicas=replicas)


def stamped(annotations: dict[str, str], *, replicas: int = 4) -> Obj:
    metadata = {"name": "llm", "namespace": "serving", "uid": "u1", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "spec": {"replicas": replicas}}


@dataclass
class Server:
    """An API server that answers in turn, and shows one object."""

    answers: list[Answer | Exception] = field(default_factory=lambda: [OK])
    present: Obj | ClusterError | None = field(default_factory=lambda: llm(note="there are others"))
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    looked_for: list[tuple[str, str, str]] = field(default_factory=list)

    async def request(self, method: str, path: str, *, query: Any, body: Any, deadline_seconds: float) -> Answer:
        self.asked.append((method, path, query))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def find(self, kind: str, namespace: str, name: str, *, insists: bool = False) -> Obj | None:
        self.looked_for.append((kind, namespace, name))
        if isinstance(self.present, ClusterError):
            raise self.present
        return self.present

    @property
    def writer(self) -> KubernetesWriter:
        return KubernetesWriter(cast(Any, self), cast(Any, self))


def approved(call: Call) -> Approved:
    plan = builders.plan(steps=(call,))
    return grant(builders.request(plan=plan), (builders.judged_press(digest=plan.digest),))


async def sent(server: Server, call: Call | None = None) -> Sent:
    wanted = call or builders.call()
    return await server.writer.send(approved(wanted), wanted, call_id=CALL_ID)


async def test_what_was_not_approved_is_never_sent() -> None:
    server = Server()
    with pytest.raises(ApprovalError, match="not a call of the approved plan: other"):
        await server.writer.send(approved(builders.call()), builders.call(title="other"), call_id=CALL_ID)
    assert (server.asked, server.looked_for) == ([], [])


@pytest.mark.parametrize("method", ["patch", "delete", "evict"])
async def test_a_call_that_could_hit_another_object_is_not_sent(method: str) -> None:
    server = Server()
    nameless = builders.call(method=method, target=LLM.model_copy(update={"uid": ""}))
    reason = "Deployment serving/llm has no uid: without it the call could hit another object"
    assert await sent(server, nameless) == Sent("failed", reason)
    assert server.asked == []


async def test_a_patch_looks_and_is_sent_once() -> None:
    server = Server()
    assert await sent(server) == Sent("done")
    assert server.looked_for == [("Deployment", "serving", "llm")]
    path = "/apis/apps/v1/namespaces/serving/deployments/llm"
    assert server.asked == [("PATCH", path, {"fieldManager": "incident-bot", "fieldValidation": "Strict"})]


@pytest.mark.parametrize(
    ("present", "why", "retry"),
    [
        (None, "Deployment serving/llm does not exist any more", None),
        (llm(replicas=7), "changed by somebody else: /spec/replicas is 7, expected 4", None),
        (ClusterError("timed out"), "nothing was sent: timed out", NOT_SENT_RETRY_SECONDS),
    ],
)
async def test_a_patch_that_cannot_win_is_not_sent(present: Any, why: str, retry: float | None) -> None:
    server = Server(present=present)
    assert await sent(server) == Sent("failed", why, retry)
    assert server.asked == []


async def test_a_race_for_what_is_absent_is_lost_so_often_and_no_more() -> None:
    server = Server(answers=[CONFLICT] * 9, present=llm())
    found = await sent(server)
    assert (found.result, "changed by somebody else" in found.detail) == ("failed", True)
    assert (len(server.asked), len(server.looked_for)) == (ANNOTATION_RACES, ANNOTATION_RACES)


@pytest.mark.parametrize("lost", [409, 422])
async def test_a_race_for_what_is_absent_may_be_won_the_second_time(lost: int) -> None:
    server = Server(answers=[Answer(lost, {"message": "changed"}), OK], present=llm())
    assert await sent(server) == Sent("done")
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("answer", "present"),
    [
        pytest.param(CONFLICT, llm(note="there are others"), id="no-race-for-what-is-absent"),
        pytest.param(Answer(403, {"kind": "Status", "message": "forbidden"}), llm(), id="no-conflict"),
        pytest.param(Answer(503, {"kind": "Status", "message": "busy"}), llm(), id="nobody-knows"),
    ],
)
async def test_anything_else_is_sent_once(answer: Answer, present: Obj) -> None:
    server = Server(answers=[answer, OK], present=present)
    assert (await sent(server)).result != "done"
    assert len(server.asked) == 1


@pytest.mark.parametrize("method", ["patch", "delete", "evict"])
@pytest.mark.parametrize(
    ("error", "result", "retry"),
    [
        (NotSentError("no connection"), "failed", NOT_SENT_RETRY_SECONDS),
        (NoAnswerError("cut off"), "unclear", None),
    ],
)
async def test_no_answer_is_a_failure_only_where_certainly_nothing_was_sent(
    method: str, error: Exception, result: Any, retry: float | None
) -> None:
    server = Server(answers=[error, OK], present=llm())
    body = builders.call().body if method == "patch" else {}
    assert await sent(server, builders.call(method=method, body=body)) == Sent(result, str(error), retry)
    assert len(server.asked) == 1


async def test_a_delete_does_not_look_first() -> None:
    server = Server(present=ClusterError("must not be read"))
    assert await sent(server, builders.call(method="delete", body={})) == Sent("done")
    assert [method for method, _, _ in server.asked] == ["DELETE"]


# --- creating ---------------------------------------------------------------------------------------------------------

NEW = builders.call(method="create", target=LLM.model_copy(update={"uid": ""}), body={"metadata": {"name": "llm"}})


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        pytest.param(
            stamped({CALL_ANNOTATION: CALL_ID}),
            Sent("done", "was created by an earlier attempt of this call"),
            id="ours",
        ),
        pytest.param(
            llm(), Sent("failed", "there is one already, made by somebody else: 409 conflict"), id="somebody-elses"
        ),
        pytest.param(
            stamped({CALL_ANNOTATION: "INC-1/R0/0"}),
            Sent("failed", "there is one already, made by somebody else: 409 conflict"),
            id="of-another-call",
        ),
        pytest.param(
            ClusterError("timed out"),
            Sent("unclear", "there is one already, and whose it is cannot be read: timed out"),
            id="not-to-be-read",
        ),
    ],
)
async def test_what_is_there_already_is_ours_only_with_our_stamp(present: Any, expected: Sent) -> None:
    assert await sent(Server(answers=[CONFLICT], present=present), NEW) == expected


async def test_what_is_new_is_created_without_a_look() -> None:
    server = Server(answers=[Answer(201, {"kind": "Deployment"})], present=ClusterError("must not be read"))
    assert await sent(server, NEW) == Sent("done")


async def test_a_conflict_of_anything_but_a_creation_is_a_failure() -> None:
    server = Server(answers=[CONFLICT], present=stamped({CALL_ANNOTATION: CALL_ID}))
    found = await sent(server, builders.call(method="delete", body={}))
    assert (found.result, found.detail.startswith("changed by somebody else, or not valid")) == ("failed", True)


async def test_a_creation_that_is_refused_is_not_looked_for() -> None:
    server = Server(
        answers=[Answer(403, {"kind": "Status", "message": "forbidden"})], present=stamped({CALL_ANNOTATION: CALL_ID})
    )
    assert await sent(server, NEW) == Sent("failed", "403 forbidden")


# --- looking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("present", "seen"),
    [
        (llm(), "not_done"),
        (llm(replicas=5), "done"),
        (llm(replicas=7), "unclear"),
        (ClusterError("timed out"), "unclear"),
    ],
)
async def test_an_earlier_attempt_is_read_from_the_object(present: Any, seen: str) -> None:
    assert await Server(present=present).writer.look(builders.call(), call_id=CALL_ID) == seen
