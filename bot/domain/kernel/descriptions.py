"""Whether models read the docstrings of their fields from the source: what schemas and references show.

It is a sixth of the time to import the bot, and a bot that serves shows none of them.
"""

from __future__ import annotations

are_read = True
"""Set before the first model is imported."""
