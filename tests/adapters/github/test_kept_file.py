"""What the owner of a workload has to change, as an edit of its file: only that changes, or nothing is proposed."""

from __future__ import annotations

from difflib import ndiff
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bot.adapters.github.kept_file import edited_file
from bot.adapters.github.yaml_edit import NotEditableError, edited
from bot.domain.changes.kept_in import KeptIn
from bot.domain.changes.owners_edit import OwnersEdit

pytestmark = pytest.mark.fast

MANIFEST = """\
# The chat model. Ask #serving before you touch it.
apiVersion: v1
kind: Service
metadata: {name: llm, namespace: serving}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: llm
  namespace: serving
spec:
  replicas: 4   # one for each node
  selector:
    matchLabels: {app: llm}
  template:
    metadata:
      labels: {app: llm}
    spec:
      containers:
        - name: vllm
          image: "vllm/vllm-openai:v0.32.0"
          args:
            - --model=llama
            - --max-num-seqs=256     # measured in May
            - "--gpu-memory-utilization=0.9"
          env:
            - {name: HF_HOME, value: /models}
      terminationGracePeriodSeconds: 60

# The end.
"""
VALUES = """\
servingEngineSpec:
  modelSpec:
  - name: llama
    replicaCount: 2
    vllmConfig:
      extraArgs: ["--max-num-seqs", "64"]   # with the default pool
"""


def kept(**fields: Any) -> KeptIn:
    about = {"targets": ("serving/llm",), "repository": "example/deploy", "path": "llm.yaml"}
    return KeptIn.model_validate(about | fields)


IN_VALUES = kept(
    flags="servingEngineSpec.modelSpec.0.vllmConfig.extraArgs", replicas="servingEngineSpec.modelSpec.0.replicaCount"
)


def edit(**fields: Any) -> OwnersEdit:
    return OwnersEdit.model_validate({"kind": "Deployment", "namespace": "serving", "name": "llm"} | fields)


def changes(before: str, after: str) -> list[str]:
    return [line for line in ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        pytest.param(
            edit(fields={"replicas": 6}),
            ["-   replicas: 4   # one for each node", "+   replicas: 6   # one for each node"],
            id="a-number-keeps-its-comment",
        ),
        pytest.param(
            edit(flags=[{"flag": "--max-num-seqs", "value": 14}]),
            [
                "-             - --max-num-seqs=256     # measured in May",
                "+             - --max-num-seqs=14     # measured in May",
            ],
            id="a-flag",
        ),
        pytest.param(
            edit(flags=[{"flag": "--watermark", "value": 0.05, "direction": "raise"}]),
            ['+             - "--watermark=0.05"'],
            id="a-new-flag-in-the-style-of-its-neighbour",
        ),
        pytest.param(
            edit(flags=[{"flag": "--gpu-memory-utilization", "value": None}]),
            ['-             - "--gpu-memory-utilization=0.9"'],
            id="a-flag-that-goes",
        ),
        pytest.param(
            edit(flags=[{"env": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]),
            ['+             - {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}'],
            id="a-variable",
        ),
        pytest.param(
            edit(
                flags=[{"flag": "--max-num-seqs", "value": 14}],
                fields={"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
            ),
            [
                "-             - --max-num-seqs=256     # measured in May",
                "+             - --max-num-seqs=14     # measured in May",
                "+   strategy:",
                "+     rollingUpdate:",
                "+       maxSurge: 0",
                "+       maxUnavailable: 1",
            ],
            id="with-a-new-part-of-the-spec",
        ),
    ],
)
def test_only_what_is_wanted_changes_in_a_manifest(wanted: OwnersEdit, lines: list[str]) -> None:
    assert changes(MANIFEST, edited_file(MANIFEST, wanted, kept())) == lines


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        pytest.param(edit(fields={"replicas": 3}), ["-     replicaCount: 2", "+     replicaCount: 3"], id="replicas"),
        pytest.param(
            edit(flags=[{"flag": "--max-num-seqs", "value": 14}]),
            [
                '-       extraArgs: ["--max-num-seqs", "64"]   # with the default pool',
                '+       extraArgs: ["--max-num-seqs", "14"]   # with the default pool',
            ],
            id="flags",
        ),
    ],
)
def test_values_of_a_chart_are_edited_at_the_places_of_the_settings(wanted: OwnersEdit, lines: list[str]) -> None:
    assert changes(VALUES, edited_file(VALUES, wanted, IN_VALUES)) == lines


