"""Slack: how an incident looks in a channel, and how people's clicks and commands come in."""
