"""A playbook as a graph and as a picture."""
