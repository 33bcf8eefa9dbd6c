"""Runs the command line, with a playbook of the smallest kind."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from bot.cli.app import app
from tests.kit.settings import ENOUGH

PLAYBOOK = """\
language: 1
playbook: tiny
title: A tiny playbook
opens_on: ['alertname="A"']
settings:
  window: {default: 5m}
signals:
  waiting: {metric: num_requests_waiting, over: settings.window}
start: look
states:
  look:
    read: [waiting]
    go:
      - {when: waiting > 1, to: ask}
      - {otherwise: over}
    unknown: ask
  ask:
    ask: What now?
    choices: {leave: {label: Leave it, to: over}}
    expired: over
  over: {end: fixed}
"""


def incident_bot(*args: str | Path, **environ: str) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], env={**dict.fromkeys(ENOUGH, ""), **environ})


def written(folder: Path, text: str, name: str = "tiny.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
