"""Engine flags: where they stand, how they are edited, which version has which."""
