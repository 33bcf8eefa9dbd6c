"""What a snapshot of the cluster shows."""
