"""`python -m bot.sandbox.slack`: one simulator, one line on stdout when it listens."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from bot.sandbox.lifetime import die_with_parent
from bot.sandbox.slack.server import listening_socket, prepare
from bot.sandbox.slack.team import Settings, Team


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="bot.sandbox.slack", description="A simulator of Slack, on loopback.")
    options.add_argument("--port", type=int, default=0, help="0 picks a free one")
    options.add_argument("--bot-url", required=True, help="where the bot listens; /slack/events is added")
    options.add_argument("--signing-secret", required=True)
    options.add_argument("--token", default="xoxb-sandbox", help="the bot token that the Web API accepts")
    options.add_argument("--rate-limits", choices=("real", "fast", "off"), default="real")
    options.add_argument("--state", type=Path, help="keep messages and files in this file between runs")
    options.add_argument("--die-with-parent", action="store_true")
    return options


def announce(base_url: str) -> None:
    urls = {"url": base_url, "api_url": f"{base_url}/api/", "page_url": f"{base_url}/"}
    print("ready", json.dumps(urls), flush=True)


def main() -> None:
    options = parser().parse_args()
    if options.die_with_parent:
        die_with_parent()
    settings = Settings(
        bot_url=options.bot_url,
        signing_secret=options.signing_secret,
        token=options.token,
        pace=options.rate_limits,
    )
    listener = listening_socket(options.port)
    server = prepare(Team(settings), listener, state=options.state, announce=announce)
    # Not uvloop: its transports cannot end a connection without an answer, as the faults do.
    asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main()
