"""Pure planning of changes: from a snapshot of the cluster to the exact calls, their inverse and what to wait for."""
