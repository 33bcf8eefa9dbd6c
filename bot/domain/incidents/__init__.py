"""One incident: its run, its events and effects, and how each event moves it."""
