"""The GPUs of the walk as their vendor describes them: the oracle's own facts.

Sizes and placements: NVIDIA's MIG user guide; memory: what NVML reports.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A MIG profile: memory slices, compute slices, and where it may begin."""

    size: int
    compute: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """A GPU: name in the data, product, words that annotations may use, memory and MIG profiles."""

    name: str
    product: str
    word: str
    memory_mib: int
    parts: dict[str, Part]


_ANYWHERE, _TWO, _THREE = tuple(range(7)), (0, 2, 4), (0, 4)
A100 = Model(
    "A100-SXM4-40GB",
    "NVIDIA A100-SXM4-40GB",
    "A100",
    40960,
    {
        "1g.5gb": Part(1, 1, _ANYWHERE),
        "1g.10gb": Part(2, 1, (0, 2, 4, 6)),
        "2g.10gb": Part(2, 2, _TWO),
        "3g.20gb": Part(4, 3, _THREE),
    },
)
H100 = Model(
    "H100-SXM5-80GB",
    "NVIDIA H100 80GB HBM3",
    "H100",
    81559,
    {"1g.10gb": Part(1, 1, _ANYWHERE), "2g.20gb": Part(2, 2, _TWO), "3g.40gb": Part(4, 3, _THREE)},
)
MODELS = (A100, H100)
PARTS = sorted({name for model in MODELS for name in model.parts})
MEMORY_SLICES, COMPUTE_SLICES, ALL_CORES = 8, 7, 100


@dataclass(frozen=True)
class Offer:
    """What a profile of the stack file lets pods have of a GPU, in the walk's own words."""

    shares: bool = True
    step_mib: int = 1
    oversubscribe: float = 1.0
    most: int = 16
    default_mib: int | None = None
    mig: bool = False
    tenants: tuple[str, ...] = ()

    @property
    def value(self) -> dict[str, object]:
        """Return the profile as the stack file has it."""
        claims: dict[str, object] = {}
        if self.shares:
            memory = {"step": f"{self.step_mib}Mi", "oversubscribe": self.oversubscribe}
            claims["shares"] = {"memory": memory, "max": self.most}
            if self.default_mib is not None:
                claims["shares"] = {
                    "memory": memory,
                    "max": self.most,
                    "default": f"{self.default_mib}Mi",
                }
        if self.mig:
            claims["mig"] = PARTS
        if self.tenants:
            claims["tenants"] = list(self.tenants)
        return {"claims": claims}


TENANTS = ("prod", "dev")
OFFERS = {
    "whole": Offer(shares=False),
    "by-size": Offer(),
    "few": Offer(step_mib=256, most=3),
    "over": Offer(oversubscribe=1.5),
    "default": Offer(default_mib=4096),
    "cut": Offer(shares=False, mig=True),
    "on-demand": Offer(step_mib=256, mig=True),
    "apart": Offer(tenants=TENANTS),
    "everything": Offer(step_mib=256, most=4, mig=True, tenants=TENANTS),
}


@dataclass(frozen=True)
class Gpu:
    """One GPU of the walk."""

    uuid: str
    index: int
    node: str
    model: Model
    profile: str

    @property
    def offer(self) -> Offer:
        """Return what pods may have of it."""
        return OFFERS[self.profile]

    @property
    def share_mib(self) -> int:
        """Return the memory of all its shares together."""
        step = self.offer.step_mib
        return int(self.model.memory_mib * self.offer.oversubscribe) // step * step
