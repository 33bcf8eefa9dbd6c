"""Engine flags: where they are written, how they are edited, which version has which."""
