"""Slack: shows incidents in a channel, and receives people's clicks and commands."""
