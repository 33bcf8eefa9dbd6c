"""Which module imports which, also inside functions, and where imports form a cycle."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping

import grimp


def imports_of(package: str) -> dict[str, set[str]]:
    """Every module of the package with those of the package that it imports."""
    graph = grimp.build_graph(package, cache_dir=None)
    return {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Circles of modules that import each other, one after the other, until none is left."""
    left = {module: set(others) for module, others in imports.items()}
    found: list[list[str]] = []
    while True:
        try:
            graphlib.TopologicalSorter(left).prepare()
        except graphlib.CycleError as error:
            circle = sorted(set(error.args[1]))
            found.append(circle)
            for module in circle:
                left[module] -= set(circle)
        else:
            return sorted(found)
