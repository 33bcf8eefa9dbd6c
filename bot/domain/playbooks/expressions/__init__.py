"""Expressions and texts with `${…}`, and the names that they may use."""
