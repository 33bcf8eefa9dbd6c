"""Imports modules of the official client alone.

The packages `kubernetes` and `kubernetes.aio` import all of the client, also the synchronous one, which the bot never
uses. Where nobody has imported them yet, packages that import nothing take their place.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from threading import Lock
from types import ModuleType

_PACKAGES = ("kubernetes", "kubernetes.aio")
_one_at_a_time = Lock()


def library(name: str) -> ModuleType:
    """The module `kubernetes.aio.NAME`."""
    with _one_at_a_time:
        for package in _PACKAGES:
            if package not in sys.modules:
                _put(package)
    return importlib.import_module(f"kubernetes.aio.{name}")


def _put(package: str) -> None:
    parent, _, name = package.rpartition(".")
    spec = PathFinder.find_spec(package, sys.modules[parent].__path__ if parent else None)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    sys.modules[package] = module_from_spec(spec)
    if parent:
        setattr(sys.modules[parent], name, sys.modules[package])
