"""Everything the engine raises.

EngineError
├── StateProblem       the stack's state cannot be used (corrupt, newer, locked, wrong passphrase)
├── NotSupported       the program or the user asks for something the engine does not do, by name
├── NotAdmitted        the program was refused as a whole, for reasons that are reported already
└── StepFailed         a provider could not do a step
    └── Conflict       another field manager owns what the step wants to change
"""

from __future__ import annotations

from typing import Any


class EngineError(Exception):
    """The root of the engine's errors; the text is one clear sentence."""


class StateProblem(EngineError):
    """The stack's state cannot be used; it was left untouched."""


class NotSupported(EngineError):
    """A request the engine refuses, by name."""


class NotAdmitted(EngineError):
    """A registration of a program that was refused before anything was changed."""


class StepFailed(EngineError):
    """A provider could not do a step.

    ``partial`` holds the outputs of a resource that exists but did not become
    ready, None if nothing was made. ``unsure``: it may still have been made.
    """

    def __init__(
        self, text: str, partial: dict[str, Any] | None = None, *, unsure: bool = False
    ) -> None:
        super().__init__(text)
        self.partial = partial
        self.unsure = unsure


class Conflict(StepFailed):
    """Another field manager owns what the step wants to change: field → manager."""

    def __init__(self, text: str, owners: dict[str, str]) -> None:
        super().__init__(text)
        self.owners = owners
