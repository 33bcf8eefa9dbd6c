"""Probes about the engines: their flags, logs, crashes, KV cache and load."""
