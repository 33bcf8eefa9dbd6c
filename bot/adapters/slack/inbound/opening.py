"""`/incident open`: asks for playbook and workload, then shows the playbook's own form. Only operators may open.

Both forms stay open with their answers until the incident is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from bot.adapters.slack import limits
from bot.adapters.slack.escape import code
from bot.adapters.slack.inbound import forms
from bot.adapters.slack.inbound.boundary import NotDoneError, Submission, permitted
from bot.adapters.slack.inbound.command import WORKLOAD_NAME, Command
from bot.adapters.slack.outbound.message import Message
from bot.adapters.slack.services import Services
from bot.domain.kernel.errors import ClusterError, OpeningError, UnknownClusterError
from bot.domain.kernel.form import Answer, Form, FormField
from bot.domain.kernel.target import Target
from bot.domain.playbooks.language import Playbook
from bot.flow.open_by_hand import Opening as Wanted

log = structlog.get_logger(__name__)

CHOOSING = "open"
FILLING = "open:form"
PLAYBOOK, WORKLOAD, SEEN = "playbook", "workload", "seen"
TITLE = "Open an incident"
SUBMIT = "Open"
ANNOTATION_CHARACTERS = 100


def _in_order(words: str) -> tuple[str, str]:
    """The playbook's name and the workload, typed in either order. Only a workload has a slash."""
    first, _, rest = words.partition(" ")
    return (rest.strip(), first) if "/" in first else (first, rest.strip())


class Opening:
    """The command and its two forms. A form submitted twice opens one incident."""

    def __init__(self, services: Services) -> None:
        self._services, self._playbooks = services, services.playbooks

    async def begin(self, command: Command) -> Message | forms.Modal:
        known = self._known()
        if not known:
            raise NotDoneError("No playbook is loaded: see `incident-bot playbook check`.")
        name, workload = _in_order(command.rest)
        name = name or next(iter(known))
        if name not in known:
            names = ", ".join(code(each, 80) for each in known)
            raise NotDoneError(f"There is no playbook {code(name, 80)}. There are: {names}.")
        if workload and not WORKLOAD_NAME.fullmatch(workload):
            wanted = "CLUSTER/NAMESPACE/NAME" if len(self._playbooks.clusters) > 1 else "NAMESPACE/NAME"
            raise NotDoneError(f"{code(workload, 120)} is not a workload: write `/incident open {name} {wanted}`.")
        filled = {PLAYBOOK: name, WORKLOAD: workload}
        blocks = forms.inputs(_first_form(known, self._parts()), filled=filled)
        return forms.Modal(CHOOSING, TITLE, "Next" if _any_form(known) else SUBMIT, blocks, command.place)

    async def chosen(self, sent: Submission) -> forms.Modal | str:
        """Shows the playbook's own form, or opens the incident where it has none."""
        await self._must_operate(sent.user)
        name = str(sent.fields[PLAYBOOK])
        target = await self._target(str(sent.fields[WORKLOAD]))
        playbook = self._known().get(name)
        if playbook is None:
            raise NotDoneError(fields={PLAYBOOK: "This playbook is no longer loaded"})
        kept = {**sent.kept, PLAYBOOK: name, WORKLOAD: _kept(target)}
        kept[SEEN] = str(sent.fields.get(SEEN, "")).strip()
        if playbook.form:
            return forms.Modal(FILLING, TITLE, SUBMIT, forms.inputs(playbook.form), kept, close="Back")
        return await self._open(sent, kept, {})

    async def filled(self, sent: Submission) -> str:
        await self._must_operate(sent.user)
        return await self._open(sent, sent.kept, sent.fields)

    async def _open(self, sent: Submission, kept: Mapping[str, str], fields: Mapping[str, Answer]) -> str:
        wanted = Wanted(
            submission_id=sent.view_id,
            playbook=kept[PLAYBOOK],
            target=Target.model_validate_json(kept[WORKLOAD]),
            user=sent.user,
            user_name=sent.user_name,
            fields=fields,
            seen=kept.get(SEEN, ""),
        )
        try:
            opened = await self._playbooks.open(wanted)
        except OpeningError as wrong:
            raise NotDoneError(str(wrong), wrong.fields) from wrong
        except ClusterError as error:
            raise _no_cluster(error) from error
        log.info("incident.opened_by_hand", incident=opened.incident_id, user=sent.user, is_new=opened.is_new)
        about = f"{opened.incident_id} about {wanted.target}"
        return f"{about} is open." if opened.is_new else f"{about} was open already; no new incident was opened."

    async def _target(self, typed: str) -> Target:
        name = WORKLOAD_NAME.fullmatch(typed.strip())
        if name is None:
            raise NotDoneError(fields={WORKLOAD: f"Write {self._parts()}"})
        try:
            found = await self._playbooks.workload(name[1] or "", name[2], name[3])
        except UnknownClusterError as error:
            which = f"No cluster is named '{error.name}'" if error.name else "Which cluster?"
            raise NotDoneError(fields={WORKLOAD: f"{which} ({error.known}): write {self._parts()}"}) from error
        except ClusterError as error:
            raise _no_cluster(error) from error
        if found is None:
            raise NotDoneError(fields={WORKLOAD: f"The cluster has no workload {typed.strip()}"})
        return found

    def _parts(self) -> str:
        """How a workload is written, with an example."""
        clusters = sorted(self._playbooks.clusters)
        if len(clusters) == 1:
            return "the namespace and the name, as in serving/llm"
        return f"the cluster, the namespace and the name, as in {clusters[0]}/serving/llm"

    def _known(self) -> dict[str, Playbook]:
        library = self._playbooks.library.playbooks
        return {name: library[name].playbook for name in sorted(library)}

    async def _must_operate(self, user: str) -> None:
        await permitted(self._services.people.may_operate(user, at=self._services.clock.now()))


def _kept(target: Target) -> str:
    """The workload as a form keeps it. An annotation may be of any length; one of this length is no valid target."""
    slo = tuple((name, text[:ANNOTATION_CHARACTERS]) for name, text in target.slo)
    return target.model_copy(update={"slo": slo}).model_dump_json(exclude_defaults=True)


def _no_cluster(error: ClusterError) -> NotDoneError:
    return NotDoneError(fields={WORKLOAD: f"The cluster did not answer ({error}). Please send it again."})


def _first_form(known: Mapping[str, Playbook], parts: str) -> Form:
    titles = {name: playbook.title for name, playbook in known.items()}
    return {
        PLAYBOOK: FormField(label="Which playbook?", kind="choice", options=titles),
        WORKLOAD: FormField(label="Which workload?", max_length=limits.ONE_LINE, why=f"Write {parts}."),
        SEEN: FormField(label="What do you see?", optional=True, max_length=300, why="The timeline begins with it."),
    }


def _any_form(known: Mapping[str, Playbook]) -> bool:
    return any(playbook.form for playbook in known.values())
