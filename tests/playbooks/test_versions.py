"""On engines of different ages, the same playbook chooses mitigations that exist there, and the planner takes them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from bot.adapters.yaml_playbooks import load_table
from bot.domain.flags.flag_history import fault_of_flag, has_flag, release_of
from bot.domain.playbooks.language import ChangeState
from bot.domain.playbooks.loading.other_playbook import with_stand_ins
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.testing.cases import Case, Table, table_of
from bot.flow.rehearse_case import play_case
from tests.domain.changes.snapshots import CONTEXT, deployment, planned, snapshot, template
from tests.flow.test_harms import shipped, shipped_case

ASKED: dict[str, dict[str, Any]] = {
    "fewer at once": {"state": "relieve_limit_concurrency"},
    "shorter answers": {
        "state": "relieve_limit_answers",
        "changes": {"relieve_limit_concurrency": "refused", "relieve_scale_anyway": "refused"},
    },
    "blocks on the host": {
        "state": "relieve_host_memory",
        "given": {
            "memory": {"least_free": 1, "least_free_day": 1},
            "running": 1,
            "request_lengths": {"above": 1},
            "capacity": {"free_gpus": 0, "replicas_that_fit": 0},
        },
    },
    "refuse what is too much": {
        "state": "capacity_ask_refuse",
        "at": {"verify_capacity": {"waiting": 50}},
        "changes": {"capacity_ask_scale_out": "option:refuse"},
    },
}
"""What kv-cache-oom proposes in a thrash, and the state that does."""
SEQS, ACTIVE, WATERMARK = "--max-num-seqs", "--max-num-active-seqs", "--watermark"
ANSWERS, QUEUE = "--override-generation-config", "--max-num-queued-reqs"
SWAP, OFFLOAD = "--swap-space", "--kv-offloading-size"
MITIGATIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "0.6.6": {"fewer at once": (SEQS,), "shorter answers": (), "blocks on the host": ()},
    "0.8.5": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": ()},
    "0.10.2": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": ()},
    "0.12.0": {"fewer at once": (SEQS,), "shorter answers": (SEQS, ANSWERS), "blocks on the host": (OFFLOAD,)},
    "0.30.0": {
        "fewer at once": (SEQS, WATERMARK),
        "shorter answers": (SEQS, WATERMARK, ANSWERS),
        "blocks on the host": (OFFLOAD,),
        "refuse what is too much": (QUEUE,),
    },
    "0.32.0": {
        "fewer at once": (ACTIVE, WATERMARK),
        "shorter answers": (ACTIVE, WATERMARK, ANSWERS),
        "blocks on the host": (OFFLOAD,),
        "refuse what is too much": (QUEUE,),
    },
}
"""By version, what each of them comes to; nothing where the engine has no such mitigation."""
CASES = [(version, asked) for version in MITIGATIONS for asked in ASKED]


async def edits_for(version: str | None, asked: str) -> list[dict[str, Any]]:
    """The edits of the first change of flags that is put to people; none where none is."""
    what = ASKED[asked]
    flags: dict[str, Any] = {"max_num_seqs": 256}
    flags |= {"version": version} if version else {"version": {"unknown": "no replica says it"}}
    given = {"engine_flags": flags, "limits": {"v0": version == "0.6.6"}} | what.get("given", {})
    met = {name: value for name, value in what.items() if name != "state"} | {"given": given}
    found = await shipped_case("kv-cache-oom", **met)
    return next((list(one.arguments["edits"]) for one in found.proposed if one.state == what["state"]), [])


def flag_of(edit: Mapping[str, Any], version: str | None) -> str:
    """The flag that the planner takes: the first of `first_of` that the engine has, else the last."""
    flags = edit.get("first_of") or [edit["flag"]]
    return str(next((flag for flag in flags[:-1] if version and has_flag(version, flag)), flags[-1]))


@pytest.mark.parametrize(("version", "asked"), CASES)
async def test_each_version_gets_the_mitigations_that_it_has(version: str, asked: str) -> None:
    flags = tuple(flag_of(edit, version) for edit in await edits_for(version, asked))
    assert flags == MITIGATIONS[version].get(asked, ())
    assert [flag for flag in flags if not has_flag(version, flag)] == []


@pytest.mark.parametrize(("version", "asked"), [case for case in CASES if MITIGATIONS[case[0]].get(case[1])])
async def test_the_planner_takes_what_the_playbook_chose(version: str, asked: str) -> None:
    edits = await edits_for(version, asked)
    image = f"vllm/vllm-openai:v{version}"
    seen = snapshot(workload=deployment(template("--max-num-seqs=256", "--gpu-memory-utilization=0.9", image=image)))
    plan = planned("canary", {"edits": edits, "rotation": "in"}, seen, CONTEXT)
    shown = "; ".join(line.text for call in plan.calls for line in call.differences)
    assert all(flag_of(edit, version) in shown for edit in edits), shown


@pytest.mark.parametrize("asked", ASKED)
async def test_of_an_unknown_version_nothing_is_assumed(asked: str) -> None:
    """Only the cap, whose flag every version has."""
    assert [flag_of(edit, None) for edit in await edits_for(None, asked)] == (
        [SEQS] if asked == "fewer at once" else []
    )


# --- every mitigation of every playbook -------------------------------------------------------------------------------

PLAYBOOKS = packaged_playbooks()
ENGINES = {
    "0.6.6": ("0.6.6", True),
    "0.8.5 with VLLM_USE_V1=0": ("0.8.5", True),
    "0.8.5": ("0.8.5", False),
    "0.10.2": ("0.10.2", False),
    "0.12.0": ("0.12.0", False),
    "0.30.0": ("0.30.0", False),
    "0.33.0": ("0.33.0", False),
}
"""Version, and whether it is the engine of before V1."""
V0_ALONE = {SWAP}


@functools.cache
def cases_of(name: str) -> tuple[Case, ...]:
    table = table_of(load_table(PLAYBOOKS / f"{name}.test.yaml").data)
    assert isinstance(table, Table)
    return table.whole()


def on_engine(case: Case, version: str, *, is_v0: bool) -> Case:
    """The case as it is, on an engine of this age."""

    def aged(read: Mapping[str, Any]) -> dict[str, Any]:
        replaced: dict[str, dict[str, Any]] = {
            "engine_flags": {"version": version},
            "limits": {"v0": is_v0} | ({} if has_flag(version, OFFLOAD) else {"offloading": 0}),
            "start": {"version": version},
        }
        return {
            name: {**value, **replaced[name]} if name in replaced and "unknown" not in value else value
            for name, value in read.items()
        }

    at = {
        state: tuple(map(aged, read)) if isinstance(read, tuple | list) else aged(read)
        for state, read in case.at.items()
    }
    return case.model_copy(update={"given": aged(case.given), "at": at})


def edits_in(name: str) -> dict[str, list[dict[str, Any]]]:
    """State to the edits of flags that it may put to people; what is done in place is what a canary would try."""
    states = shipped(name).playbook.states.items()
    found = {at: state.with_.get("edits") for at, state in states if isinstance(state, ChangeState)}
    return {
        at: list(edits)
        for at, edits in found.items()
        if isinstance(edits, list | tuple)
        and any("flag" in edit or "first_of" in edit for edit in edits)
        and not at.endswith("_in_place")
    }


def first_case(name: str, state: str) -> Case | None:
    """A case of the table that puts the state's change to people."""
    for case in cases_of(name):
        proposals = {one.state for one in case.expect.proposes or ()}
        comes_to_it = state in case.expect.path or state in proposals
        if comes_to_it and case.changes.get(state, "done") not in ("not_needed", "impossible", "unknown"):
            return case
    return None


