"""A verb's declaration. Each file in `verbs/` has one, as `VERB`; `catalogue` collects them.

These declarations yield the words of the playbook language and their help, the table of approvals, the permissions that
`doctor` checks and the stub plans of playbook tests. A new verb is a new file in `verbs/`, its test, and a number of
the stored form, since an earlier version of the bot must not take such a run. `python -m tests.deploy.reference` makes
the reference pages and the schema of playbooks again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from bot.domain.changes.context import Situation
from bot.domain.changes.plan import Plan, Risk
from bot.domain.cluster.workload import KINDS as WORKLOADS
from bot.domain.signals.signal import Kind

ArgumentKind = Literal["anything", "a number", "a whole number", "true or false"]
"""What an argument has to be, unless it is an expression in `${…}`."""


@dataclass(frozen=True)
class Argument:
    """One key of `with` in a playbook. Among those marked `one_of`, exactly one must be given."""

    name: str
    help: str
    need: Literal["required", "optional", "one_of"] = "required"
    kind: ArgumentKind = "anything"
    least: float | None = None
    """The smallest number that makes sense."""
    known: tuple[str, ...] = ()
    """The texts that it may be; empty: any."""


@dataclass(frozen=True)
class ChangeKind:
    """A kind that a change may have. The kind decides who approves it.

    `risk` is the minimum risk: settings and playbooks may raise it. `approved_by` names teams as the settings do
    (`serving + lead`); empty: one approver of its risk level. `minutes`: how long an approval may take; None: the time
    of its risk level.
    """

    name: str
    risk: Risk
    approved_by: str = ""
    minutes: float | None = None


@dataclass(frozen=True)
class Access:
    """One Kubernetes permission, for one kind of object."""

    verb: Literal["get", "list", "create", "patch", "delete"]
    kind: str
    subresource: str = ""


@dataclass(frozen=True)
class Stub:
    """The one call that represents a change in playbook tests, which have no cluster."""

    method: Literal["patch", "create", "delete", "evict"] = "patch"
    of: Literal["workload", "canary", "replica", "node", "last_change"] = "workload"
    has_undo: bool = True


@dataclass(frozen=True)
class Verb:
    name: str
    help: str
    """One line, for authors of playbooks."""
    stage: str
    """What people call the part of an incident in which it is made; also on the button that approves it."""
    plan: Callable[[Situation], Plan]
    """Plans what it would do now. Raises `NoPlanError` if it declines."""
    kinds: tuple[ChangeKind, ...]
    """The first has the verb's own name. If there are several, a plan's kind is the one with its risk."""
    access: Mapping[str, tuple[Access, ...]]
    """The permissions that it needs, by the kind of workload that it changes."""
    arguments: tuple[Argument, ...] = ()
    edits_engines: bool = False
    """Engines answer with other settings afterwards: the edits may change a client contract or answer quality."""
    follows: str = ""
    """It is only possible after this verb; empty: after any."""
    proven_kind: str = ""
    """Its kind after a canary of the incident has run with the same edits."""
    teams: tuple[str, ...] = ()
    """Teams of which one person each may have to approve, besides those of its kind."""
    editable: Literal["", "replicas", "edits"] = ""
    """The numbers that approvers may edit."""
    restores: bool = False
    """It undoes a change of ours: its reason need not still hold."""
    cleans_up: bool = False
    """It only removes or returns what the bot itself put there: it is announced, not approved."""
    undo_cleans_up: bool = False
    """Its undo only removes or returns what the bot itself put there: that is announced, not approved."""
    leaves_behind: bool = False
    """Its effect must not outlive the incident without a person's consent."""
    lasts: bool = True
    """Its effect may still be there once the canary is gone."""
    takes_node: bool = False
    """It takes a node out of service: the node breaker counts it."""
    results: Mapping[str, Kind] = field(default_factory=dict)
    """Its results: later states read them as `results.<state>.<verb>.<part>`."""
    stub: Stub = field(default_factory=Stub)

    @property
    def risk(self) -> Risk:
        """The minimum risk of the kind with its name."""
        return self.kinds[0].risk

    @property
    def required(self) -> frozenset[str]:
        return self._named("required")

    @property
    def one_of(self) -> frozenset[str]:
        return self._named("one_of")

    @property
    def takes(self) -> frozenset[str]:
        return frozenset(argument.name for argument in self.arguments)

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)

    def _named(self, need: str) -> frozenset[str]:
        return frozenset(argument.name for argument in self.arguments if argument.need == need)


# --- arguments that several verbs have --------------------------------------------------------------------------------

EDITS = Argument(
    "edits",
    "a list of {flag: --name, direction: raise|lower|set, value: …}, {env: NAME, value: …}, {image: …}; "
    "instead of flag, `first_of: [--new, --old]` takes the first that the engine has; "
    "an edit with `when` is made only if that is true",
)
REPLICA = Argument(
    "replica", "a replica's name, most often '${picked.replica}'; canary for our canary, where a verb takes it"
)
NODE = (
    Argument("node", "a node's name", "one_of"),
    Argument("replica", REPLICA.help, "one_of"),
)
"""A node, by its own name or by that of a replica on it."""
WITHIN_MINUTES = Argument("within_minutes", "how long it may take", "optional", kind="a number", least=1)
ROTATION_HELP = "in or out: whether the canary gets requests"
ROTATIONS = ("in", "out")

# --- permissions that several verbs need ------------------------------------------------------------------------------

PATCH_POD, EVICT = Access("patch", "Pod"), Access("create", "Pod", "eviction")
PATCH_CONFIG_MAP, CORDON = Access("patch", "ConfigMap"), Access("patch", "Node")
FLOORS_OF_AUTOSCALERS = (Access("patch", "HorizontalPodAutoscaler"), Access("patch", "ScaledObject"))
PATCH, CREATE, DELETE = Access("patch", "Deployment"), Access("create", "Deployment"), Access("delete", "Deployment")


def everywhere(*access: Access) -> Mapping[str, tuple[Access, ...]]:
    """Returns the same permissions for workloads of every kind."""
    return dict.fromkeys(WORKLOADS, access)


def rolled(*kinds: str, besides: tuple[Access, ...] = ()) -> Mapping[str, tuple[Access, ...]]:
    """Returns the permissions to roll out a workload. A Deployment's old pods are marked and drained before they end,
    a StatefulSet's are evicted where its controller would wait for them; else the controller sets the order.
    """
    of_pods = {"Deployment": (PATCH_POD,), "StatefulSet": (EVICT,)}
    return {kind: (Access("patch", kind), *besides, *FLOORS_OF_AUTOSCALERS, *of_pods.get(kind, ())) for kind in kinds}
