"""Redis and Valkey: where accepted alerts, runs, timelines, owed effects and claims live. Nothing is lost, nothing doubled."""
