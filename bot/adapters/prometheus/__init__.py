"""Everything that is read from Prometheus: the replicas' history, a day of memory, the router's numbers."""
