"""A playbook: settings, signals and states as an author wrote them, checked, and made into a machine."""
