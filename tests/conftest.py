"""Options of the whole test run, and what a test needs that may not be installed."""

import hypothesis
import pytest

from tests.servers import skip_without_servers

# A deadline for each example is a timing assertion: on a busy machine it fails what is right.
hypothesis.settings.register_profile("without_timing", deadline=None)
hypothesis.settings.load_profile("without_timing")

pytest_plugins = ["tests.redis_server"]


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