@pytest.mark.parametrize(
    ("text", "wanted", "where", "reason"),
    [
        pytest.param(MANIFEST, edit(fields={"replicas": 4}), kept(), "the file says so already", id="nothing-to-do"),
        pytest.param(
            MANIFEST, edit(flags=[{"flag": "--max-num-seqs", "value": 256}]), kept(), "the file says so already",
            id="no-flag-to-change",
        ),
        pytest.param(MANIFEST, edit(name="chat"), kept(), "it has no Deployment serving/chat", id="another-name"),
        pytest.param(
            MANIFEST, edit(namespace="chat"), kept(), "it has no Deployment chat/llm", id="another-namespace"
        ),
        pytest.param("", edit(), kept(), "it has no Deployment serving/llm", id="empty"),
        pytest.param(
            "replicas: {{ .Values.replicas }}\nargs: {{- toYaml . }}", edit(), kept(), "it is not plain YAML, line 2",
            id="a-template",
        ),
        pytest.param(VALUES, edit(fields={"replicas": 3}), kept(flags="servingEngineSpec"),
                     "the settings name no place for replicas in it", id="no-place"),
        pytest.param(VALUES, edit(fields={"replicas": 3}), kept(replicas="servingEngineSpec.modelSpec.1.replicaCount"),
                     "it has no servingEngineSpec.modelSpec.1.replicaCount", id="no-such-place"),
        pytest.param(VALUES, edit(flags=[{"flag": "--max-num-seqs", "value": 14}]), kept(flags="servingEngineSpec"),
                     "servingEngineSpec is not a list of flags", id="no-list"),
        pytest.param(VALUES, edit(flags=[{"env": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]), IN_VALUES,
                     "the settings name no place for VLLM_LOGGING_LEVEL in it", id="a-variable-in-values"),
        pytest.param(VALUES, edit(fields={"strategy": {}}), IN_VALUES,
                     "the settings name no place for strategy in it", id="another-field-in-values"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_edited_says_why(text: str, wanted: OwnersEdit, where: KeptIn, reason: str) -> None:
    with pytest.raises(NotEditableError, match=reason):
        edited_file(text, wanted, where)


SHARED = """\
defaults: &defaults
  args: &args [--one]
chat:
  args: *args
"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("a: 1\nb: [x, 'y']\n", {"a": 1, "b": ["x", "z w"]}, id="flow-list"),
        pytest.param("- a\n- b\n- c\n", ["b", "d", "c", "e"], id="list-at-the-top"),
        pytest.param("- a\n- b", ["a", "b", "c"], id="without-a-last-line-break"),
        pytest.param("a: 1", {"a": 1, "b": "x"}, id="new-key-without-a-last-line-break"),
        pytest.param(
            "a:\n  - b: 1\n    c: 2\n  # said\n\nd: 3\n", {"a": [{"b": 1, "c": 2, "e": 4}], "d": 3}, id="in-a-list"
        ),
        pytest.param("a: yes\n", {"a": "yes"}, id="a-switch-becomes-a-text"),
        pytest.param("a: 'no'\n", {"a": "it's"}, id="quotes-in-quotes"),
        pytest.param("a:\n  b: 1\nc: 2\n", {"c": 2}, id="a-part-that-goes"),
        pytest.param("a: {}\n", {"a": {"b": [1, {"c": None}]}}, id="into-an-empty-mapping"),
        pytest.param("a: |\n  one\n  two\nb: 1\n", {"a": "one\ntwo\n", "b": 2, "c": 3}, id="beside-a-block-of-text"),
        pytest.param("b: 1\na: |\n  one\n", {"b": 1, "a": "one\n", "c": 3}, id="after-a-block-of-text"),
        pytest.param("a: 1  # über\r\nb: 2\r\n", {"a": 2, "b": 2}, id="windows-lines"),
    ],
)
def test_a_text_reads_as_wanted_after_an_edit(text: str, wanted: Any) -> None:
    assert yaml.safe_load(edited(text, 0, wanted)) == wanted


KEYS = st.sampled_from(["a", "b", "c d", "1", "yes"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 500),
    st.sampled_from(["x", "--seed=1", "no", "a: b # c", "", "two\nlines", "- x"]),
)
VALUES_OF_YAML = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=4) | st.dictionaries(KEYS, part, max_size=4), max_leaves=12
)


@given(
    before=st.dictionaries(KEYS, VALUES_OF_YAML, min_size=1, max_size=4),
    wanted=st.dictionaries(KEYS, VALUES_OF_YAML, min_size=1, max_size=4),
    is_flow=st.sampled_from([None, True, False]),
    indent=st.sampled_from([2, 4]),
)
def test_any_edit_reads_as_wanted_or_is_refused(
    before: dict[str, Any], wanted: dict[str, Any], is_flow: bool | None, indent: int
) -> None:
    """What it refuses is what it cannot write alone: it never raises anything else."""
    text = "# kept\n---\n" + yaml.safe_dump(before, default_flow_style=is_flow, indent=indent) + "---\nlast: 1\n"
    try:
        after = edited(text, 0, wanted)
    except NotEditableError:
        return
    assert list(yaml.safe_load_all(after)) == [wanted, {"last": 1}]
    assert after.startswith("# kept\n---\n")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param(SHARED, {"defaults": {"args": ["--one"]}, "chat": {"args": ["--two"]}}, id="shared-with-another"),
        pytest.param("a: |\n  one\n", {"a": "two\n"}, id="a-block-of-text"),
    ],
)
def test_what_cannot_be_edited_alone_is_not_edited(text: str, wanted: Any) -> None:
    with pytest.raises(NotEditableError):
        edited(text, 0, wanted)
