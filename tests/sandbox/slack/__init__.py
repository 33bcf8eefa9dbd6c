"""The Slack simulator, tested with the real SDK, the real slack-bolt and a real browser."""
