"""What a run's active changes leave in place: of several numbers of replicas only the last one counts."""

from __future__ import annotations

import pytest

from bot.domain.changes.plan import Call, Difference, LedgerEntry
from bot.domain.cluster.objects import ObjectRef
from tests import builders

pytestmark = pytest.mark.fast

LLM = ObjectRef(kind="Deployment", namespace="serving", name="llm")
OTHER = ObjectRef(kind="Deployment", namespace="serving", name="draft")
UNDO = (Call(method="patch", target=LLM, title="Put it back"),)


def scaled(number: int, before: int, after: int, *, target: ObjectRef = LLM, undone_by: str = "") -> LedgerEntry:
    one = Difference(path="/spec/replicas", before=before, after=after, text=f"replicas {before} → {after}")
    title = f"Scale {target.name} to {after}"
    return LedgerEntry(
        call_id=f"INC-1/R{number}/1", state="s", verb="scale", title=title, target=target, differences=(one,),
        undo=UNDO, applied_at=number, undone_by=undone_by,
    )  # fmt: skip


CAP = LedgerEntry(
    call_id="INC-1/R9/1", state="s", verb="set_flags", title="Set --max-num-seqs 7", target=LLM, undo=UNDO, applied_at=9
)


@pytest.mark.parametrize(
    ("ledger", "left"),
    [
        pytest.param((scaled(1, 4, 6),), ["Scale llm to 6"], id="once"),
        pytest.param((scaled(1, 4, 6), CAP, scaled(2, 6, 9)), ["Set --max-num-seqs 7", "Scale llm to 9"], id="twice"),
        pytest.param((scaled(1, 4, 6), scaled(2, 6, 9), scaled(3, 9, 4)), [], id="as many as before"),
        pytest.param((scaled(1, 4, 6), scaled(2, 6, 5)), ["Scale llm to 5"], id="some were taken away"),
        pytest.param(
            (scaled(1, 4, 6), scaled(2, 6, 4, undone_by="INC-1/R3/1")), ["Scale llm to 6"], id="scaled back in vain"
        ),
        pytest.param(
            (scaled(1, 4, 6), scaled(2, 6, 4, target=OTHER)), ["Scale llm to 6", "Scale draft to 4"], id="another one"
        ),
    ],
)
def test_of_several_numbers_of_replicas_only_the_last_counts(ledger: tuple[LedgerEntry, ...], left: list[str]) -> None:
    assert list(builders.run(ledger=ledger).in_place) == left


def test_what_puts_the_rollout_strategy_back_is_no_change_of_its_own() -> None:
    begun = CAP.model_copy(update={"holds": True})
    ended = CAP.model_copy(update={"call_id": "INC-1/R9/2", "title": "Put the rollout strategy back", "holds": False})
    assert builders.run(ledger=(begun, ended)).in_place == ("Set --max-num-seqs 7",)


def test_a_node_that_takes_pods_again_is_no_change_in_place() -> None:
    node = ObjectRef(kind="Node", name="gpu-node-1")
    cordon = LedgerEntry(
        call_id="INC-1/R1/0", state="s", verb="cordon_node", title="Cordon it", target=node, undo=UNDO, applied_at=1
    )
    back = cordon.model_copy(update={"call_id": "INC-1/R2/0", "verb": "uncordon_node", "title": "Uncordon it"})
    assert builders.run(ledger=(cordon,)).in_place == ("Cordon it",)
    assert builders.run(ledger=(cordon.model_copy(update={"undone_by": "INC-1/R2/0"}), back)).in_place == ()
    assert builders.run(ledger=(back,)).in_place == ("Uncordon it",), "somebody else had cordoned it"
