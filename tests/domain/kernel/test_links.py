"""The links of an incident: safe ones only, each once, and the dashboard for its workload and its time."""

from __future__ import annotations

import pytest

from bot.domain.kernel.alert import Alert
from bot.domain.kernel.links import Dashboards, dashboard_address, links_of, safe_url
from bot.domain.kernel.target import Target
from tests.builders import START, alert

pytestmark = pytest.mark.fast

GRAFANA = "https://grafana.example/d/vllm?var-namespace=$namespace&var-pod=$workload.*&from=$from&to=$to&x=$__all"
LLM = Target(namespace="serving", name="llm")


def fires(name: str = "VllmKVCacheThrash", *, runbook: str = "", query: str = "") -> Alert:
    fired = alert(fingerprint=name, alertname=name)
    return fired.model_copy(update={"annotations": {"runbook_url": runbook}, "generator_url": query})


def shown(*alerts: Alert, dashboard: str = "", closed_at: float | None = None) -> list[tuple[str, str]]:
    links = links_of(alerts, dashboard, starts_at=START, closed_at=closed_at)
    return [(link.label, link.url) for link in links]


def test_an_alert_links_its_runbook_and_its_query() -> None:
    fired = fires(runbook="https://wiki.example/kv", query="http://prometheus:9090/graph?g0.expr=up&g0.tab=1")
    assert shown(fired) == [
        ("Runbook", "https://wiki.example/kv"),
        ("Query", "http://prometheus:9090/graph?g0.expr=up&g0.tab=1"),
    ]


def test_links_of_several_alerts_name_their_alert_and_each_address_comes_once() -> None:
    first = fires("A", runbook="https://wiki.example/kv", query="https://p/a")
    second = fires("B", runbook="https://wiki.example/kv", query="https://p/b")
    assert [label for label, _url in shown(first, second)] == ["Runbook", "Query of A", "Query of B"]


@pytest.mark.parametrize(
    "hostile",
    [
        "javascript:alert(1)", "data:text/html,x", "//evil", "wiki", "https://a|b", "https://a/<!channel>", "https://",
        "https://a/\u202eb", 'https://a/"onclick', "https://[::1", "https://a b",
    ],
)  # fmt: skip
def test_what_is_no_safe_address_is_no_link(hostile: str) -> None:
    assert safe_url(hostile) == ""
    assert shown(fires(runbook=hostile, query=hostile), dashboard=hostile) == []


def test_a_dashboard_shows_the_workload_from_an_hour_before_the_incident_until_its_end() -> None:
    address = Dashboards(url=GRAFANA).of(LLM)
    began, ended = int((START - 3600) * 1000), int((START + 60) * 1000)
    expected = f"https://grafana.example/d/vllm?var-namespace=serving&var-pod=llm.*&from={began}&to="
    assert shown(dashboard=address) == [("Dashboard", f"{expected}now&x=$__all")]
    assert shown(dashboard=address, closed_at=START + 60) == [("Dashboard", f"{expected}{ended}&x=$__all")]


def test_the_address_may_name_the_cluster() -> None:
    west = LLM.model_copy(update={"cluster": "west"})
    assert Dashboards(url="https://g/d?var-cluster=$cluster").of(west) == "https://g/d?var-cluster=west"


def test_a_target_may_have_a_dashboard_of_its_own_and_the_later_pattern_counts() -> None:
    own = (("serving/llm*", "https://g/all"), ("serving/llm", "https://g/$workload"))
    dashboards = Dashboards(url="https://g/any", targets=own)
    assert dashboards.of(LLM) == "https://g/llm"
    assert dashboards.of(Target(namespace="serving", name="llm-2")) == "https://g/all"
    assert dashboards.of(Target(namespace="batch", name="llm")) == "https://g/any"


def test_a_name_from_a_label_cannot_leave_its_place_in_the_address() -> None:
    strange = Target(namespace="a&to=0", name="x/../$from <!here>")
    assert Dashboards(url="https://g/$workload?n=$namespace").of(strange) == (
        "https://g/x%2F..%2F%24from%20%3C%21here%3E?n=a%26to%3D0"
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("grafana/d/vllm", "is not an http or https address"),
        ("https://g/a b", "is not an http or https address"),
        ("javascript:$from", "is not an http or https address"),
        (
            "https://g/?n=$nmaespace",
            r"contains \$nmaespace; only \$cluster, \$namespace, \$workload, \$from, \$to are filled in",
        ),
    ],
)
def test_an_address_that_can_never_be_a_link_is_refused(wrong: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        dashboard_address(wrong)


def test_a_good_address_or_none_is_taken_as_it_is() -> None:
    assert (dashboard_address(GRAFANA), dashboard_address("")) == (GRAFANA, "")
