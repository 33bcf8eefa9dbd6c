"""Options of the whole test run, and what a test needs that may not be installed."""

import os

import pytest

from tests.servers import NEEDED, skip_without_servers

pytest_plugins = ["tests.redis_server"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: a server that is missing must not cost the time to start the others."""
    skip_without_servers(item)


@pytest.fixture(scope="session", autouse=True)
def _environment_of_the_bot() -> None:
    """Every process of a test inherits this environment, and the bot refuses what has its prefix and is no setting."""
    os.environ.pop(NEEDED, None)


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
