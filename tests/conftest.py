"""Options of the whole test run, and requirements that may not be installed."""

import gc
import os
import sys

import hypothesis
import pytest
import structlog

from tests.lanes import WORLDS, scheduler
from tests.servers import skip_without_servers

# A world is many processes of one code: without bytecode each of them compiles every library again, for seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A deadline for each example is a timing assertion: on a busy machine it fails what is right.
hypothesis.settings.register_profile("without_timing", deadline=None)
hypothesis.settings.load_profile("without_timing")

# As the bot renders them: the default draws each traceback as a picture, for seconds.
PLAIN = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], PLAIN])

pytest_plugins = ["tests.redis_server"]

SLOWEST_FIRST = (
    f"{WORLDS}test_serving_playbooks.py",
    f"{WORLDS}test_scaling.py",
    f"{WORLDS}test_full_clusters.py",
    f"{WORLDS}test_kv_cache_mitigations.py",
    f"{WORLDS}test_kv_cache_branches.py",
    f"{WORLDS}test_owned_fleets.py",
    f"{WORLDS}test_observe_only.py",
    f"{WORLDS}test_replicas.py",
    f"{WORLDS}test_routers.py",
    f"{WORLDS}test_kv_compression_branches.py",
    WORLDS,
    "tests/playbooks/test_shipped.py",
    "tests/flow/test_crash_points.py",
    "tests/flow/test_any_presses.py",
    # These wait for a browser, a cluster or a server, and would be alone at the end.
    "tests/sandbox/slack/test_page.py",
    "tests/sandbox/fleet/test_fleet_world.py",
    "tests/adapters/kubernetes/test_settlement.py",
    "tests/adapters/redis/test_primary.py",
    "tests/sandbox/kubernetes/test_verbs.py",
    "tests/sandbox/fleet/calibration/",
    "tests/adapters/slack/test_worst",
    "tests/adapters/slack/test_app.py",
    "tests/adapters/test_prometheus.py",
    "tests/playbooks/",
    "tests/life/",
    "tests/bench/",
    "tests/cli/",
    "tests/flow/",
)


# Collecting the tests creates millions of objects that stay. Scanning them repeatedly takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    # As often as Python does it by default, it takes a quarter of the time of the tests.
    gc.set_threshold(50_000)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take whole modules in this order, each in its own lane."""

    def turn(item: pytest.Item) -> int:
        begins = (item.nodeid.startswith(begin) for begin in SLOWEST_FIRST)
        return next((at for at, fits in enumerate(begins) if fits), len(SLOWEST_FIRST))

    items.sort(key=turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    return scheduler(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: a server that is missing must not cost the time to start the others."""
    skip_without_servers(item)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubernetes contract")
    group.addoption(
        "--kubeconfig",
        default=None,
        help="run the Kubernetes contract tests against this cluster instead of the stand-in",
    )
    group.addoption(
        "--kubernetes-image",
        default="registry.k8s.io/pause:3.9",
        help="an image that the cluster can pull and that runs for ever",
    )
    group.addoption(
        "--gpu-resource",
        default="",
        help="what a replica of the contract tests asks for: an extended resource that the nodes have, or cpu (room is "
        "then not known, and tests of it are skipped); default: one of its own, added to the status of two nodes",
    )
