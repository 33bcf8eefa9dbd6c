"""A playbook that recommends, also with two choices of one change."""

from __future__ import annotations

TEXT = """\
language: 1
playbook: small
title: Small
opens_on: ['alertname="X"']
settings: {ceiling: {default: 0.9, why: full}}
define: {full: 'usage > settings.ceiling', twice: '2 * room'}
signals:
  usage: {metric: kv_cache_usage_perc, over: 5m}
  room: {metric: num_requests_waiting, over: 5m}
start: relieve
states:
  relieve:
    recommend: Which mitigation?
    read: [usage]
    still: full
    done: calm
    refused: relieve
    expired: gone
    none_possible: gone
    options:
      grow:
        label: Add ${twice} replicas
        possible: room > 0
        why_not: no GPU is free
        effect: Restarts nothing.
        change: scale
        with: {by: '${twice}'}
      restart: {label: Restart it, possible: full, effect: Cuts streams., change: restart, risk: high}
      people: {label: Hand over, to: gone}
  calm: {end: fixed}
  gone: {end: handed_over}
"""
STAGED = TEXT.replace("    done: calm\n", "    done: calm\n    try: rolled\n").replace(
    "  calm: {end",
    "  rolled: {change: promote, approved_with: [relieve], still: full, why: It helped., done: calm}\n  calm: {end",
)
EDIT = "{label: Cap it, possible: full, effect: Queues., change: set_flags, with: {edits: [{flag: --seed, value: 6}]}}"
STAGED = STAGED.replace("      restart: {label", f"      cap: {EDIT}\n      restart: {{label")
