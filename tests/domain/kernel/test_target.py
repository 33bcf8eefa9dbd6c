"""Which cluster an alert or a stored target is about, which patterns are about a target, and how texts name it."""

from __future__ import annotations

import pytest

from bot.domain.kernel.errors import UnknownClusterError
from bot.domain.kernel.target import Target, checked_pattern, cluster_named, is_of, named_by

pytestmark = pytest.mark.fast

EAST = Target(cluster="east", namespace="serving", name="llm")
BOTH = ("east", "west")


@pytest.mark.parametrize(
    ("label", "known", "cluster"),
    [
        pytest.param("east", BOTH, "east", id="one-of-several"),
        pytest.param("east", ("east",), "east", id="the-only-one"),
        pytest.param("", ("east",), "east", id="the-only-one-need-not-be-named"),
        pytest.param("", ("",), "", id="without-a-name"),
        pytest.param("east", ("",), "", id="one-without-a-name-takes-every-label"),
    ],
)
def test_a_label_names_one_of_the_clusters(label: str, known: tuple[str, ...], cluster: str) -> None:
    assert cluster_named(label, known) == cluster
    assert is_of(cluster, EAST.model_copy(update={"cluster": label}), known)


@pytest.mark.parametrize(
    ("label", "known", "reason"),
    [
        pytest.param("north", BOTH, "'north' is not a cluster of this bot; its clusters: 'east', 'west'", id="another"),
        pytest.param("", BOTH, "the cluster is not named; its clusters: 'east', 'west'", id="no-label"),
        pytest.param("north", ("east",), "'north' is not a cluster of this bot; its clusters: 'east'", id="of-one"),
        pytest.param("EAST", BOTH, "'EAST' is not a cluster", id="another-spelling"),
    ],
)
def test_a_label_that_names_none_is_refused_with_those_that_exist(
    label: str, known: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UnknownClusterError) as refused:
        cluster_named(label, known)
    assert str(refused.value).startswith(reason)
    assert not any(is_of(each, EAST.model_copy(update={"cluster": label}), known) for each in known)


def test_an_empty_label_is_no_label() -> None:
    assert named_by({"deployment": "llm", "cluster": ""}, "east").cluster == "east"


@pytest.mark.parametrize("value", ["../../etc", "llm/scale", "LLM", "-llm", "llm?watch=1", "a" * 254])
def test_a_label_that_is_no_name_of_an_object_names_no_workload(value: str) -> None:
    found = named_by({"deployment": value, "namespace": value, "alertname": "Thrash"}, "east")
    assert (found.kind, found.name, found.namespace, found.resolved) == ("Unknown", "Thrash", "", False)


def test_a_workload_without_a_namespace_is_not_resolved() -> None:
    found = named_by({"deployment": "llm", "pod": "llm-0", "alertname": "Thrash"}, "east")
    assert (found.kind, found.name, found.resolved) == ("Unknown", "llm", False)


def test_what_an_exporter_says_of_another_object_counts_before_its_own_labels() -> None:
    labels = {"namespace": "monitoring", "service": "kube-state-metrics", "pod": "kube-state-metrics-0"}
    found = named_by(labels | {"exported_namespace": "serving", "exported_pod": "llm-gone"}, "east")
    assert (found.namespace, found.name) == ("serving", "llm-gone")


@pytest.mark.parametrize("text", ["llm", "", "LLM/*", "a/b/c/d", "serving/", "/llm"])
def test_a_pattern_that_can_match_no_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="matches no target; write NAMESPACE/WORKLOAD"):
        checked_pattern(text)


@pytest.mark.parametrize("text", ["serving/llm", "serving/*", "*", "llm*", "east/serving/llm-*"])
def test_a_pattern_that_can_match_is_taken(text: str) -> None:
    assert checked_pattern(text) == text


def test_a_name_with_slashes_comes_back_from_the_key() -> None:
    found = named_by({"model_name": "meta-llama/Llama-3", "namespace": "serving"}, "east")
    assert Target.of_key(found.key) == found


@pytest.mark.parametrize(
    ("pattern", "is_about_it"),
    [
        ("serving/llm", True),
        ("serving/*", True),
        ("*", True),
        ("east/serving/llm", True),
        ("east/*/*", True),
        ("west/serving/llm", False),
        ("east/*", False),
        ("east/batch/llm", False),
    ],
)
def test_a_pattern_with_two_slashes_names_the_cluster_too(pattern: str, *, is_about_it: bool) -> None:
    assert EAST.matches(pattern) is is_about_it


def test_workloads_of_one_name_in_two_clusters_share_no_key() -> None:
    west = EAST.model_copy(update={"cluster": "west"})
    assert EAST.key != west.key
    assert [Target.of_key(each.key) for each in (EAST, west)] == [EAST, west]


def test_texts_name_the_cluster_where_there_are_several() -> None:
    assert str(EAST) == "serving/llm"
    assert str(EAST.model_copy(update={"among_several": True})) == "east/serving/llm"
