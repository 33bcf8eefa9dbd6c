"""`python -m bot`: the same commands as `incident-bot`."""

from bot.cli import app

if __name__ == "__main__":
    app()
