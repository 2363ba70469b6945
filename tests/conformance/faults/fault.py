"""A fault, and the nodes where faults are inflicted."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.conformance.scene import Scene

A100, H100, T4 = "gpu-a100", "gpu-h100", "gpu-t4"
Options = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is wrong, how it is brought about, and which checks have to fail.

    ``pool`` limits the run to the nodes of one.
    """

    title: str
    pool: str
    checks: tuple[str, ...]
    inflict: Callable[[Scene], AbstractContextManager[Options]]
