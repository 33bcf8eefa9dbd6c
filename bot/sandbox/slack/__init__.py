"""A stand-in for Slack: its Web API, signed interactions and a chat page, in memory, on loopback.

It knows nothing of incidents. What it answers is what Slack answers, so that a bot cannot tell the two apart.
"""
