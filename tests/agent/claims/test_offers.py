"""What claims are offered of a GPU, and who holds it for the device plugin."""

from __future__ import annotations

from divvy.agent.claims.offers import claim_holders
from tests.agent.claim_values import BY_SIZE, claim, claim_record, held, offered_gpu

OLD = offered_gpu(0, BY_SIZE)
OTHER = offered_gpu(1, BY_SIZE)


def test_counts_every_gpu_that_may_be_allocated_as_held_for_the_plugin() -> None:
    record = claim_record(OLD, OTHER, claims=(claim("pod", held(OLD, "-share")),))
    holders = claim_holders(record)
    assert [holder.pod for holder in holders[OLD.uuid]] == ["default/pod"]
    assert [holder.pod for holder in holders[OTHER.uuid]] == [""]
