"""Probes about GPUs and their nodes."""
