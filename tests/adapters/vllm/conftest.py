"""Fixtures with pages and logs of real vLLM servers."""

from tests.kit.captures import capture, captures

__all__ = ["capture", "captures"]
