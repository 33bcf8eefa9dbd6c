"""Logs and metrics of real vLLM servers."""

from tests.kit.captures import captures

__all__ = ["captures"]
