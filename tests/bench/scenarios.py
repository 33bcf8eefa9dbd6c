"""The measured scenarios: each gets a fresh system and empty stores, and returns figures by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from bot.sandbox.demo import CHANNEL
from tests.bench import at_scale
from tests.bench.load import Post, at_planned_times, back_to_back, command, press, slash_command, targets, webhook
from tests.bench.scenario import Figures, Scenario, Size, open_incidents, quantiles
from tests.bench.systems import Surroundings, System


async def accept(around: Surroundings, system: System, size: Size) -> Figures:
    """Webhooks of one alert, as fast as they are answered; each opens an incident meanwhile."""
    return await _accept(around, system, size, count=size.webhooks, alerts=1)


async def accept_large(around: Surroundings, system: System, size: Size) -> Figures:
    """The same with many alerts in each, all of one workload."""
    return await _accept(around, system, size, count=size.large_webhooks, alerts=size.alerts)


async def _accept(around: Surroundings, system: System, size: Size, *, count: int, alerts: int) -> Figures:
    posts = [webhook(target, alerts=alerts, token=around.alert_token) for target in targets("accept", count)]
    return await _answering(system, posts, size)


async def cards(around: Surroundings, system: System, size: Size) -> Figures:
    """From the moment a webhook should leave until Slack has the card of its incident."""
    names = targets("card", size.cards)
    posts = [webhook(name, alerts=1, token=around.alert_token) for name in names]
    cpu = system.cpu_seconds()
    answered = await at_planned_times(system.url, posts, per_second=size.cards_per_second)
    came = around.wait_for_cards(names)
    used = system.cpu_seconds() - cpu
    waited = [came[name].at - sent.began for name, sent in zip(names, answered, strict=True)]
    return {**quantiles(waited), "CPU ms each": used / len(names) * 1000}


async def presses(around: Surroundings, system: System, size: Size) -> Figures:
    """Signed presses about incidents that exist, as fast as they are acknowledged."""
    return await _answering(system, await _about_incidents(around, system, size, press, size.presses), size)


async def commands(around: Surroundings, system: System, size: Size) -> Figures:
    """Notes by slash command, as fast as they are answered."""
    return await _answering(system, await _about_incidents(around, system, size, command, size.commands), size)


async def steady_presses(around: Surroundings, system: System, size: Size) -> Figures:
    """Presses at planned times, whatever became of those before: Slack gives up after three seconds."""
    clicks = await _about_incidents(around, system, size, press, size.steady_presses)
    answered = await at_planned_times(system.url, clicks, per_second=size.presses_per_second)
    waited = [each.ended - each.began for each in answered]
    return {**quantiles(waited), "longest ms": max(waited) * 1000}


async def crowded(around: Surroundings, system: System, size: Size) -> Figures:
    """The longest that people wait one after the other, while thousands of incidents are open."""
    opened = await open_incidents(around, system, targets("crowd", 1))
    [incident] = [card.incident_id for card in opened.values()]
    # The floor keeps no incidents: to it each of these is one more thing to store.
    name = around.crowd(incident, size.crowd)[-1] if incident else "INC-1"
    sign = {"channel": CHANNEL, "secret": around.signing_secret}
    words = {"list": "list", "show": f"show {name}", "halt all": "halt all", "resume all": "resume all"}
    waited: dict[str, list[float]] = {}
    for turn in range(size.turns):
        posts = {word: slash_command(text, turn, **sign) for word, text in words.items()} | {
            "press": press(name, turn, **sign)
        }
        for word, post in posts.items():
            [answer] = await back_to_back(system.url, [post], connections=1)
            waited.setdefault(f"{word} ms", []).append(answer.ended - answer.began)
    return {word: max(seconds) * 1000 for word, seconds in waited.items()}


async def _about_incidents(
    around: Surroundings, system: System, size: Size, make: Callable[..., Post], count: int
) -> list[Post]:
    """So many presses or commands, in turn about each of the incidents that are opened for them."""
    opened = await open_incidents(around, system, targets("press", size.incidents))
    incidents = [card.incident_id for card in opened.values()]
    return [
        make(incidents[number % len(incidents)], number, channel=CHANNEL, secret=around.signing_secret)
        for number in range(count)
    ]


SCENARIOS: Mapping[str, Scenario] = {
    "accept, 1 alert": accept,
    "accept, many alerts": accept_large,
    "webhook to card": cards,
    "press to acknowledgement": presses,
    "command to answer": commands,
    "presses at a steady rate": steady_presses,
    "in a crowd, the longest": crowded,
    "repeated alerts": at_scale.repeats,
    "Redis trips an incident": at_scale.round_trips,
    "storm": at_scale.storm,
    "thousands open": at_scale.thousands,
}


async def _answering(system: System, posts: Sequence[Post], size: Size) -> Figures:
    """`sender %` is how busy this process was: near 100 it is the sender whose speed was measured."""
    theirs, ours = system.cpu_seconds(), time.process_time()
    answered = await back_to_back(system.url, posts, connections=size.connections)
    ours, theirs = time.process_time() - ours, system.cpu_seconds() - theirs
    elapsed = max(each.ended for each in answered) - min(each.began for each in answered)
    return {
        "a second": len(answered) / elapsed,
        **quantiles([each.ended - each.began for each in answered]),
        "CPU ms each": theirs / len(answered) * 1000,
        "sender %": ours / elapsed * 100,
    }
