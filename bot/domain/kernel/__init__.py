"""Shared by every other layer: errors, targets, alerts, the timeline, redaction."""
