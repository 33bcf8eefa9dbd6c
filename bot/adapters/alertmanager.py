"""Parses Alertmanager's webhook, version 4: bytes in, alerts out, or one error with the location of the fault.

No content is trusted: sizes are bounded, truncations are recorded on the alert, and no error repeats a value. Unknown
fields are ignored, because Alertmanager may add some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bot.domain.kernel.alert import LIMIT_ALERTS, Alert, AlertStatus
from bot.domain.kernel.errors import BadWebhookError
from bot.domain.kernel.redaction import redacted, shown_value
from bot.domain.kernel.target import HINT_LABELS, WORKLOAD_LABELS

VERSION = "4"
MAX_ALERTS = 10_000
MAX_LABELS = 64
"""The same limit applies to annotations."""
MAX_NAME_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 1_000
MAX_ANNOTATION_CHARACTERS = 4_000
MAX_URL_CHARACTERS = 2_000
SHOWN_FAULTS = 5
MAX_FAULTS = 1_000
"""Two megabytes may have two million, and pydantic takes a kilobyte to describe each."""
CLIPPED = "incident_bot_clipped"
"""The annotation that lists what was cut from an alert."""

NAMING_LABELS = (
    "alertname",
    "severity",
    "cluster",
    "namespace",
    "exported_namespace",
    *(label for label, _kind in WORKLOAD_LABELS),
    *HINT_LABELS,
)
"""Kept first if there are too many labels: they identify the alert and its target."""

_FINGERPRINT = re.compile(r"[0-9A-Za-z]{1,64}")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class _Alert(_Part):
    status: AlertStatus
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: AwareDatetime = Field(alias="startsAt")
    ends_at: AwareDatetime | None = Field(None, alias="endsAt")
    generator_url: str = Field("", alias="generatorURL")
    fingerprint: str = ""


class _Webhook(_Part):
    version: str
    truncated_alerts: int = Field(0, ge=0, alias="truncatedAlerts")
    alerts: list[_Alert] = Field(max_length=MAX_ALERTS)


class _Versioned(_Part):
    version: str


def read_webhook(body: bytes) -> tuple[list[Alert], int]:
    """The alerts of one webhook and how many more Alertmanager left out; raises `BadWebhookError` for any fault."""
    try:
        webhook = _Webhook.model_validate_json(body)
    except ValidationError as invalid:
        # Another version has other fields: then the error is the version number, not each field.
        _refuse_version(_version_of(body))
        raise BadWebhookError(_explained(invalid)) from None
    _refuse_version(webhook.version)
    return [_alert(raw, number) for number, raw in enumerate(webhook.alerts)], webhook.truncated_alerts


class _Listed(_Part):
    """One alert as in `GET /api/v2/alerts`: its status is about silences."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: AwareDatetime = Field(alias="startsAt")
    generator_url: str = Field("", alias="generatorURL")
    fingerprint: str = ""


_LISTED: TypeAdapter[list[_Listed]] = TypeAdapter(list[_Listed])


def read_listed(body: bytes) -> list[Alert]:
    """The alerts that Alertmanager lists as active; raises `BadWebhookError` if this is not such a list."""
    try:
        listed = _LISTED.validate_json(body)
    except ValidationError as invalid:
        raise BadWebhookError(_explained(invalid)) from None
    raw = (_Alert.model_validate(each.model_dump(by_alias=True) | {"status": "firing"}) for each in listed)
    return [_alert(each, number) for number, each in enumerate(raw)]


def fingerprint(labels: Mapping[str, str]) -> str:
    """The fingerprint as in Alertmanager: FNV-1a, 64 bits, over sorted labels, 0xff after each name and value."""
    value = 0xCBF29CE484222325
    content = b"".join(name.encode() + b"\xff" + labels[name].encode() + b"\xff" for name in sorted(labels))
    for byte in content:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def _refuse_version(version: str) -> None:
    if version != VERSION:
        shown = re.sub(r"[^0-9A-Za-z._-]", "?", version[:20])
        raise BadWebhookError(
            f"version: this is webhook version '{shown}'; this receiver speaks {VERSION}: "
            "send from an Alertmanager's webhook_config"
        )


def _version_of(body: bytes) -> str:
    try:
        return _Versioned.model_validate_json(body).version
    except ValidationError:
        return VERSION  # nothing is known against it


