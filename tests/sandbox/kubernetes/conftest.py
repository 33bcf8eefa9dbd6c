"""The cluster of the contract tests: the simulator over a real socket, or any real cluster by `--kubeconfig`.

Every test has a namespace of its own, which goes with it.
"""

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.processes import Running, start
from tests.sandbox.kubernetes.bench import Bench, bench_on
from tests.sandbox.kubernetes.cluster import Cluster, connect

STAND_IN = "bot.sandbox.kubernetes"


@pytest.fixture(scope="session")
def stand_in(request: pytest.FixtureRequest) -> Iterator[Running | None]:
    """One process for all tests; None when they run against a real cluster."""
    if request.config.getoption("--kubeconfig"):
        yield None
        return
    with start(STAND_IN, "--seed-world", "plain", "--with-kubelet", "--die-with-parent") as running:
        yield running
        assert "failed on" not in running.output(), "a controller failed"


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, stand_in: Running | None) -> AsyncIterator[Cluster]:
    kubeconfig = request.config.getoption("--kubeconfig")
    image = request.config.getoption("--kubernetes-image")
    async with connect(stand_in.url if stand_in else None, kubeconfig=kubeconfig, image=image) as connected:
        yield connected


@pytest.fixture
async def bench(request: pytest.FixtureRequest, cluster: Cluster) -> AsyncIterator[Bench]:
    """Three replicas in rotation, and the bot's hands on them."""
    kubeconfig, wanted = request.config.getoption("--kubeconfig"), request.config.getoption("--gpu-resource")
    async with bench_on(cluster, kubeconfig=kubeconfig, wanted=wanted) as made:
        yield made


@pytest.fixture
def own_stand_in(request: pytest.FixtureRequest) -> Iterator[Callable[..., Running]]:
    """Start a stand-in with other options, for what no real cluster can be asked to do."""
    if request.config.getoption("--kubeconfig"):
        pytest.skip("asks for what only the stand-in can do")
    started: list[Running] = []

    def begin(*args: str) -> Running:
        started.append(start(STAND_IN, *args, "--die-with-parent"))
        return started[-1]

    yield begin
    for one in started:
        one.stop()


@pytest.fixture
async def own_cluster(own_stand_in: Callable[..., Running]) -> AsyncIterator[Cluster]:
    """The demo world with GPUs and a kubelet, for one test alone."""
    running = own_stand_in("--seed-world", "demo", "--with-kubelet")
    async with connect(running.url) as connected:
        yield connected
