"""What goes wrong when the host is prepared for containers."""

from __future__ import annotations


class InjectionProblem(Exception):
    """Something of the host cannot be read, written or run: what, where, why."""
