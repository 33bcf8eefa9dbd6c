"""vLLM: what its `/metrics` page, its logs and its flags say, in the bot's own words."""
