"""Probes about the objects of the cluster."""
