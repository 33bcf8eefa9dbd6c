"""Who must approve a change, and the permission that results."""
