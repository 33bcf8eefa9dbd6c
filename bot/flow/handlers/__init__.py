"""One handler for each kind of effect: it acts outside on behalf of a run, and its outcome is events."""
