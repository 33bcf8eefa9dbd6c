"""Kubernetes through its official client: reads, dry runs, and, in `writer.py` alone, changes."""
