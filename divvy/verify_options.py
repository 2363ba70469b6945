"""The options of `divvy verify`, in one table.

The command line, the options of the suite that it runs, what a report says of its run, the options
of a Job, which options exclude each other, and the list in docs/conformance.md follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any


class Target(Enum):
    """What an option is for."""

    CLUSTER = "a cluster"
    HOST = "--bare"


@dataclass(frozen=True)
class Option:
    """An option; without a `kind` it is a flag."""

    name: str
    help: str
    kind: type[str] | type[int] | type[Path] | None = None
    default: str | Path | None = None
    of: Target | None = None
    needs: str = ""
    """Another option, without which this one means nothing."""
    suite: str = ""
    """The suite's name for it; none: the command itself acts on it."""
    narrows: bool = False
    """Whether it leaves checks or nodes out: such a report is no state to compare the next with."""
    names_host: bool = False
    """Whether its value says which host was checked, which a report does not repeat."""
    of_command: bool = False
    """Whether a Job in the cluster has no use for it: it has its own files and images."""

    @property
    def parameter(self) -> str:
        """Return its name in Python."""
        return self.name.replace("-", "_")

    @property
    def is_flag(self) -> bool:
        """Return whether it has no value."""
        return self.kind is None

    @property
    def unset(self) -> str | Path | bool | None:
        """Return the value that it has where it is not given."""
        return False if self.is_flag else self.default


_CLUSTER, _HOST = Target.CLUSTER, Target.HOST
OWN_TARGET = "divvy"
"""What `divvy up` deploys."""
OPTIONS = (
    Option(
        "target",
        "What shares the GPUs: divvy, nvidia-device-plugin or nvidia-dra.",
        str, OWN_TARGET, of=_CLUSTER, suite="--divvy-target",
    ),
    Option("pool", "Only this pool.", str, of=_CLUSTER, suite="--divvy-pool", narrows=True),
    Option(
        "sample",
        "Number of nodes of each pool and profile, or a percentage: 5%.",
        str, of=_CLUSTER, suite="--divvy-sample", narrows=True,
    ),
    Option(
        "seed",
        "Selects the sample's nodes: another seed, other nodes.",
        str, of=_CLUSTER, needs="--sample", suite="--divvy-seed", narrows=True,
    ),
    Option(
        "changed",
        "Only nodes that changed since the report of --compare.",
        of=_CLUSTER, needs="--compare",
    ),
    Option(
        "time-limit", "Start no check after this many minutes: the rest is not made.",
        int, suite="--divvy-time-limit",
    ),
    Option(
        "select",
        "Only checks with these ids: PLUG, or ISO-01,WORK.",
        str, suite="--divvy-select", narrows=True,
    ),
    Option(
        "exclusive",
        "Fill nodes, run gpu-burn, exceed memory limits: needs idle GPUs.",
        suite="--exclusive",
    ),
    Option(
        "disruptive",
        "Restart agents and kubelets, change profiles and back, break simulated GPUs.",
        of=_CLUSTER, suite="--disruptive",
    ),
    Option(
        "no-exec", "Do not enter the agent's pods: checks that need it are skipped by name.",
        of=_CLUSTER, suite="--no-exec",
    ),
    Option("bare", "Check this host, without Kubernetes; a stack is optional.", suite="--bare"),
    Option(
        "host", "With --bare, another host: ssh://user@name.",
        str, of=_HOST, suite="--bare-host", names_host=True,
    ),
    Option(
        "driver-root", "With --bare, the root folder of the driver.",
        str, of=_HOST, suite="--driver-root", names_host=True,
    ),
    Option(
        "workloads", "With --bare, a folder of compiled workloads: no compiler needed.",
        Path, of=_HOST, suite="--workloads", names_host=True,
    ),
    Option(
        "mig", "With --bare, partition an idle GPU by MIG, and make it whole again; needs root.",
        of=_HOST, suite="--mig",
    ),
    Option(
        "workload-image", "Image with the workloads, instead of building and pushing it.",
        str, of=_CLUSTER, suite="--workload-image", of_command=True,
    ),
    Option(
        "vector-add-image", "Also run this third-party vectorAdd image.",
        str, of=_CLUSTER, suite="--vector-add-image",
    ),
    Option(
        "gpu-burn-image", "Also run this third-party gpu-burn image.",
        str, of=_CLUSTER, suite="--gpu-burn-image",
    ),
    Option(
        "out", "Folder for reports (HTML, YAML, JUnit) and the archive of the run.",
        Path, Path("out/conformance"), of_command=True,
    ),
    Option(
        "require", "Exit 3 if a MUST check could not be made: for CI.", suite="--divvy-require"
    ),
    Option(
        "strict", "Exit 1 if a recommendation (SHOULD) does not hold, too: for CI.",
        suite="--divvy-strict",
    ),
    Option(
        "compare",
        "An earlier report.yaml or archive to compare with, or `last`: the one in the "
        "cluster. Exit 1 if a check newly fails, 3 if a MUST check can no longer be made.",
        str,
    ),
    Option("product", "Write PRODUCT.yaml: rows of the CNCF's AI conformance product file."),
    Option(
        "in-cluster", "Run nothing: write a Job that runs it in the cluster.",
        of=_CLUSTER, of_command=True,
    ),
    Option(
        "runner-image", "With --in-cluster, the image of the suite, instead of building it.",
        str, needs="--in-cluster", of_command=True,
    ),
)  # fmt: skip
OF_SUITE = tuple(option for option in OPTIONS if option.suite)


def given(values: Mapping[str, Any]) -> Iterator[Option]:
    """Yield the options that a command line has given, by the names of parameters."""
    return (option for option in OPTIONS if values.get(option.parameter) != option.unset)


def misuse(values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with options that do not go together; None if nothing is."""
    names = {f"--{option.name}" for option in given(values)}
    target = _HOST if values["bare"] else _CLUSTER
    strangers = [o for o in given(values) if o.of not in (None, target)]
    if strangers:
        listed = [f"--{option.name}" for option in strangers]
        words = " and ".join(filter(None, (", ".join(listed[:-1]), listed[-1])))
        verb = "is" if len(listed) == 1 else "are"
        assert strangers[0].of is not None
        return f"{words} {verb} for {strangers[0].of.value}"
    alone = next((o for o in given(values) if o.needs and o.needs not in names), None)
    return None if alone is None else f"--{alone.name} needs {alone.needs}"


def command_line(option: Option, value: Any, name: str = "") -> str:
    """Return an option with its value as it is typed; under another name for the suite."""
    name = name or f"--{option.name}"
    return name if option.is_flag else f"{name}={value}"
