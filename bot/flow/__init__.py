"""The bot's actions: each module performs one step of an incident's path, through the ports in `flow.ports`."""
