"""Changes of the cluster: what each would do now, and how it goes on."""
