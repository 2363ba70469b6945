"""The suite's options."""

from __future__ import annotations

import pytest

from divvy.verify_options import OF_SUITE, command_line


def add_options(parser: pytest.Parser) -> None:
    """Add the suite's options: those that `divvy verify` passes on, and its own."""
    group = parser.getgroup("divvy")
    add = group.addoption
    for option in OF_SUITE:
        if option.is_flag:
            add(option.suite, action="store_true", help=option.help)
        else:
            kind = int if option.kind is int else str
            add(option.suite, default=option.default, type=kind, help=option.help)
    add("--divvy-stack", default="lab", help="The stack whose plan is proven.")
    add("--divvy-file", default=None, help="A stack file instead of a stack's name.")
    add("--divvy-changed-since", default=None, help="Only nodes that changed since this report.")
    add("--kit", default=None, help="The unpacked hardware kit, for --bare.")
    add("--no-identities", action="store_true", help="Keep out of a report of --bare whose it is.")
    add(
        "--hardware-checks-anyway",
        action="store_true",
        help="Exercise checks that need hardware on simulated GPUs; they never pass there.",
    )
    add("--divvy-progress", action="store_true", help="One line per check.")
    add("--divvy-report", default=None, help="Folder for the reports.")  # fmt: skip


def options_of(config: pytest.Config) -> tuple[str, ...]:
    """Return the options that say what is checked and how, as they were given."""
    return tuple(
        command_line(option, config.getoption(option.suite))
        for option in OF_SUITE
        if not option.names_host and config.getoption(option.suite) != option.unset
    )


def narrowing(config: pytest.Config) -> tuple[str, ...]:
    """Return the options that leave checks or nodes out."""
    narrow = tuple(
        command_line(option, value)
        for option in OF_SUITE
        if option.narrows and (value := config.getoption(option.suite))
    )
    return narrow + (("--changed",) if config.getoption("--divvy-changed-since") else ())
