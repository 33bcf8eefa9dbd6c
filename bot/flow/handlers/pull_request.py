"""Effect: open the pull request that a person wanted. The same branch for each attempt: it is opened once."""

from __future__ import annotations

import hashlib

from bot.domain.changes.owners_edit import STRATEGY, OwnersEdit
from bot.domain.incidents.effect import OpenPullRequest
from bot.domain.incidents.event import PullRequestSettled
from bot.domain.incidents.run import Run
from bot.domain.kernel.errors import RepositoryError
from bot.domain.reports.escaping import one_line
from bot.flow.handlers.page import Links
from bot.flow.perform_effect import Done, EffectContext, Later
from bot.flow.ports.repositories import Proposal, Repositories

ATTEMPTS = 5
MAX_BACKOFF_SECONDS = 30.0
UNSET = "github.files of the settings names no file any more"


class PullRequestHandler:
    def __init__(self, repositories: Repositories | None, links: Links, *, deployment: str) -> None:
        """`links` returns the addresses of an incident's messages by slot.

        `deployment` distinguishes two bots that propose changes in one repository.
        """
        self._repositories, self._links, self._deployment = repositories, links, deployment

    async def __call__(self, context: EffectContext, effect: OpenPullRequest) -> Done | Later:
        try:
            if self._repositories is None:
                raise RepositoryError(UNSET, lasting=True)
            links = await self._links(context.incident_id)
            # Only requests and questions have addresses; a patch that was handed out has the question below it.
            shown = (effect.slot, *(post.slot for post in reversed(context.run.posts)))
            link = next((links[slot] for slot in shown if slot in links), "")
            url = await self._repositories.propose(proposal(context.run, effect, self._deployment, link=link))
        except RepositoryError as error:
            if not error.lasting and context.owed.attempts + 1 < ATTEMPTS:
                wait = max(error.retry_after_seconds, min(2.0**context.owed.attempts, MAX_BACKOFF_SECONDS))
                return Later(wait, failed=True)
            return Done((_settled(effect, reason=error.reason),))
        return Done((_settled(effect, url=url),))


def _settled(effect: OpenPullRequest, *, url: str = "", reason: str = "") -> PullRequestSettled:
    event_id = f"settled/{effect.effect_id}"
    return PullRequestSettled(event_id=event_id, slot=effect.slot, url=url, reason=reason, user=effect.wanted_by)


def proposal(run: Run, effect: OpenPullRequest, deployment: str, *, link: str = "") -> Proposal:
    """Returns the pull request of an effect: always on the same branch for one effect. `link`: of the incident."""
    seed = f"{deployment}\n{run.incident_id}\n{effect.effect_id}"
    branch = f"incident-bot/{run.incident_id}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}".lower()
    return Proposal(
        target=run.target,
        edit=effect.edit,
        branch=branch,
        title=f"{effect.edit.name}: {effect.edit}"[:200],
        body=_body(run, effect.edit, link),
    )


def _body(run: Run, edit: OwnersEdit, link: str) -> str:
    about = f"{edit.kind} {edit.namespace}/{edit.name}"
    lines = [
        f"{f'[{run.incident_id}](<{link}>)' if link else run.incident_id}: {_code(run.called)}",
        _code(run.users) if run.users else "",
        f"For {_code(about)}: {_code(str(edit))}.",
        "No surge pod fits, so `strategy` lets each replica end before its successor starts. Put your own strategy back"
        " afterwards."
        if STRATEGY in edit.fields
        else "",
        "A person wanted this pull request in Slack. The incident bot merges nothing.",
    ]
    return "\n\n".join(filter(None, lines))


def _code(text: str) -> str:
    """Outside text, in which a name must not notify anybody on GitHub."""
    shown = one_line(text).replace("`", "'")
    return f"`{shown}`"
