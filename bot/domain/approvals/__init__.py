"""Who must agree to a change, and the permission that comes of it."""