SHIPPED = sorted(path.stem for path in PLAYBOOKS.glob("*.yaml") if not path.stem.endswith(".test"))
MITIGATION_STATES = [(name, state) for name in SHIPPED for state in edits_in(name)]


@pytest.mark.parametrize(("name", "state"), MITIGATION_STATES, ids=[f"{n}-{s}" for n, s in MITIGATION_STATES])
async def test_no_engine_is_offered_a_flag_that_it_does_not_have(name: str, state: str) -> None:
    """Each case that comes to the mitigation, on engines of all ages: what is put to people exists there, and acts."""
    case = first_case(name, state)
    assert case is not None, "no case of the table comes to it"
    offered = set()
    for engine, (version, is_v0) in ENGINES.items():
        found = (await play_case(on_engine(case, version, is_v0=is_v0), with_stand_ins(shipped(name)))).rehearsed
        for one in found.proposed:
            for flag in [edit["flag"] for edit in one.arguments.get("edits", ()) if "flag" in edit]:
                acts = is_v0 if flag in V0_ALONE else has_flag(version, flag)
                assert acts, f"{one.state} offers {flag} to vLLM {engine}"
                assert not fault_of_flag(flag, release_of(version), on_v0=is_v0)
            if one.state == state:
                offered.add(engine)
    assert offered, f"{state} is offered to no engine at all"
