"""Readings: what a signal is, and how samples become one."""
