"""What an incident is about, so that later ones find it however many have come since."""

from __future__ import annotations

from bot.domain.incidents.event import CARD
from bot.domain.incidents.run import Run

HOT_HALL = "hot-hall"
FACILITY = "facility"
"""The `scope` of heat that moved load would only spread, as the `thermal_scope` probe reads it."""


def about_target(target_key: str) -> str:
    return f"target/{target_key}"


def about_node(cluster: str, node: str) -> str:
    return f"node/{cluster}/{node}"


def about_channel(channel: str) -> str:
    return f"channel/{channel}"


def subjects(run: Run) -> tuple[str, ...]:
    """Its target, its own channels, each node on which it changed something, and `HOT_HALL` if it found one."""
    nodes = dict.fromkeys(entry.node for entry in run.ledger if entry.node)
    return (
        about_target(run.target.key),
        *map(about_channel, sorted(own_channels(run))),
        *(about_node(run.target.cluster, node) for node in nodes),
        *([HOT_HALL] if hot_halls(run) else []),
    )


def own_channels(run: Run) -> set[str]:
    """The channels of its messages other than that of its card."""
    home, _ = run.in_slack.places.get(CARD, ("", ""))
    return {channel for channel, _ in run.in_slack.places.values()} - {home} if home else set()


def hot_halls(run: Run) -> set[str]:
    """The zones that it found too hot; the empty one for nodes without a zone."""
    halls = [one.fields for one in run.latest.values() if one.fields.get("scope") == FACILITY]
    return {str(fields.get("zone") or "") for fields in halls}
