"""Checks that are not made, and why: an option, a cluster that cannot have them, or an obstacle."""

from __future__ import annotations

from typing import Literal, NoReturn

# Why a check was not made, and so how much it is missed: an option that was not given, a cluster
# that cannot have it, or something in the way.
Missed = Literal["option", "not applicable", "not made"]


class NotApplicable(Exception):
    """Raised for a check that does not apply to such a cluster: the result needs none."""


class CheckSkipped(Exception):
    """Raised for a check that something prevents: what it would have shown is open."""


def not_applicable(reason: str) -> NoReturn:
    """Skip a check that cannot exist here."""
    raise NotApplicable(reason)


def not_made(reason: str) -> NoReturn:
    """Skip a check that something prevents."""
    raise CheckSkipped(reason)
