"""Probes about the layers between users and engines."""
