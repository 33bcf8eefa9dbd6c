"""The patch languages and the selectors, as tables."""

from typing import Any

import pytest

from bot.domain.cluster.json_patch import PatchError
from bot.sandbox.kubernetes.errors import ApiError
from bot.sandbox.kubernetes.patches import json_patch, merge_patch, strategic_merge_patch
from bot.sandbox.kubernetes.quantities import canonical, resolve_int_or_percent
from bot.sandbox.kubernetes.resources import PODS
from bot.sandbox.kubernetes.selectors import field_selector, label_selector, matches, selector_text

pytestmark = pytest.mark.fast

Obj = dict[str, Any]


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        pytest.param({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}, id="add-key"),
        pytest.param({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}, id="append"),
        pytest.param({"a": [1]}, {"op": "add", "path": "/a/0", "value": 0}, {"a": [0, 1]}, id="insert"),
        pytest.param({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}, id="remove"),
        pytest.param({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}, id="replace"),
        pytest.param({"a/b": 1}, {"op": "replace", "path": "/a~1b", "value": 2}, {"a/b": 2}, id="escaped-slash"),
        pytest.param({"a~b": 1}, {"op": "replace", "path": "/a~0b", "value": 2}, {"a~b": 2}, id="escaped-tilde"),
        pytest.param({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}, id="move"),
        pytest.param({"a": 1}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": 1, "b": 1}, id="copy"),
        pytest.param(
            {"a": {"b": [1]}}, {"op": "test", "path": "/a", "value": {"b": [1]}}, {"a": {"b": [1]}}, id="test"
        ),
        pytest.param({"a": 1}, {"op": "test", "path": "/a", "value": 1.0}, {"a": 1}, id="json-has-one-number-type"),
        pytest.param({"a": 1}, {"op": "test", "path": "/b", "value": None}, {"a": 1}, id="null-is-absent"),
        pytest.param({}, {"op": "replace", "path": "/a", "value": 1}, {"a": 1}, id="replace-sets-what-is-absent"),
    ],
)
def test_a_json_patch_operation_does_what_kube_apiserver_does(document: Obj, operation: Obj, expected: Obj) -> None:
    assert json_patch(document, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "test", "path": "/a", "value": 2}, id="test-fails"),
        pytest.param({"op": "test", "path": "/a", "value": True}, id="true-is-not-1"),
        pytest.param({"op": "test", "path": "/none", "value": 1}, id="test-of-nothing"),
        pytest.param({"op": "test", "path": "/none/deep", "value": None}, id="test-below-nothing"),
        pytest.param({"op": "remove", "path": "/none"}, id="remove-nothing"),
        pytest.param({"op": "replace", "path": "/list/3", "value": 1}, id="replace-beyond-the-end"),
        pytest.param({"op": "add", "path": "/none/deep", "value": 1}, id="no-parent"),
        pytest.param({"op": "add", "path": "/list/5", "value": 1}, id="beyond-the-end"),
        pytest.param({"op": "add", "path": "/list/x", "value": 1}, id="no-index"),
        pytest.param({"op": "add", "path": "a", "value": 1}, id="no-pointer"),
        pytest.param({"op": "add", "path": "/b"}, id="no-value"),
        pytest.param({"op": "shake", "path": "/a"}, id="unknown-operation"),
    ],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(operation: Obj) -> None:
    document: Obj = {"a": 1, "list": [1]}
    with pytest.raises(PatchError):
        json_patch(document, [{"op": "add", "path": "/first", "value": 1}, operation])
    assert document == {"a": 1, "list": [1]}


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": None}, {"b": 2}, id="null-deletes"),
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="objects-merge"),
        pytest.param({"a": [1, 2]}, {"a": [3]}, {"a": [3]}, id="lists-replace"),
        pytest.param({"a": 1}, {"b": {"c": None, "d": 1}}, {"a": 1, "b": {"d": 1}}, id="nulls-in-new-objects"),
    ],
)
def test_a_merge_patch_does_what_rfc_7386_says(document: Obj, patch: Obj, expected: Obj) -> None:
    assert merge_patch(document, patch) == expected


