"""What the processes of a demo world need, imported once; each of them is a fork of the process that imports this."""

from __future__ import annotations

import gc
import importlib
import sys

SERVERS = ("bot", "bot.sandbox.kubernetes", "bot.sandbox.fleet", "bot.sandbox.slack", "bot.sandbox.alerting")
BESIDES = ("bot.wiring", "bot.adapters.pictures.charts")
"""What commands import only once they run."""

sys.dont_write_bytecode = False
for _name in SERVERS:
    importlib.import_module(f"{_name}.__main__")
    # Each fork runs one of these modules from its beginning.
    del sys.modules[f"{_name}.__main__"]
for _name in BESIDES:
    importlib.import_module(_name)
# What stays for ever is never scanned, and so its memory stays shared.
gc.collect()
gc.freeze()
