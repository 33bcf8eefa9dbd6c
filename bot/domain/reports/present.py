"""What an open incident waits for at this moment, in one plain line."""

from __future__ import annotations

from bot.domain.incidents.run import Run
from bot.domain.reports.escaping import moment

NOT_BEGUN = "the incident has just opened"


def present(run: Run) -> str:
    """Returns the line; empty once the incident is closed."""
    if not run.is_open:
        return ""
    users = f"{run.users}. " if run.users else ""
    return f"{users}{_waits_for(run)}"


def _waits_for(run: Run) -> str:
    if (question := run.open_question) is not None:
        return f"Needs an answer in Slack{_by(question.expires_at)}: {question.text}"
    if (request := run.open_request) is not None:
        return f"Needs approval in Slack{_by(request.expires_at)}: {request.called}"
    if (advised := run.advised) is not None:
        return f"Would propose, and changes nothing: {advised.called}"
    under_way = run.change or run.watch
    progress = f": {under_way.progress}" if under_way is not None and under_way.progress else ""
    doing = run.visit.doing or NOT_BEGUN
    if run.change is not None:
        request = run.requests.get(run.change.request_id)
        title = request.called if request is not None else doing
        return f"{'Applying' if run.change.begun else 'Planning'}: {title}{progress}"
    return f"{'Checking' if run.watch is not None else 'Reading'}: {doing}{progress}"


def _by(at: float | None) -> str:
    return f" by {moment(at)[11:16]} UTC" if at is not None else ""