@pytest.mark.parametrize(
    ("document", "patch", "expected"),
    [
        pytest.param(
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            id="env-by-name",
        ),
        pytest.param(
            {"ports": [{"containerPort": 80, "name": "a"}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            {"ports": [{"containerPort": 80, "name": "b"}]},
            id="container-ports-by-number",
        ),
        pytest.param(
            {"ports": [{"port": 80, "targetPort": 1}]},
            {"ports": [{"port": 80, "targetPort": 2}]},
            {"ports": [{"port": 80, "targetPort": 2}]},
            id="service-ports-by-number",
        ),
        pytest.param(
            {"volumeMounts": [{"mountPath": "/a", "name": "x"}]},
            {"volumeMounts": [{"mountPath": "/a", "$patch": "delete"}]},
            {"volumeMounts": []},
            id="delete-by-key",
        ),
        pytest.param(
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "b"}]},
            id="tolerations-have-no-key-and-are-replaced",
        ),
        pytest.param({"args": ["a", "b"]}, {"args": ["c"]}, {"args": ["c"]}, id="args-are-replaced"),
        pytest.param(
            {"env": [{"name": "A"}, {"name": "B"}]},
            {"env": [{"$patch": "replace"}, {"name": "C"}]},
            {"env": [{"name": "C"}]},
            id="replace-directive",
        ),
        pytest.param(
            {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}},
            {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
            {"strategy": {"type": "Recreate"}},
            id="retain-keys",
        ),
        pytest.param(
            {"finalizers": ["a", "b"]},
            {"$deleteFromPrimitiveList/finalizers": ["a"]},
            {"finalizers": ["b"]},
            id="primitive-list",
        ),
        pytest.param(
            {"conditions": [{"type": "Ready", "status": "False"}]},
            {"$setElementOrder/conditions": [{"type": "Ready"}], "conditions": [{"type": "Ready", "status": "True"}]},
            {"conditions": [{"type": "Ready", "status": "True"}]},
            id="element-order-is-only-an-order",
        ),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}, id="delete-an-object"),
    ],
)
def test_a_strategic_patch_knows_the_keyed_lists(document: Obj, patch: Obj, expected: Obj) -> None:
    assert strategic_merge_patch(document, patch) == expected


def test_a_keyed_entry_without_its_key_is_refused() -> None:
    with pytest.raises(PatchError, match="merge key: name"):
        strategic_merge_patch({"env": [{"name": "A"}]}, {"env": [{"value": "1"}]})


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        pytest.param("app=llm", {"app": "llm"}, True, id="equal"),
        pytest.param("app==llm,tier!=x", {"app": "llm"}, True, id="absent-is-not-equal"),
        pytest.param("zone in (a, b)", {"zone": "b"}, True, id="in"),
        pytest.param("zone in (a, b)", {}, False, id="in-needs-the-key"),
        pytest.param("zone notin (a)", {}, True, id="notin-holds-without-the-key"),
        pytest.param("gone", {"gone": ""}, True, id="exists"),
        pytest.param("!gone", {"gone": ""}, False, id="does-not-exist"),
        pytest.param("example.com/a-b=c.d", {"example.com/a-b": "c.d"}, True, id="prefixed"),
    ],
)
def test_a_label_selector_reads_as_documented(selector: str, labels: dict[str, str], expected: bool) -> None:
    assert label_selector(selector)({"metadata": {"labels": labels}}) is expected


@pytest.mark.parametrize("selector", ["app=(x", "a b", "=x", "in (a)"])
def test_a_label_selector_that_cannot_be_read_is_refused(selector: str) -> None:
    with pytest.raises(ApiError) as raised:
        label_selector(selector)
    assert raised.value.code == 400


def test_a_field_selector_takes_only_fields_of_that_kind() -> None:
    selects = field_selector(PODS, "status.phase!=Failed,spec.nodeName=n1")
    assert selects({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}})
    assert not selects({"spec": {}, "status": {"phase": "Running"}})
    with pytest.raises(ApiError, match="field label not supported"):
        field_selector(PODS, "involvedObject.name=x")


def test_a_selector_object_means_the_same_as_its_text() -> None:
    selector = {
        "matchLabels": {"app": "llm"},
        "matchExpressions": [
            {"key": "zone", "operator": "In", "values": ["b", "a"]},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    text = selector_text(selector)
    assert text == "app=llm,zone in (a,b),!old"
    for labels in ({"app": "llm", "zone": "a"}, {"app": "llm"}, {"app": "llm", "zone": "a", "old": "1"}):
        assert matches(selector, labels) is label_selector(text)({"metadata": {"labels": labels}})


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("3000", "3k"),
        (3000, "3k"),
        ("1000000", "1M"),
        ("1500", "1500"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("64Gi", "64Gi"),
        ("2048", "2048"),
        ("1000m", "1"),
        ("1e3", "1e3"),
        ("12e1", "120"),
        ("1E4", "10e3"),
        ("1E", "1E"),
        ("0.1n", "1n"),
        ("0Gi", "0"),
        ("+4", "4"),
        ("-3000", "-3k"),
        ("5.", "5"),
    ],
)
def test_a_quantity_is_stored_in_its_canonical_form(written: str | int, stored: str) -> None:
    assert canonical(written) == stored


def test_surge_rounds_up_and_unavailability_down() -> None:
    assert resolve_int_or_percent("25%", 3, round_up=True) == 1
    assert resolve_int_or_percent("25%", 3, round_up=False) == 0
    assert resolve_int_or_percent(2, 3, round_up=False) == 2
