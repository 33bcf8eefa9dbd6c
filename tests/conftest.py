"""Options of the whole test run."""

import pytest

pytest_plugins = ["tests.redis_server"]


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
