"""All checks, collected from the tests that prove them, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from conformance import bare, checks
from conformance.check import Check

_GROUPS = ("INST", "NODE", "PLUG", "WORK", "ISO", "CLM", "OBS", "DISR", "HW", "BARE")


def _marked() -> Iterator[Check]:
    for room in (checks, bare):
        for module in iter_modules(room.__path__, f"{room.__name__}."):
            if module.name.rpartition(".")[2].startswith("test_"):
                for test in vars(import_module(module.name)).values():
                    for mark in getattr(test, "pytestmark", ()):
                        if mark.name == "check":
                            yield mark.args[0]


def _place(check: Check) -> tuple[int, int]:
    group, _, number = check.id.partition("-")
    return _GROUPS.index(group), int(number)


CATALOGUE = {check.id: check for check in sorted(_marked(), key=_place)}
