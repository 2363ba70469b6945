"""How much of a random search a run of the tests makes: a sample, or all of it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import yaml

VARIABLE = "DIVVY_THOROUGH"
THOROUGH = bool(os.environ.get(VARIABLE))
_LIST = Path(__file__).with_name("thorough.yaml")


def at_length(sample: int, everything: int) -> int:
    """Return how often something is tried: in ``make test``, or in ``make test-all``."""
    return everything if THOROUGH else sample


@cache
def reasons() -> dict[str, str]:
    """Return what ``make test`` leaves out, each with its reason."""
    listed: dict[str, str] = yaml.safe_load(_LIST.read_text())
    return listed


def is_left_out(node_id: str) -> bool:
    """Return whether ``make test`` leaves a test out: ``tests/agent/test_x.py::test_y[case]``."""
    name = node_id.removeprefix("tests/")
    function = name.partition("[")[0]
    return any(part in reasons() for part in (name, function, name.partition("::")[0]))
