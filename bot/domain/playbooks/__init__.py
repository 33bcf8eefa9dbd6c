"""The playbook language, and a playbook that is ready to run."""
