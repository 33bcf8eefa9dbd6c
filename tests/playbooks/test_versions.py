"""The same playbook on engines of different ages chooses levers that exist there, and the planner takes them."""

from __future__ import annotations

from typing import Any

import pytest

from bot.domain.change.flag_history import has_flag
from tests.domain.change.worlds import CONTEXT, deployment, planned, template, world
from tests.flow.test_harms import shipped_case

ASKED: dict[str, dict[str, Any]] = {
    "fewer at once": {"answers": {"choose": ["cap", "hand_over"]}},
    "shorter answers": {"answers": {"choose": ["emergency", "hand_over"]}},
    "blocks on the host": {
        "answers": {"choose": ["supply", "hand_over"]},
        "given": {"memory": {"least_free": 1, "least_free_day": 1}},
    },
    "refuse what is too much": {
        "answers": {"choose": ["scale", "hand_over"], "capacity_ask": ["shed", "hand_over"]},
        "at": {"verify_capacity": {"waiting": 50}},
        "changes": {"scale": "done"},
    },
}
"""What people ask kv-cache-oom for, in a thrash."""
SEQS, ACTIVE, WATERMARK = "--max-num-seqs", "--max-num-active-seqs", "--watermark"
ANSWERS, QUEUE = "--override-generation-config", "--max-num-queued-reqs"
SWAP, OFFLOAD = "--swap-space", "--kv-offloading-size"
LEVERS: dict[str, dict[str, tuple[str, ...]]] = {
    "0.6.6": {"fewer at once": (SEQS,), "shorter answers": (), "blocks on the host": (SWAP,)},
    "0.8.5": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": ()},
    "0.10.2": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": ()},
    "0.12.0": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": (OFFLOAD,)},
    "0.30.0": {
        "fewer at once": (SEQS,),
        "shorter answers": (SEQS, ANSWERS),
        "blocks on the host": (OFFLOAD,),
        "refuse what is too much": (QUEUE,),
    },
    "0.32.0": {
        "fewer at once": (ACTIVE, WATERMARK),
        "shorter answers": (SEQS, ANSWERS),
        "blocks on the host": (OFFLOAD,),
        "refuse what is too much": (QUEUE,),
    },
}
"""By version, what each of them comes to; nothing where the engine has no such lever."""
CASES = [(version, asked) for version in LEVERS for asked in ASKED]


async def edits_for(version: str | None, asked: str) -> list[dict[str, Any]]:
    """The edits of the first change of flags that is put to people; none where none is."""
    what = ASKED[asked]
    flags: dict[str, Any] = {"max_num_seqs": 256}
    flags |= {"version": version} if version else {"version": {"unknown": "no replica says it"}}
    given = {"engine_flags": flags, "limits": {"v0": version == "0.6.6"}} | what.get("given", {})
    found = await shipped_case("kv-cache-oom", **(what | {"given": given}))
    return next((list(one.arguments["edits"]) for one in found.proposed if "edits" in one.arguments), [])


@pytest.mark.parametrize(("version", "asked"), CASES)
async def test_each_version_gets_the_levers_that_it_has(version: str, asked: str) -> None:
    flags = tuple(edit["flag"] for edit in await edits_for(version, asked))
    assert flags == LEVERS[version].get(asked, ())
    assert [flag for flag in flags if not has_flag(version, flag)] == []


@pytest.mark.parametrize(("version", "asked"), [case for case in CASES if LEVERS[case[0]].get(case[1])])
async def test_the_planner_takes_what_the_playbook_chose(version: str, asked: str) -> None:
    edits = await edits_for(version, asked)
    image = f"vllm/vllm-openai:v{version}"
    seen = world(workload=deployment(template("--max-num-seqs=256", "--gpu-memory-utilization=0.9", image=image)))
    plan = planned("canary", {"edits": edits, "rotation": "in"}, seen, CONTEXT)
    shown = "; ".join(line.text for call in plan.calls for line in call.differences)
    assert all(edit["flag"] in shown for edit in edits), shown


@pytest.mark.parametrize("asked", ASKED)
async def test_of_an_unknown_version_nothing_is_assumed(asked: str) -> None:
    """Only the cap, whose flag every version has."""
    assert [edit["flag"] for edit in await edits_for(None, asked)] == ([SEQS] if asked == "fewer at once" else [])
