"""Charts and drawings, by matplotlib."""
