"""`python -m bot`: the same commands as `incident-bot`."""

from bot.cli import main

if __name__ == "__main__":
    main()
