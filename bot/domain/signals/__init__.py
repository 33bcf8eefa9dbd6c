"""Signals, and how samples become readings."""
