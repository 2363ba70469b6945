"""Refuses what the GPU Operator cannot do for a stack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """Something that the stack file says and the operator cannot do, and why.

    With ``droppable`` the rest still works without it, if the reader wants so.
    """

    key: str
    where: str
    reason: str
    droppable: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.key}: {self.reason}"
