"""Access control: an optional bearer token and an optional list of denied verbs.

The simulated kubelets are exempt, as kubelets have their own identity on a real cluster.
"""

from dataclasses import dataclass, field
from typing import Self

from bot.sandbox.kubernetes import errors
from bot.sandbox.kubernetes.resources import Resource

REVIEWS = "authorization.k8s.io"
KUBELET_AGENT = "sandbox-kubelet"
USER = "system:serviceaccount:sandbox:incident-bot"


@dataclass(frozen=True)
class Attributes:
    """The attributes of a request, in the terms of an access review."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True)
class Denial:
    """`patch:deployments`, `create:pods/eviction`, `*:nodes`."""

    verb: str
    resource: str

    @classmethod
    def parse(cls, text: str) -> Self:
        verb, separator, resource = text.partition(":")
        if not (verb and separator and resource):
            raise ValueError(f"{text!r} is not verb:resource; example: patch:deployments")
        return cls(verb, resource)

    def covers(self, attributes: Attributes) -> bool:
        return self.verb in ("*", attributes.verb) and self.resource in ("*", attributes.full_resource)


@dataclass(frozen=True)
class Access:
    token: str = ""
    denials: tuple[Denial, ...] = field(default=())
    only_in: frozenset[str] = frozenset()
    """The namespaces where roles are bound; without any, everywhere."""

    def expect_known(self, authorization: str, agent: str) -> None:
        """Raises 401 without the right token."""
        if self.token and not is_kubelet(agent) and authorization != f"Bearer {self.token}":
            raise errors.unauthorized()

    def is_allowed(self, attributes: Attributes) -> bool:
        # Requests that every account may send need no role.
        is_bound = not self.only_in or attributes.namespace in self.only_in or attributes.group == REVIEWS
        return is_bound and not any(denial.covers(attributes) for denial in self.denials)

    def expect_allowed(self, attributes: Attributes, resource: Resource, agent: str) -> None:
        """Raises 403 with the message of RBAC."""
        if is_kubelet(agent) or self.is_allowed(attributes):
            return
        where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
        problem = (
            f'User "{USER}" cannot {attributes.verb} resource "{attributes.full_resource}" '
            f'in API group "{attributes.group}" {where}'
        )
        raise errors.forbidden(resource, attributes.name, problem)


def is_kubelet(agent: str) -> bool:
    return agent.startswith(KUBELET_AGENT)
