"""Alertmanager payloads become alerts; anything else is refused with the location of its fault."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.adapters.alertmanager import (
    CLIPPED,
    MAX_ALERTS,
    MAX_ANNOTATION_CHARACTERS,
    MAX_LABELS,
    fingerprint,
    read_listed,
    read_webhook,
)
from bot.domain.kernel.alert import LIMIT_ALERTS
from bot.domain.kernel.errors import BadWebhookError

pytestmark = pytest.mark.fast

LABELS = {"alertname": "KVCacheHigh", "severity": "critical", "namespace": "serving", "deployment": "llm"}


def alert(**changes: Any) -> dict[str, Any]:
    return {
        "status": "firing",
        "labels": LABELS,
        "annotations": {"summary": "the pool is full"},
        "startsAt": "2026-11-21T07:58:03.123456789Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "http://prometheus/graph?g0.expr=up",
        "fingerprint": "c0ffee0123456789",
    } | changes


def webhook(*alerts: dict[str, Any], **changes: Any) -> bytes:
    whole = {"version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "bot"}
    return json.dumps(whole | {"alerts": list(alerts)} | changes).encode()


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in alert().items() if key != name}


def test_an_alert_is_read_as_it_was_sent() -> None:
    (read,), truncated = read_webhook(webhook(alert()))
    assert truncated == 0
    assert read.fingerprint == "c0ffee0123456789"
    assert read.status == "firing"
    assert read.labels == LABELS
    assert read.annotations == {"summary": "the pool is full"}
    assert read.starts_at == datetime(2026, 11, 21, 7, 58, 3, 123456, tzinfo=UTC)
    assert read.generator_url == "http://prometheus/graph?g0.expr=up"


def test_an_alert_is_the_same_where_alertmanager_lists_it_though_that_cuts_its_start_to_milliseconds() -> None:
    """As Alertmanager 0.25 does for a sender that gives nanoseconds, such as vmalert."""
    (sent,), _ = read_webhook(webhook(alert(startsAt="2026-11-21T07:58:03.123999999Z")))
    (listed,) = read_listed(json.dumps([alert(startsAt="2026-11-21T07:58:03.123Z")]).encode())
    assert listed.dedupe_key == sent.dedupe_key


def test_secrets_in_annotations_and_the_rules_address_are_masked_and_labels_stay_comparable() -> None:
    raw = alert(
        labels=LABELS | {"cookie": "c=1"},
        annotations={"summary": "DB_PASS=hunter2 failed", "password": "hunter2", "runbook": "https://wiki/kv"},
        generatorURL="http://admin:hunter2@prometheus/graph?token=hunter2",
    )
    ((read,), _) = read_webhook(webhook(raw))
    assert read.annotations == {
        "summary": "DB_PASS=(masked) failed",
        "password": "(masked)",
        "runbook": "https://wiki/kv",
    }
    assert "hunter2" not in read.generator_url
    assert read.labels["cookie"] == "c=1"


def test_the_zero_time_of_a_firing_alert_is_no_end() -> None:
    assert read_webhook(webhook(alert()))[0][0].ends_at is None


def test_a_resolved_alert_has_its_end_in_utc() -> None:
    (read,), _ = read_webhook(webhook(alert(status="resolved", endsAt="2026-11-21T10:00:00+02:00")))
    assert read.ends_at == datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def test_no_alerts_are_fine() -> None:
    assert read_webhook(webhook()) == ([], 0)


def test_alerts_that_were_left_out_are_counted() -> None:
    assert read_webhook(webhook(alert(), truncatedAlerts=7))[1] == 7


def test_fields_that_a_newer_alertmanager_adds_are_ignored() -> None:
    assert len(read_webhook(webhook(alert(novelty={"a": [1]}), notificationReason="repeat"))[0]) == 1


def test_a_missing_fingerprint_is_computed_as_alertmanager_does() -> None:
    # The number is from the signature tests of prometheus/common.
    labels = {"name": "garland, briggs", "fear": "love is not enough"}
    assert fingerprint(labels) == f"{5799056148416392346:016x}"
    (read,), _ = read_webhook(webhook({**without("fingerprint"), "labels": labels}))
    assert read.fingerprint == fingerprint(labels)


@pytest.mark.parametrize("strange", ["", "a|b", "a/b", "x" * 65, "é", "a\nb"])
def test_a_fingerprint_that_could_break_a_key_is_replaced(strange: str) -> None:
    (read,), _ = read_webhook(webhook(alert(fingerprint=strange)))
    assert read.fingerprint == fingerprint(LABELS)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"", r"body: not JSON .*line 1 column 0", id="empty"),
        pytest.param(webhook(alert())[:100], r"body: not JSON .*is it cut short\?", id="half"),
        pytest.param(b"<html>", "body: not JSON", id="html"),
        pytest.param(b'"\xff"', "body: not JSON", id="no-utf-8"),
        pytest.param(b"[]", "body: Input should be an object", id="a-list"),
        pytest.param(b"{}", "version: Field required; alerts: Field required", id="nothing-in-it"),
        pytest.param(webhook(alert(), version="3"), "version '3'; this receiver speaks 4", id="version-3"),
        pytest.param(b'{"version":"1","orgId":1}', "version '1'; this receiver speaks 4", id="another-sender"),
        pytest.param(webhook(alert(), without("startsAt")), r"alerts\[1\]\.startsAt: Field required", id="no-start"),
        pytest.param(webhook(alert(startsAt="noon")), r"alerts\[0\]\.startsAt", id="no-time"),
        pytest.param(webhook(alert(startsAt="2026-11-21T07:58:03")), "timezone", id="no-zone"),
        pytest.param(webhook(alert(startsAt="0001-01-01T00:00:00+14:00")), "beyond the calendar", id="before-time"),
        pytest.param(webhook(alert(status="suppressed")), r"alerts\[0\]\.status", id="status"),
        pytest.param(webhook(alert(labels=None)), r"alerts\[0\]\.labels", id="no-labels"),
        pytest.param(webhook(truncatedAlerts=-1), "truncatedAlerts", id="negative"),
    ],
)
def test_a_bad_payload_says_where_what_and_what_to_do(body: bytes, reason: str) -> None:
    with pytest.raises(BadWebhookError, match=reason) as refused:
        read_webhook(body)
    assert "send" in str(refused.value)


def test_an_error_repeats_nothing_of_the_payload() -> None:
    with pytest.raises(BadWebhookError) as refused:
        read_webhook(webhook(alert(status="s3cret-1", labels={"s3cret-2": 3}, startsAt="s3cret-4")))
    assert "s3cret" not in str(refused.value)


def test_many_faults_are_summed_up() -> None:
    with pytest.raises(BadWebhookError, match="and 15 more"):
        read_webhook(webhook(*[without("startsAt")] * 20))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(
            b'{"version": "4", "alerts": [' + b"{}," * 20_000 + b"{}]}", "alerts: 20001 in one webhook", id="empty"
        ),
        pytest.param(
            json.dumps({"version": "4", "alerts": [{"labels": dict.fromkeys(map(str, range(5_000)), 1)}]}).encode(),
            "5002 faults; send Alertmanager's webhook",
            id="labels",
        ),
    ],
)
def test_of_a_body_full_of_faults_they_are_not_collected(body: bytes, reason: str) -> None:
    """Two megabytes of them took 2.5 GB of memory and half a minute."""
    with pytest.raises(BadWebhookError, match=reason):
        read_webhook(body)


def test_too_many_alerts_are_refused_with_the_setting_that_limits_them() -> None:
    with pytest.raises(BadWebhookError, match=re.escape(LIMIT_ALERTS)):
        read_webhook(webhook(*[alert()] * (MAX_ALERTS + 1)))


def test_a_long_annotation_is_clipped_and_says_so() -> None:
    (read,), _ = read_webhook(webhook(alert(annotations={"description": "x" * 9_000})))
    assert len(read.annotations["description"]) == MAX_ANNOTATION_CHARACTERS
    assert read.annotations[CLIPPED] == "annotation description: 4000 of 9000 characters kept"


def test_of_too_many_labels_those_that_name_the_target_are_kept() -> None:
    many = {f"a{number:03}": "x" for number in range(100)} | LABELS
    (read,), _ = read_webhook(webhook(alert(labels=many)))
    assert len(read.labels) == MAX_LABELS
    assert read.labels.items() >= LABELS.items()
    assert read.annotations[CLIPPED] == "40 of 104 labels dropped"


@given(st.binary(max_size=400))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    with pytest.raises(BadWebhookError):
        read_webhook(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(alert())), json_values)
def test_any_value_of_a_field_is_taken_or_refused_with_its_place(name: str, value: Any) -> None:
    reason = refusal(webhook(alert(**{name: value})))
    assert not reason or "alerts[0]" in reason or "not JSON" in reason


def refusal(body: bytes) -> str:
    try:
        read_webhook(body)
    except BadWebhookError as refused:
        return str(refused)
    return ""
