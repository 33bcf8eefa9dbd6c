"""Options of the whole test run, and requirements that may not be installed."""

import gc
import itertools
import os
import sys

import hypothesis
import pytest
import structlog

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

WORLDS = "tests/end_to_end/"
"""Each test runs one to four demo worlds, of which each needs a fifth of a core, and mostly waits."""
LONGEST_FIRST = (
    f"{WORLDS}test_scaling.py",
    f"{WORLDS}test_serving_playbooks.py",
    f"{WORLDS}test_full_clusters.py",
    f"{WORLDS}test_kv_cache_branches.py",
    f"{WORLDS}test_kv_cache_mitigations.py",
    f"{WORLDS}test_owned_fleets.py",
    WORLDS,
    "tests/playbooks/test_shipped.py",
    "tests/flow/test_crash_points.py",
    "tests/flow/test_any_presses.py",
    # These wait for a browser or a cluster, and would be alone at the end.
    "tests/sandbox/slack/test_page.py",
    "tests/adapters/kubernetes/test_settlement.py",
    "tests/sandbox/fleet/test_fleet_world.py",
    # These compute: two cores have little else to do while four worlds wait.
    "tests/flow/",
    "tests/playbooks/",
    "tests/adapters/slack/test_worst",
    "tests/life/",
    "tests/bench/",
    "tests/cli/",
)
AT_ONCE = 3
"""Modules of worlds that begin at the start of the run, each beside one other module."""
BETWEEN = 8
"""Modules between two that run worlds, so that about half of six workers run worlds, almost until the end."""


# Collecting the tests creates millions of objects that stay. Scanning them repeatedly takes a third of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    # As often as Python does it by default, it takes a quarter of the time of the tests.
    gc.set_threshold(50_000)
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Workers take whole modules in this order: the longest first, and worlds beside tests that compute.

    If all workers ran worlds at once, two cores would be too few, and a world that gets no core misses its times.
    """

    def turn(module: str) -> int:
        begins = (module.startswith(begin) for begin in LONGEST_FIRST)
        return next((at for at, fits in enumerate(begins) if fits), len(LONGEST_FIRST))

    by_module: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_module.setdefault(item.nodeid.partition("::")[0], []).append(item)
    modules = sorted(by_module, key=turn)
    worlds = [module for module in modules if module.startswith(WORLDS)]
    others = iter([module for module in modules if not module.startswith(WORLDS)])
    order: list[str] = []
    for at, world in enumerate(worlds):
        order += [world, *itertools.islice(others, 1 if at < AT_ONCE else BETWEEN)]
    items[:] = [item for module in [*order, *others] for item in by_module[module]]


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
