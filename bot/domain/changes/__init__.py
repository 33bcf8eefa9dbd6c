"""Changes to the cluster: what each would do now, and how it progresses."""
