"""One handler for each kind of effect: it does what a run wants done outside, and its outcome is events."""
