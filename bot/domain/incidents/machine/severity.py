"""How urgent an incident is, raised and lowered while it is open: people are paged only while users are hurt (K0).

A playbook's finding sets the severity; otherwise the firing alerts do. The card shows it; each change is recorded.
"""

from __future__ import annotations

from bot.domain.incidents.machine.draft import Draft
from bot.domain.incidents.run import NEXT_STATUS, Severity
from bot.domain.kernel.alert import Alert
from bot.domain.kernel.copies import copy_with

PAGE: Severity = "page"


def set_by_playbook(draft: Draft, severity: Severity, title: str) -> None:
    draft.set(severity_found=severity)
    _become(draft, severity, title)


def set_by_alert(draft: Draft, alert: Alert) -> None:
    """A newly firing alert may override an earlier finding; an ending one lowers it, but not below the finding."""
    if not alert.pages:
        return
    if alert.status == "firing":
        _become(draft, PAGE, f"{alert.name} fires")
        return
    still = any(each.pages for each in draft.run.alerts.values() if each.status == "firing")
    found = draft.run.severity_found or "ticket"
    if not still and draft.run.severity == PAGE != found:
        _become(draft, found, "no alert that pages fires any more")


def _become(draft: Draft, severity: Severity, because: str) -> None:
    before = draft.run.severity
    if severity == before:
        return
    draft.set(severity=severity)
    how = "raised" if severity == PAGE else "lowered"
    text = f"severity {how} from {before} to {severity}: {because}"
    draft.record("severity", text, data={"before": before, "after": severity})
    if severity == PAGE:
        _offer_the_glass(draft)
    expect_status(draft)


def _offer_the_glass(draft: Draft) -> None:
    """A request that was open before may go on without a silent team too."""
    request = draft.run.open_request
    if request is not None:
        policy = request.policy.model_copy(update={"break_glass": draft.approvals.glass(request.policy.demands)})
        draft.keep_request(request, policy=policy)


def expect_status(draft: Draft) -> None:
    """Expect status updates from here on: people outside wait for news about an incident that pages."""
    every = draft.rules.status_every_seconds
    draft.set(status_update=copy_with(draft.run.status_update, at=draft.at))
    draft.set_deadline(NEXT_STATUS, draft.at + every if draft.run.severity == PAGE and every > 0 else None)
