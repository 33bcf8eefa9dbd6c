"""Regular expressions that people write: RE2, which ends in time proportional to the text, whatever the pattern."""

from __future__ import annotations

from typing import Any

HINT = "Write '.*' for anything, and a backslash before a sign that means itself."


def compile_pattern(pattern: str) -> Any:
    """Returns the compiled pattern; raises `ValueError` with the reason if it is not valid."""
    import re2  # when an alert comes, or a playbook is checked: it takes 2 MB

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise ValueError(f"the regular expression is not valid: {reason}") from error
