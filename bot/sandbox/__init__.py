"""The demo world: simulators behind real sockets, which the bot cannot distinguish from real services.

Only `bot.cli` may import it.
"""
