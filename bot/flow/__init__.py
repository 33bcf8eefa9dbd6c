"""The verbs of the bot: each module does one step of an incident's road, through the ports in `flow.ports`."""
