"""``OfferedGpu``: a GPU as its node's slices show it, whether the node exists or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from divvy.model.claim_devices import ClaimableGpu, claimable_gpu
from divvy.model.claims import Claims
from divvy.model.gpu_models import GpuModel
from divvy.model.sharing import Sharing, sharing_of_claims


@dataclass(frozen=True)
class OfferedGpu:
    """A GPU as it stands in the slices: facts for attributes, and its devices with counters.

    ``spread`` says that shares go to the GPU with the fewest tasks, and not to the one of which
    shares take the most; ``sharing`` is what they have in common, whatever their size.
    """

    gpu: ClaimableGpu
    index: int
    product: str
    architecture: str
    simulated: bool
    spread: bool = True
    sharing: Sharing = sharing_of_claims(None)

    @property
    def uuid(self) -> str:
        """Return the GPU's UUID."""
        return self.gpu.uuid


def offered_gpu(
    uuid: str,
    index: int,
    product: str,
    memory_mib: int,
    model: GpuModel | None,
    claims: Claims,
    *,
    simulated: bool,
) -> OfferedGpu:
    """Return a GPU as claims are offered it; ``model`` is None if no data describes it."""
    offered = OfferedGpu(
        claimable_gpu(uuid, memory_mib, model, claims),
        index,
        product,
        "" if model is None else model.architecture,
        simulated,
    )
    if claims.shares is None:
        return offered
    return replace(
        offered,
        spread=claims.shares.placement == "spread",
        sharing=sharing_of_claims(claims.shares),
    )
