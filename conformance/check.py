"""A check: what it proves, how binding it is, where it applies, what to do when it fails."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from divvy.model.api_names import Mode


@dataclass(frozen=True)
class Check:
    """A promise about nodes or pods, which a test of the suite proves.

    ``level`` is MUST or SHOULD; ``modes`` are those in which it applies: whole, time-slicing,
    mps, mig and mig+time-slicing, the shared ones also with +limit, claims, or a bare host;
    ``cncf`` ids of the CNCF AI conformance list to which it contributes.
    """

    id: str
    title: str
    level: str
    modes: tuple[str, ...]
    remedy: str
    needs_hardware: bool = False
    cncf: tuple[str, ...] = ()


WHOLE, MIG = Mode.WHOLE, Mode.MIG
BY_MPS = (Mode.MPS, Mode.MPS_LIMIT)
LIMITED = (Mode.TIME_SLICING_LIMIT, Mode.MIG_TIME_SLICING_LIMIT, Mode.MPS_LIMIT)
SHARED = (Mode.TIME_SLICING, Mode.MIG_TIME_SLICING, Mode.MPS, *LIMITED)
PARTITIONED = (Mode.MIG, Mode.MIG_TIME_SLICING, Mode.MIG_TIME_SLICING_LIMIT)
EVERY = (Mode.WHOLE, Mode.MIG, *SHARED)
CLAIMED = (Mode.CLAIMS,)
BARE = ("bare host",)

UP = "`divvy up -s STACK` brings it to what the stack file says"
"""The remedy where something that Divvy deploys is missing or differs."""


def check(
    identity: str,
    title: str,
    level: str,
    modes: tuple[str, ...],
    remedy: str,
    *,
    needs_hardware: bool = False,
    cncf: tuple[str, ...] = (),
) -> pytest.MarkDecorator:
    """Mark a test as the proof of a check."""
    return pytest.mark.check(Check(identity, title, level, modes, remedy, needs_hardware, cncf))


MARKS = (
    "check(check): the entry of the catalogue that it proves",
    "exclusive: needs the node for itself",
    "disruptive: restarts, changes or breaks something",
    "enters: enters the agent's pod",
    "mig: cuts an idle GPU by MIG, and makes it whole again",
    "kit: needs the hardware kit",
    "limit(seconds): for so long at most, on a bare host",
)
"""The marks of tests that prove checks, as pytest's configuration lists them."""
