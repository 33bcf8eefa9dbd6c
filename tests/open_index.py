"""Invariants of the index of open incidents after any test: it names the open runs, one per target, and no others.

Parked runs are open, are not in it, and are all in the index of parked ones.

A closed incident may be in it only while its inbox is not empty: an event in there may reopen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import redis
import redis.asyncio as aioredis

from bot.domain.incidents.run import Run

SNAPSHOT = """
local found = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  if string.match(name, '}:run:[^:]+$') then
    local inbox = string.gsub(name, '}:run:', '}:inbox:')
    table.insert(found, {'run', name, redis.call('GET', name), redis.call('LLEN', inbox)})
  elseif string.match(name, '}:open$') then
    local all = redis.call('HGETALL', name)
    for i = 1, #all, 2 do table.insert(found, {'open', name, all[i], all[i + 1]}) end
  elseif string.match(name, '}:parked$') then
    local all = redis.call('HGETALL', name)
    for i = 1, #all, 2 do table.insert(found, {'parked', name, all[i], all[i + 1]}) end
  end
end
return found
"""
"""Everything at one moment, however many bots are at work."""


@dataclass(frozen=True)
class Stored:
    run: Run
    waiting: int
    """Events in its inbox."""


Snapshot = Mapping[str, tuple[dict[str, Stored], dict[str, str], dict[str, str]]]
"""Hash tag to the stored runs, to the index (target key to incident), and to the parked ones (incident to target)."""


def faults_of(client: redis.Redis, tag: str = "*") -> list[str]:
    """What is wrong with the index of this deployment, or of each that the server holds."""
    return list(_faults(_read(client.eval(SNAPSHOT, 0, _pattern(tag)))))


async def faults_now(client: aioredis.Redis, tag: str) -> list[str]:
    return list(_faults(_read(await client.eval(SNAPSHOT, 0, _pattern(tag)))))


def _pattern(tag: str) -> str:
    return f"{{{tag}}}:*"


def _read(rows: Sequence[Sequence[str]]) -> Snapshot:
    found: dict[str, tuple[dict[str, Stored], dict[str, str], dict[str, str]]] = {}
    for kind, name, first, second in rows:
        runs, index, parked = found.setdefault(name.partition("}")[0].lstrip("{"), ({}, {}, {}))
        if kind == "run":
            run = Run.model_validate_json(first)
            runs[run.incident_id] = Stored(run, int(second))
        else:
            (index if kind == "open" else parked)[first] = second
    return found


def _faults(snapshot: Snapshot) -> Iterator[str]:
    for tag, (runs, index, parked) in snapshot.items():
        are_parked = {name: each.run.target.key for name, each in runs.items() if each.run.parked is not None}
        if parked != are_parked:
            yield f"{tag}: the index of parked incidents has {parked}, and {are_parked} are parked"
        for incident_id, stored in runs.items():
            named = index.get(stored.run.target.key)
            if stored.run.parked is not None and named == incident_id:
                yield f"{tag}: {incident_id} is parked on {stored.run.target}, and the index has it"
            if stored.run.is_open and stored.run.parked is None and named != incident_id:
                yield f"{tag}: {incident_id} is open on {stored.run.target}, and the index has {named}"
        for target, incident_id in index.items():
            indexed = runs.get(incident_id)
            if indexed is None:
                yield f"{tag}: the index has {incident_id} for {target}, and no such run is stored"
            elif indexed.run.target.key != target:
                yield f"{tag}: the index has {incident_id} for {target}, and it is about {indexed.run.target}"
            elif not indexed.run.is_open and not indexed.waiting:
                yield f"{tag}: the index has {incident_id} for {target}, and it is closed with an empty inbox"
