"""The demo world: real counterparts over real sockets, which the bot cannot tell from the real world.

Only `bot.cli` may import it.
"""
