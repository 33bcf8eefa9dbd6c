"""Redis and Valkey: accepted alerts, runs, timelines, owed effects and claims. Nothing is lost, nothing doubled."""
