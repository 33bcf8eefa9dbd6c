"""Settings for several clusters: each names its own; faults are reported all at once, each with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.kernel.errors import SettingsError
from bot.settings import Settings, load_settings
from tests.kit.settings import ENOUGH

pytestmark = pytest.mark.fast

ONE_CLUSTER = "INCIDENT_BOT_KUBERNETES_IN_CLUSTER"
OTHERWISE = {name: value for name, value in ENOUGH.items() if name != ONE_CLUSTER}
EAST = "{name: east, kubernetes: {in_cluster: true}}"
WEST = "{name: west, kubernetes: {url: 'https://west.example:6443', token: s3cret}, sampling: {through: proxy}}"


def read(folder: Path, text: str, **environ: str) -> Settings:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return load_settings(OTHERWISE | environ, path)


def faults(folder: Path, text: str, **environ: str) -> str:
    with pytest.raises(SettingsError) as refused:
        read(folder, text, **environ)
    return "\n".join(refused.value.problems).replace(f"{folder}/", "")


def test_each_cluster_has_its_own_settings(tmp_path: Path) -> None:
    settings = read(tmp_path, f"clusters: [{EAST}, {WEST}]")
    east, west = settings.every_cluster
    assert (east.name, east.kubernetes.in_cluster, east.sampling.through) == ("east", True, "address")
    assert (west.name, west.kubernetes.url, west.sampling.through) == ("west", "https://west.example:6443", "proxy")


def test_without_a_list_the_other_settings_describe_the_one_cluster(tmp_path: Path) -> None:
    settings = read(tmp_path, "cluster: prod\nsampling: {workloads: [serving/llm]}\n", **{ONE_CLUSTER: "true"})
    (only,) = settings.every_cluster
    assert (only.name, only.kubernetes.in_cluster, only.sampling.workloads) == ("prod", True, ("serving/llm",))


def test_a_cluster_is_described_in_one_place(tmp_path: Path) -> None:
    text = faults(tmp_path, f"cluster: prod\ngpu: {{exec: true}}\nclusters: [{EAST}, {WEST}]", **{ONE_CLUSTER: "true"})
    both = "is set, and so is `clusters`; move it into the cluster that it is about"
    assert text.splitlines() == [
        f"settings.yaml:1:1 (cluster): {both}",
        f"kubernetes: {both}",
        f"settings.yaml:2:1 (gpu): {both}",
    ]


@pytest.mark.parametrize(
    ("clusters", "fault"),
    [
        pytest.param(f"{EAST}, {EAST}", "two clusters have the name 'east'", id="two of one name"),
        pytest.param(f"{EAST}, {EAST.replace('east', 'e')}", "'east' and 'e' are the same cluster", id="two names"),
        pytest.param(f"{EAST}, {{name: west}}", "(clusters.1): kubernetes is not set", id="no cluster"),
        pytest.param(f"{EAST}, {{name: west, kubernetes: {{}}}}", "kubernetes must name the cluster", id="no way"),
        pytest.param(WEST.replace("west,", "'',"), "(clusters.0.name): is not of the right form", id="no name"),
        pytest.param(WEST.replace("name: west, ", ""), "(clusters.0): name is not set", id="name left out"),
        pytest.param(
            WEST.replace("through: proxy", "every: 5s"),
            "sampling.through is not set; set it to proxy, or to address if the bot reaches the pods",
            id="pods of another cluster",
        ),
        pytest.param(
            WEST.replace("kubernetes: {url", "kubernetes: {in_cluster: true, url"),
            "must name one cluster in one way; keep one of in_cluster, kubeconfig and url",
            id="two ways",
        ),
        pytest.param(
            WEST.replace("https:", "http:"), "(clusters.0.kubernetes.url): would send a token in clear", id="in clear"
        ),
        pytest.param(WEST.replace("token", "tokn"), "is not a setting; did you mean token?", id="a slip"),
    ],
)
def test_a_fault_of_one_cluster_has_its_place(tmp_path: Path, clusters: str, fault: str) -> None:
    text = faults(tmp_path, f"clusters: [{clusters}]")
    assert text.startswith("settings.yaml:1:")
    assert fault in text
    assert "s3cret" not in text


def test_faults_of_all_clusters_are_reported_at_once(tmp_path: Path) -> None:
    text = faults(tmp_path, "http: {port: 0x}\nclusters: [{name: 'a b'}, {name: c, kubernetes: {token: s3cret}}]")
    assert len(text.splitlines()) == 4, text


@pytest.mark.parametrize(
    ("labels", "is_refused"),
    [
        pytest.param(("", ""), True, id="no-labels"),
        pytest.param(("{cluster: a}", "{cluster: a}"), True, id="the-same"),
        pytest.param(("{cluster: a}", "{cluster: b}"), False, id="told-apart"),
    ],
)
def test_one_prometheus_for_two_clusters_needs_labels_that_distinguish_them(
    tmp_path: Path, labels: tuple[str, str], *, is_refused: bool
) -> None:
    shared = [f"prometheus: {{url: 'http://prometheus:9090', labels: {each or '{}'}}}" for each in labels]
    text = f"clusters: [{EAST[:-1]}, {shared[0]}}}, {WEST[:-1]}, {shared[1]}}}]"
    if is_refused:
        assert "'east' and 'west' read the same series; set prometheus.labels of each" in faults(tmp_path, text)
    else:
        assert len(read(tmp_path, text).every_cluster) == 2


def test_a_label_of_prometheus_has_the_name_of_a_label(tmp_path: Path) -> None:
    text = faults(tmp_path, f"clusters: [{WEST[:-1]}, prometheus: {{labels: {{'a\"b': c}}}}}}]")
    assert "'a\"b' is not the name of a label" in text


def test_the_environment_cannot_hold_a_list_of_clusters(tmp_path: Path) -> None:
    text = faults(tmp_path, "{}", INCIDENT_BOT_CLUSTERS="east,west", **{ONE_CLUSTER: "true"})
    assert text.startswith("INCIDENT_BOT_CLUSTERS: is a list, which only a settings file can hold")
