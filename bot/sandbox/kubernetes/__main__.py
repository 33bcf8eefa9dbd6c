"""`python -m bot.sandbox.kubernetes`: serve the API and run its controllers until told to stop."""

import argparse
import os
from collections.abc import Awaitable, Callable

import uvloop

from bot.sandbox.kubernetes import worlds
from bot.sandbox.kubernetes.access import Access, Denial
from bot.sandbox.kubernetes.controllers.argocd import ArgoCD
from bot.sandbox.kubernetes.controllers.autoscaler import Autoscaler
from bot.sandbox.kubernetes.controllers.cleaning import (
    EventCleaner,
    GarbageCollector,
    NamespaceCleaner,
    PodCleaner,
    RootCertificates,
)
from bot.sandbox.kubernetes.controllers.deployment import DeploymentController
from bot.sandbox.kubernetes.controllers.disruption import DisruptionController
from bot.sandbox.kubernetes.controllers.endpoint_slice import EndpointSliceController
from bot.sandbox.kubernetes.controllers.job import JobController
from bot.sandbox.kubernetes.controllers.keda import Keda
from bot.sandbox.kubernetes.controllers.leader_worker_set import LeaderWorkerSetController
from bot.sandbox.kubernetes.controllers.loop import Controller, ControllerLoop
from bot.sandbox.kubernetes.controllers.node_autoscaler import NodeAutoscaler, NodeGroup
from bot.sandbox.kubernetes.controllers.quota import QuotaController
from bot.sandbox.kubernetes.controllers.replica_set import ReplicaSetController
from bot.sandbox.kubernetes.controllers.scheduler import Scheduler
from bot.sandbox.kubernetes.controllers.stateful_set import StatefulSetController
from bot.sandbox.kubernetes.kubelet import Kubelet, log_route
from bot.sandbox.kubernetes.process import AnnouncingServer, bind, serve
from bot.sandbox.kubernetes.registry import Registry
from bot.sandbox.kubernetes.sandbox_routes import routes
from bot.sandbox.kubernetes.server import ApiServer, application
from bot.sandbox.kubernetes.store import Store
from bot.sandbox.lifetime import die_with_parent


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bot.sandbox.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--seed-world", choices=sorted(worlds.WORLDS), default="empty")
    parser.add_argument("--engine-image", default="", help="instead of the world's own")
    parser.add_argument("--with-kubelet", action="store_true", help="run pods without the simulated fleet")
    parser.add_argument("--token", default="", help="expect this bearer token of all but the fleet")
    parser.add_argument("--deny", type=Denial.parse, action="append", default=[], metavar="VERB:RESOURCE")
    parser.add_argument("--only-in", action="append", default=[], metavar="NAMESPACE", help="where roles are bound")
    parser.add_argument("--without-crds", action="append", default=[], metavar="GROUP", help="not installed here")
    parser.add_argument("--node-group", type=NodeGroup.parse, metavar="MAX:SECONDS", help="run a node autoscaler")
    parser.add_argument("--history", type=int, default=5000, help="changes kept for watches")
    parser.add_argument("--die-with-parent", action="store_true")
    return parser


def main() -> None:
    arguments = parser().parse_args()
    if arguments.die_with_parent:
        die_with_parent()
    uvloop.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    listening = bind("127.0.0.1", arguments.port)
    port = listening.getsockname()[1]
    registry = Registry(Store(arguments.history))
    access = Access(arguments.token, tuple(arguments.deny), frozenset(arguments.only_in))
    server = ApiServer(registry, access, absent=frozenset(arguments.without_crds))
    controllers = ControllerLoop(registry.store, _controllers(registry))
    if arguments.node_group is not None:
        controllers.add(NodeAutoscaler(registry, arguments.node_group))
    if arguments.with_kubelet:
        controllers.add(Kubelet(registry, port))
    worlds.seed(registry, arguments.seed_world, image=arguments.engine_image)
    extra = [log_route(registry)] if arguments.with_kubelet else []
    app = application([*routes(server, controllers), *extra, *server.routes()])
    tasks: list[Callable[[], Awaitable[None]]] = [controllers.run]
    url = f"http://127.0.0.1:{port}"
    ready = {"url": url, "pid": os.getpid()}
    await serve(AnnouncingServer(app, ready, server.streams.end_all), listening, tasks)


def _controllers(registry: Registry) -> list[Controller]:
    return [
        DeploymentController(registry),
        ReplicaSetController(registry),
        StatefulSetController(registry),
        LeaderWorkerSetController(registry),
        JobController(registry),
        Autoscaler(registry),
        Keda(registry),
        ArgoCD(registry),
        QuotaController(registry),
        Scheduler(registry),
        EndpointSliceController(registry),
        DisruptionController(registry),
        PodCleaner(registry),
        GarbageCollector(registry),
        NamespaceCleaner(registry),
        EventCleaner(registry),
        RootCertificates(registry),
    ]


if __name__ == "__main__":
    main()