def _alert(raw: _Alert, number: int) -> Alert:
    try:
        starts_at, ends_at = raw.starts_at.astimezone(UTC), _end(raw.ends_at)
    except OverflowError:
        raise BadWebhookError(f"alerts[{number}]: a time is beyond the calendar; {_REMEDY}") from None
    labels, cut_labels = _labels(raw.labels)
    annotations, cut_annotations = _annotations(raw.annotations)
    if cut := "; ".join((*cut_labels, *cut_annotations)):
        annotations[CLIPPED] = cut[:MAX_ANNOTATION_CHARACTERS]
    return Alert(
        # It becomes a part of keys: a malformed fingerprint is replaced by a computed one.
        fingerprint=raw.fingerprint if _FINGERPRINT.fullmatch(raw.fingerprint) else fingerprint(raw.labels),
        status=raw.status,
        starts_at=starts_at,
        ends_at=ends_at,
        # Labels are not masked here, since matching and silences compare them; they are masked for display.
        labels=labels,
        annotations={name: str(shown_value(name, text)) for name, text in annotations.items()},
        generator_url=redacted(raw.generator_url[:MAX_URL_CHARACTERS]),
    )


def _end(raw: datetime | None) -> datetime | None:
    """Go writes the year 1 for a time that is not set."""
    return None if raw is None or raw.year <= 1 else raw.astimezone(UTC)


def _labels(raw: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    return _bounded(raw, NAMING_LABELS, MAX_LABEL_CHARACTERS, "label")


def _annotations(raw: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    return _bounded(raw, (), MAX_ANNOTATION_CHARACTERS, "annotation")


def _bounded(raw: dict[str, str], first: Sequence[str], most: int, what: str) -> tuple[dict[str, str], list[str]]:
    """At most `MAX_LABELS`, those in `first` before the others, each clipped; and what was cut, in words."""
    if len(raw) <= MAX_LABELS and all(len(n) <= MAX_NAME_CHARACTERS and len(v) <= most for n, v in raw.items()):
        return dict(raw), []
    named = [name for name in first if name in raw]
    kept = [*named, *sorted(raw.keys() - set(named))][:MAX_LABELS]
    cut = [f"{what} {name[:60]}: {most} of {len(raw[name])} characters kept" for name in kept if len(raw[name]) > most]
    cut += [f"{what} {name[:60]}…: its name is cut" for name in kept if len(name) > MAX_NAME_CHARACTERS]
    if len(raw) > len(kept):
        cut.append(f"{len(raw) - len(kept)} of {len(raw)} {what}s dropped")
    return {name[:MAX_NAME_CHARACTERS]: raw[name][:most] for name in kept}, cut


_REMEDY = f"send Alertmanager's webhook, version {VERSION}, as it is"


def _explained(invalid: ValidationError) -> str:
    if invalid.error_count() > MAX_FAULTS:
        return f"{invalid.error_count()} faults; {_REMEDY}"
    errors = invalid.errors(include_url=False, include_input=False)
    if errors[0]["type"] == "too_long":
        sent = errors[0]["ctx"]["actual_length"]
        return f"alerts: {sent} in one webhook, at most {MAX_ALERTS} are taken; {LIMIT_ALERTS}"
    faults = [(_place(error["loc"]), error["msg"], error["type"]) for error in errors]
    if faults[0][2] == "json_invalid":
        return f"body: not JSON ({faults[0][1].removeprefix('Invalid JSON: ')}); is it cut short? Otherwise {_REMEDY}"
    shown = list(dict.fromkeys(f"{place}: {what}" for place, what, _kind in faults))
    more = f"; and {len(shown) - SHOWN_FAULTS} more" if len(shown) > SHOWN_FAULTS else ""
    return "; ".join(shown[:SHOWN_FAULTS]) + f"{more}; {_REMEDY}"


def _place(location: tuple[int | str, ...]) -> str:
    return "".join(_parts(location)).lstrip(".") or "body"


def _parts(location: tuple[int | str, ...]) -> Iterator[str]:
    for part in location:
        yield f"[{part}]" if isinstance(part, int) else f".{part}"
        if part in ("labels", "annotations"):
            return  # below are names that the sender chose
