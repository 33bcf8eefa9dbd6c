"""Probes about earlier incidents."""
