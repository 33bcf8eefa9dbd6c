"""vLLM: parses its `/metrics` page, its logs and its flags into the bot's own terms."""
