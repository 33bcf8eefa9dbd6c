"""Probes about what lies between users and engines."""
