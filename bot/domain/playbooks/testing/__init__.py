"""The test tables of playbooks, and the rows that playbooks must cover."""
