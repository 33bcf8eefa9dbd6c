"""The playbook language, and playbooks that are ready to run."""
