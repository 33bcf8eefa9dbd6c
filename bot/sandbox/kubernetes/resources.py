"""The kinds of this API server, as one table; discovery, routing and storage are read from it.

A resource that the bot does not use is not in the table, and is answered as on a cluster without it: 404.
"""

from dataclasses import dataclass

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")


@dataclass(frozen=True)
class Resource:
    """One row: its place in the API and its parts."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    has_status: bool = False
    counts_generation: bool = False
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = READ + WRITE
    short_names: tuple[str, ...] = ()
    is_custom: bool = False
    """Of a CustomResourceDefinition: the official client has no model of it."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`deployments.apps`: its name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", is_namespaced=False, has_status=True, short_names=("ns",))
NODES = Resource("", "v1", "nodes", "Node", is_namespaced=False, has_status=True, subresources=("status",))
PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    has_status=True,
    counts_generation=True,
    subresources=("status", "log", "eviction", "proxy", "exec"),
    short_names=("po",),
)
SERVICES = Resource("", "v1", "services", "Service", has_status=True, short_names=("svc",))
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", has_status=True, subresources=("status",), short_names=("quota",)
)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", counts_generation=True)
DEPLOYMENTS = Resource(
    "apps",
    "v1",
    "deployments",
    "Deployment",
    has_status=True,
    counts_generation=True,
    subresources=("status", "scale"),
    short_names=("deploy",),
)
REPLICA_SETS = Resource(
    "apps",
    "v1",
    "replicasets",
    "ReplicaSet",
    has_status=True,
    counts_generation=True,
    subresources=("status", "scale"),
    short_names=("rs",),
)
STATEFUL_SETS = Resource(
    "apps",
    "v1",
    "statefulsets",
    "StatefulSet",
    has_status=True,
    counts_generation=True,
    subresources=("status", "scale"),
    short_names=("sts",),
)
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    has_status=True,
    counts_generation=True,
    subresources=("status", "scale"),
    short_names=("lws",),
    is_custom=True,
)
SCALED_OBJECTS = Resource(
    "keda.sh",
    "v1alpha1",
    "scaledobjects",
    "ScaledObject",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    short_names=("so",),
    is_custom=True,
)
INFERENCE_POOLS = Resource(
    "inference.networking.k8s.io",
    "v1",
    "inferencepools",
    "InferencePool",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    short_names=("infpool",),
    is_custom=True,
)
OLDER_INFERENCE_POOLS = Resource(
    "inference.networking.x-k8s.io",
    "v1alpha2",
    "inferencepools",
    "InferencePool",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    is_custom=True,
)
APPLICATIONS = Resource(
    "argoproj.io",
    "v1alpha1",
    "applications",
    "Application",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    short_names=("app",),
    is_custom=True,
)
DISRUPTION_BUDGETS = Resource(
    "policy",
    "v1",
    "poddisruptionbudgets",
    "PodDisruptionBudget",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    short_names=("pdb",),
)
# It has no metrics: only its minimum and its maximum are used.
AUTOSCALERS = Resource(
    "autoscaling",
    "v2",
    "horizontalpodautoscalers",
    "HorizontalPodAutoscaler",
    has_status=True,
    short_names=("hpa",),
)
JOBS = Resource("batch", "v1", "jobs", "Job", has_status=True, counts_generation=True, subresources=("status",))
# Stored as a template of Jobs: its own schedule is never due.
CRON_JOBS = Resource(
    "batch",
    "v1",
    "cronjobs",
    "CronJob",
    has_status=True,
    counts_generation=True,
    subresources=("status",),
    short_names=("cj",),
)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    is_namespaced=False,
    verbs=("create",),
)

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    EVENTS,
    CONFIG_MAPS,
    RESOURCE_QUOTAS,
    ENDPOINT_SLICES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    CONTROLLER_REVISIONS,
    LEADER_WORKER_SETS,
    DISRUPTION_BUDGETS,
    AUTOSCALERS,
    SCALED_OBJECTS,
    INFERENCE_POOLS,
    OLDER_INFERENCE_POOLS,
    APPLICATIONS,
    JOBS,
    CRON_JOBS,
    ACCESS_REVIEWS,
)

BY_PATH = {(row.group, row.version, row.plural): row for row in RESOURCES}
BY_KIND = {(row.api_version, row.kind): row for row in RESOURCES}
STORED: tuple[Resource, ...] = tuple(row for row in RESOURCES if "get" in row.verbs)
