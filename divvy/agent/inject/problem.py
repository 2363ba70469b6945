"""Errors of preparing the host for containers."""

from __future__ import annotations


class InjectionProblem(Exception):
    """Something of the host cannot be read, written or run: what, where, why."""


class NotWritten(InjectionProblem):
    """A file that containers need cannot be written now: the same may work later."""
