"""The order of pytest-xdist: from the first test to the last, some that mostly wait run beside some that compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

WORLDS = "tests/end_to_end/"
"""Each test runs one to four demo worlds, of which each needs a seventh of a core, and mostly waits."""
COMPUTE = 2
"""Workers for all other modules, of which each can use a core. If no worker computed, two cores would be half idle; if
all ran worlds at once, a world would get no core and miss its times."""


class Lanes(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """`--dist loadfile` in two lanes: a worker takes the next module of its own lane, then what the other one left.

    A worker gets its next module while it still runs one, so in one lane for all a module that computes could wait for
    minutes behind a world.
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        runs_worlds = self._runs_worlds(node)
        following = next((scope for scope in self.workqueue if scope.startswith(WORLDS) == runs_worlds), None)
        if following is not None:
            self.workqueue.move_to_end(following, last=False)
        super()._assign_work_unit(node)

    def _runs_worlds(self, node: WorkerController) -> bool:
        computing = min(COMPUTE, len(self.nodes) - 1)
        return list(self.nodes).index(node) >= computing


def scheduler(config: Any, log: Any) -> Lanes | None:
    """None for any other `--dist`."""
    return Lanes(config, log) if config.getoption("dist") == "loadfile" else None
