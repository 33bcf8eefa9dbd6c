"""Probes: what a playbook can ask besides metrics. One module for each, which ends with `PROBE = Probe(...)`."""
