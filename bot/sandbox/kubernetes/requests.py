"""Parses a URL of the Kubernetes API: resource, namespace, name, subresource and verb."""

from dataclasses import dataclass

from starlette.datastructures import QueryParams

from bot.sandbox.kubernetes.access import Attributes
from bot.sandbox.kubernetes.errors import no_such_path
from bot.sandbox.kubernetes.resources import BY_PATH, Resource

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Target:
    """The object, collection or subresource that a request names."""

    resource: Resource
    namespace: str
    name: str
    subresource: str
    rest: str = ""
    """The part after `proxy`: the path of the pod's own page."""

    def attributes(self, method: str, query: QueryParams) -> Attributes:
        return Attributes(
            verb=self._verb(method, query),
            group=self.resource.group,
            resource=self.resource.plural,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name,
        )

    def _verb(self, method: str, query: QueryParams) -> str:
        if method in ("GET", "HEAD"):
            if self.name:
                return "get"
            return "watch" if is_true(query.get("watch")) else "list"
        if method == "DELETE" and not self.name:
            return "deletecollection"
        return _VERBS[method]


def is_true(text: str | None) -> bool:
    return text in ("true", "1", "True")


def parse_target(path: str) -> Target:
    """Parses `/api/v1/…` and `/apis/group/version/…`; raises 404 for what this server does not have."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            raise no_such_path()
    namespace = ""
    # `namespaces/x` and `namespaces/x/status` name the namespace itself; any third part is a collection in it.
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource, *surplus = [*rest, "", "", ""][: max(3, len(rest))]
    resource = BY_PATH.get((group, version, plural))
    if resource is None or (any(surplus) and subresource != "proxy"):
        raise no_such_path()
    if subresource and subresource not in (*resource.subresources, *(["status"] if resource.has_status else [])):
        raise no_such_path()
    if bool(namespace) != resource.is_namespaced and (namespace or name):
        raise no_such_path()
    return Target(resource, namespace, name, subresource, "/".join(surplus))
