"""Readers of a cluster snapshot."""
