"""The meaning of answers to a call, and how the stamp gets onto an object; no server needed."""

from __future__ import annotations

import pytest

from bot.adapters.kubernetes.client import Answer
from bot.adapters.kubernetes.requests import http_request, outcome, patch_body, seen_in
from bot.domain.changes.plan import Call
from bot.domain.cluster.objects import ObjectRef
from bot.domain.cluster.snapshot import Obj
from bot.flow.ports.cluster import EarlierAttempt, Sent

pytestmark = pytest.mark.fast
LLM = ObjectRef(kind="Deployment", namespace="serving", name="llm", uid="u1")
TO_FIVE = [
    {"op": "test", "path": "/metadata/uid", "value": "u1"},
    {"op": "test", "path": "/spec/replicas", "value": 4},
    {"op": "replace", "path": "/spec/replicas", "value": 5},
]


def call(method: str = "patch", **fields: object) -> Call:
    return Call.model_validate({"method": method, "target": LLM, "body": TO_FIVE, "title": "x"} | fields)


def status(code: int, message: str = "said", **headers: str) -> Answer:
    return Answer(code, {"kind": "Status", "message": message}, headers)


NOT_OURS = "not the API server's answer"
WEBHOOK = 'Internal error occurred: failed calling webhook "pods.kyverno.svc": failed to call webhook: Post "x": EOF'
TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


@pytest.mark.parametrize(
    ("method", "answer", "expected"),
    [
        pytest.param("patch", status(200), Sent("done"), id="200"),
        pytest.param("create", status(201), Sent("done"), id="201"),
        pytest.param("delete", status(404), Sent("done", f"{LLM} was gone already"), id="delete-of-what-is-gone"),
        pytest.param("evict", status(404), Sent("done", f"{LLM} was gone already"), id="evict-of-what-is-gone"),
        pytest.param("patch", status(404), Sent("failed", "404 said"), id="patch-of-what-is-gone"),
        pytest.param("evict", status(429), Sent("failed", "429 said", 10.0), id="429-without-a-time"),
        pytest.param("evict", status(429, **{"Retry-After": "3"}), Sent("failed", "429 said", 3.0), id="429-with-one"),
        pytest.param("evict", status(500, TWO), Sent("failed", f"500 {TWO}"), id="two-budgets"),
        pytest.param("evict", status(500), Sent("unclear", "500 said"), id="any-other-500"),
        *(
            pytest.param(method, status(500, WEBHOOK), Sent("failed", f"500 {WEBHOOK}", 10.0), id=f"webhook-{method}")
            for method in ("patch", "create", "delete", "evict")
        ),
        pytest.param("patch", status(503), Sent("unclear", "503 said"), id="503"),
        pytest.param("patch", status(504), Sent("unclear", "504 said"), id="504"),
        pytest.param(
            "patch",
            status(401),
            Sent("failed", "401 said: the API server does not accept the bot's credentials"),
            id="401",
        ),
        pytest.param(
            "evict", Answer(200, "<h1>Log in</h1>"), Sent("unclear", f"{NOT_OURS}: 200 <h1>Log in</h1>"), id="login"
        ),
        pytest.param("delete", Answer(404, "no route"), Sent("failed", "404 no route"), id="404-of-a-proxy"),
        pytest.param("patch", status(403), Sent("failed", "403 said"), id="403"),
        pytest.param("patch", status(415), Sent("failed", "415 said"), id="415"),
    ],
)
def test_an_answer_means_done_failed_or_unclear(method: str, answer: Answer, expected: Sent) -> None:
    assert outcome(call(method), answer) == expected


@pytest.mark.parametrize("code", [409, 422])
def test_a_conflict_is_reported_as_one(code: int) -> None:
    sent = outcome(call(), status(code))
    assert (sent.result, "changed by somebody else" in sent.detail) == ("failed", True)


def obj(replicas: int = 4, **metadata: object) -> Obj:
    return {"metadata": {"uid": "u1", "resourceVersion": "7"} | metadata, "spec": {"replicas": replicas}}


def test_a_stamp_is_added_to_the_annotations_that_are_there() -> None:
    body = patch_body(call(), call_id="INC-1/R1/0", present=obj(annotations={"a": "b"}))
    assert body[-1] == {"op": "add", "path": "/metadata/annotations/incident-bot~1call", "value": "INC-1/R1/0"}
    assert body[:-1] == TO_FIVE


def test_without_annotations_their_map_is_made_only_if_nobody_else_makes_one_meanwhile() -> None:
    body = patch_body(call(), call_id="INC-1/R1/0", present=obj())
    assert body[:2] == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
    ]


def test_the_scale_subresource_takes_no_stamp() -> None:
    assert patch_body(call(stamped=False, subresource="scale"), call_id="x", present=obj()) == TO_FIVE


def test_scaling_from_none_tests_that_the_number_is_absent() -> None:
    uid: Obj = {"op": "test", "path": "/metadata/uid", "value": "u1"}
    from_none = [
        uid,
        {"op": "test", "path": "/spec/replicas", "value": 0},
        {"op": "replace", "path": "/spec/replicas", "value": 5},
    ]
    body = patch_body(call(stamped=False, subresource="scale", body=from_none), call_id="x", present=obj(0))
    assert body == [
        uid,
        {"op": "test", "path": "/spec/replicas", "value": None},
        {"op": "add", "path": "/spec/replicas", "value": 5},
    ]


def test_a_delete_names_the_uid_that_it_is_about() -> None:
    request = http_request(call("delete", body={"propagationPolicy": "Background"}), call_id="x", present=None)
    assert request.body["preconditions"] == {"uid": "u1"}
    assert request.body["propagationPolicy"] == "Background"


STAMPED = {"incident-bot/call": "INC-1/R1/0"}


@pytest.mark.parametrize(
    ("method", "present", "expected"),
    [
        pytest.param("patch", obj(), "not_done", id="before"),
        pytest.param("patch", obj(5), "done", id="after"),
        pytest.param("patch", obj(9, annotations=STAMPED), "done", id="stamped-and-changed-since"),
        pytest.param("patch", obj(4, annotations=STAMPED), "unclear", id="stamped-in-another-life-or-taken-back"),
        pytest.param("patch", obj(9), "unclear", id="neither"),
        pytest.param("patch", obj(uid="u2"), "unclear", id="another-object"),
        pytest.param("patch", None, "unclear", id="gone"),
        pytest.param("delete", obj(), "not_done", id="delete-there"),
        pytest.param("delete", None, "done", id="delete-gone"),
        pytest.param("delete", obj(uid="u2"), "done", id="delete-gone-and-made-again"),
        pytest.param("evict", obj(deletionTimestamp="now"), "done", id="evict-ending"),
        pytest.param("create", None, "not_done", id="create-not-there"),
        pytest.param("create", obj(annotations=STAMPED), "done", id="create-ours"),
        pytest.param("create", obj(), "unclear", id="create-somebody-elses"),
    ],
)
def test_the_object_says_what_an_earlier_attempt_did(
    method: str, present: Obj | None, expected: EarlierAttempt
) -> None:
    assert seen_in(call(method), present, call_id="INC-1/R1/0") == expected
