"""`python -m bot.sandbox.fleet --api URL --port 0`: run the fleet until SIGTERM; one `ready` line on stdout."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import sys
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from bot.sandbox.fleet.addresses import Addresses
from bot.sandbox.fleet.api import KubernetesApi
from bot.sandbox.fleet.control import Control
from bot.sandbox.fleet.engine import Pace
from bot.sandbox.fleet.engines import Engines
from bot.sandbox.fleet.kubelet import Kubelets
from bot.sandbox.fleet.pod_worker import Timing
from bot.sandbox.fleet.simulated import SimulatedEngines
from bot.sandbox.fleet.traffic import Traffic
from bot.sandbox.fleet.vllm_process import VllmEngines
from bot.sandbox.lifetime import die_with_parent

CLOSE_SECONDS = 0.7
AS_CAPTURED = Pace().per_prefill_token_seconds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bot.sandbox.fleet", description=__doc__)
    parser.add_argument("--api", required=True, help="URL of the Kubernetes API")
    parser.add_argument("--token", help="bearer token for the Kubernetes API")
    parser.add_argument("--port", type=int, default=0, help="of the /__sandbox__/ endpoints; 0 picks a free one")
    parser.add_argument("--service", default="serving/llm", help="namespace/name that the gateway routes to")
    parser.add_argument("--pods", default="", help="labels of the pods that it routes to, in place of the Service")
    parser.add_argument("--startup-seconds", type=float, default=3.0, help="how long a simulated vLLM takes to start")
    parser.add_argument("--prefill-seconds", type=float, default=AS_CAPTURED, help="of a simulated vLLM for a token")
    parser.add_argument("--vllm", type=Path, help="run this vLLM command on the CPU instead of simulated engines")
    parser.add_argument("--time-scale", type=float, default=1.0, help="shortens preStop and restart back-off")
    parser.add_argument("--seed", type=int, default=0, help="of the clients' requests")
    parser.add_argument("--die-with-parent", action="store_true")
    return parser.parse_args()


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    api = KubernetesApi(options.api, options.token)
    addresses = Addresses()
    traffic = Traffic(options.seed)
    pace = Pace(per_prefill_token_seconds=options.prefill_seconds)
    engines: Engines = VllmEngines(options.vllm) if options.vllm else SimulatedEngines(options.startup_seconds, pace)
    timing = Timing(options.startup_seconds, options.time_scale)
    kubelets = Kubelets(api, addresses, timing, engines, traffic)
    await kubelets.open()
    runner, url = await _listen(Control(traffic, kubelets), options.port)
    namespace, _, service = options.service.partition("/")
    following = (
        traffic.follow_pods(api, namespace, options.pods)
        if options.pods
        else traffic.follow_service(api, namespace, service)
    )
    work = [
        asyncio.create_task(kubelets.run(), name="kubelets"),
        asyncio.create_task(following, name="rotation"),
        asyncio.create_task(traffic.run(), name="traffic"),
    ]
    ready = {"url": url, "octet": addresses.octet, "nodes": {n.name: n.address for n in kubelets.nodes.values()}}
    print(f"ready {json.dumps(ready)}", flush=True)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([*work, stopped], return_when=asyncio.FIRST_COMPLETED)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS):
            await _close(work, kubelets, runner, api)
    for task in work:
        if task.done() and not task.cancelled():
            task.result()  # a loop that ended by itself ended with an error: raise it


async def _listen(control: Control, port: int) -> tuple[web.AppRunner, str]:
    application = web.Application()
    application.add_routes(control.routes())
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    host, bound = runner.addresses[0][:2]
    return runner, f"http://{host}:{bound}"


async def _close(work: list[asyncio.Task[None]], kubelets: Kubelets, runner: web.AppRunner, api: KubernetesApi) -> None:
    for task in work:
        task.cancel()
    await kubelets.close()
    await runner.cleanup()
    await api.close()


def main() -> None:
    options = _options()
    if options.die_with_parent:
        die_with_parent()
    # Standard output carries one line only, for the parent process.
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    uvloop.run(_run(options))


if __name__ == "__main__":
    main()
