"""Simulates Prometheus and Alertmanager in the demo: one rule over the fleet's pages, silences, real webhooks."""
