"""The stand-in for Slack, proved with the real SDK, the real slack-bolt and a real browser."""
