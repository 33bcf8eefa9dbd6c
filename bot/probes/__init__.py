"""Probes: what playbooks can read besides metrics. One module for each, which ends with `PROBE = Probe(...)`."""
