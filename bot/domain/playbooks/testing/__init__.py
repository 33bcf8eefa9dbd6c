"""The tables by which a playbook is tested, and the rows that playbooks must cover."""
