"""The demo world: real counterparts over real sockets. Only `bot.cli` may import it; the bot cannot tell it from the real world."""
