"""Kubernetes through its official client: reading, rehearsing, and, in `writer.py` alone, changing."""
