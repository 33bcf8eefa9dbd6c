"""A playbook that includes a fragment, and texts with a marked mistake."""

from __future__ import annotations

from pathlib import Path

SMALL = (Path(__file__).parent / "small.yaml").read_text(encoding="utf-8")
CALM = SMALL[SMALL.index("  calm:\n") : SMALL.index("  people:\n")]
HOST = SMALL.replace(
    CALM,
    """\
  calm:
    include: verify
    with:
      calm: thrash < 0.01 && usage < baseline.usage
      choices: {again: {label: Look again, to: look}}
    exits: {verified: over, bad: question}
    # more
""",
).replace("  bad_one: {metric: num_requests_running, take: last, of: picked.replica}\n", "")
VERIFY = """\
language: 1
fragment: verify
parameters:
  calm: {why: true when the trouble is gone}
  window: {default: settings.calm_for}
  choices: {why: what may be answered}
exits: {verified: it is fine, bad: it is not}
settings: {calm_for: {default: 5m}}
signals:
  load: {metric: arrivals, over: settings.calm_for, take: rate}
start: load
states:
  load:
    title: "Is {parameters.calm}?"
    read: [load]
    go:
      - {when: load > 1, to: wait}
      - {otherwise: ask}
  ask:
    ask: What now?
    choices: parameters.choices
  wait:
    watch: {calm: 'parameters.calm && results.load.load > 1'}
    for: parameters.window
    within: 40m
    held: exits.verified
    not_held: exits.bad
"""


def marked(text: str, old: str, new: str) -> tuple[str, str]:
    """`text` with an edit, and the line and column that « marks in it."""
    assert text.count(old) == 1, old
    before, _, after = text.replace(old, new).partition("«")
    return before + after, f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
