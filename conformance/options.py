"""The suite's options."""

from __future__ import annotations

import pytest


def add_options(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("divvy")
    add = group.addoption
    add("--divvy-stack", default="lab", help="The stack whose plan is proven.")
    add("--divvy-file", default=None, help="A stack file instead of a stack's name.")
    add("--divvy-target", default="divvy", help="What shares the GPUs.")
    add("--divvy-pool", default=None, help="Only this pool.")
    add("--divvy-sample", default=None, help="Number of nodes, or N%, of each pool and profile.")
    add("--divvy-seed", default="", help="Selects the sample's nodes.")
    add("--divvy-changed-since", default=None, help="Only nodes that changed since this report.")
    add(
        "--divvy-time-limit",
        default=None,
        type=float,
        help="Start no check after this many seconds.",
    )
    add("--divvy-select", default=None, help="Only checks with these id prefixes, comma-separated.")
    add("--workload-image", default=None, help="Image with the workloads, by digest.")
    add("--vector-add-image", default=None, help="Also run this third-party vectorAdd image.")
    add("--gpu-burn-image", default=None, help="Also run this third-party gpu-burn image.")
    add("--exclusive", action="store_true", help="Fill nodes, run gpu-burn, exceed memory limits.")
    add(
        "--disruptive",
        action="store_true",
        help="Restart agents and kubelets, change profiles, break simulated GPUs.",
    )
    add("--no-exec", action="store_true", help="Do not enter the agent's pods.")
    add("--divvy-strict", action="store_true", help="Fail the run for recommendations, too.")
    add("--divvy-require", action="store_true", help="Fail if a required check is not made.")
    add("--bare", action="store_true", help="Check a host without Kubernetes.")
    add("--bare-host", default="local://", help="The host for --bare, as testinfra names it.")
    add("--driver-root", default=None, help="The driver's root folder, for --bare.")
    add("--workloads", default=None, help="Folder with the compiled workloads, for --bare.")
    add("--mig", action="store_true", help="With --bare, cut an idle GPU by MIG, and undo it.")
    add("--kit", default=None, help="The unpacked hardware kit, for --bare.")
    add("--no-identities", action="store_true", help="Keep out of a report of --bare whose it is.")
    add(
        "--hardware-checks-anyway",
        action="store_true",
        help="Exercise checks that need hardware on simulated GPUs; they never pass there.",
    )
    add("--divvy-progress", action="store_true", help="One line per check.")
    add("--divvy-report", default=None, help="Folder for the reports.")  # fmt: skip


def given(config: pytest.Config) -> tuple[str, ...]:
    """Return the options that say what is checked and how, as they were given."""
    names = (
        "divvy-target", "divvy-pool", "divvy-sample", "divvy-seed", "divvy-time-limit",
        "divvy-select", "workload-image", "vector-add-image",
        "gpu-burn-image", "exclusive", "disruptive", "no-exec", "divvy-strict",
        "divvy-require", "bare", "mig",
    )  # fmt: skip
    options = []
    for name in names:
        value = config.getoption(f"--{name}")
        if value not in (None, False, "") and (name, value) != ("divvy-target", "divvy"):
            option = f"--{name.removeprefix('divvy-')}"
            options.append(option if value is True else f"{option}={value}")
    return tuple(options)
