"""A simulator of Slack: its Web API, signed interactions and a chat page, in memory, on loopback.

It knows nothing of incidents. Its answers are those of Slack, so that a bot cannot distinguish the two.
"""
