"""Everything that is asked of a Prometheus: the replicas' history, a day of memory, the router's numbers."""
