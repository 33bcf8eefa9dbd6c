"""The nouns of the bot. Nothing here waits, logs, reads a clock or touches a network."""
