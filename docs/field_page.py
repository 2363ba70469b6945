"""The page docs/field.md, from what `make field` has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.catalogue import CATALOGUE
from conformance.implementation import (
    IMPLEMENTATIONS,
    NVIDIA_DEVICE_PLUGIN,
    NVIDIA_DRA,
    Implementation,
)
from lab.interop.results import Outcome, Run, read_results

# What a check that fails has found, and whose it is, by implementation and check.
FINDINGS: Mapping[tuple[str, str], str] = {
    (NVIDIA_DEVICE_PLUGIN.name, "ISO-09"): """\
NVIDIA's. The plugin's CDI specification mounts the socket of nvidia-persistenced with the options
`nosuid, nodev, rbind, rprivate, noexec`, and not `ro` (`internal/discover/ipc.go` of
nvidia-container-toolkit); all other files of the driver are mounted `ro`. Connecting to a socket
needs no writable mount. With one, a container that runs as root can change the mode of the node's
socket: on the lab `chmod 600 /run/nvidia-persistenced/socket` in a pod with a GPU changed it from
666 to 600. On the lab the simulated driver's daemon has this socket; a real node has it where
nvidia-persistenced runs, which was not tried. With MPS the folder of the daemon's sockets is
writable, too, as a client of MPS may need it; but it is one folder for all GPUs of the node, where
each pod meets those of every other.""",
    (NVIDIA_DRA.name, "ISO-09"): """\
NVIDIA's, and the same as with the device plugin: the driver writes the CDI specification of a claim
with the same library of nvidia-container-toolkit (v1.20.0 in its module), which mounts the socket
of nvidia-persistenced without `ro`.""",
    (NVIDIA_DRA.name, "CLM-12"): """\
NVIDIA's, and as its demonstration of `consumableShares` says, which calls a claim's memory a quota:
the scheduler subtracts it from the GPU's, and nothing holds a container to it. CUDA and nvidia-smi
show all of the GPU. Claims can name memory with `consumableShares: 4` as well, as time-slicing has
it here.""",
    (NVIDIA_DRA.name, "CLM-02"): """\
The same as CLM-12: more memory than its claim has was granted to the pod.""",
    (NVIDIA_DRA.name, "CLM-06"): """\
The same as CLM-12. The scheduler gave out no more than there is, and let the other pods wait; but
each pod that ran could take all of its GPU.""",
}

_INTRODUCTION = """\
# The field: other implementations under the same checks

`make field` deploys NVIDIA's device plugin with GPU Feature Discovery, then NVIDIA's DRA driver, on
a lab of its own, by the charts in their Go modules, in the configurations below, and runs
`divvy verify --exclusive` with `--target nvidia-device-plugin` or `--target nvidia-dra` on each.
Divvy is not installed there. What should be advertised follows from their own configuration: the
plugin's file, as `divvy import` reads it; the driver's chart values and a layout of mig-parted.

**The GPUs are simulated**: this shows what these programs do with a driver, and nothing of
hardware. They are built from unmodified modules. The lab differs from a cluster in these ways:

* A container's `/proc` and `/sys` do not show a simulated kernel module, so the image starts each
  program after mounting what the driver root has of them. For this the pods are privileged.
* The plugin's chart expects the driver's libraries from NVIDIA's container runtime. The lab has
  none: containers get devices by CDI (`deviceListStrategy: cdi-cri`), and feature discovery and the
  MPS daemon get the driver root mounted. The DRA driver's chart brings all this itself.
* Node Feature Discovery is not there; `make field` puts its labels on the nodes, and those of the
  NodeFeature objects that GPU Feature Discovery writes.
* The MIG devices are created with `nvidia-smi` before either starts.
* No Go proxy serves NVIDIA's bindings of the fabric manager (`go-nvfm`), which the DRA driver
  requires: it is built with a stand-in that answers that there is none. The driver asks it only
  with the feature gate `FabricManagerPartitioning`.

Pods ask the DRA driver as they ask the plugin: its class `gpu.nvidia.com` names `nvidia.com/gpu` as
its extended resource, and from a pod's limits the scheduler makes a claim. For MIG devices
`make field` adds a class for each profile, as the driver's examples do. For time-slicing the driver
has the feature gates `ConsumableShares` and `TimeSlicingSettings`, and its class brings a
`GpuConfig` with a long time slice; for shares by memory, `consumableShares: memory`, with which a
pod that names `nvidia.com/gpu` gets all memory of a GPU. Checks of claims (CLM) ask by
ResourceClaims of that class for one GPU by its UUID, and for a part of its memory where claims can
have one. A GPU with MIG devices has no claims of its own.

On your own cluster, with the plugin in release `nvdp` and namespace `nvidia-device-plugin`, as
NVIDIA's guide installs it: `divvy init prod` writes a stack file of what the nodes offer today, and
`divvy verify -s prod --target nvidia-device-plugin` checks it. If Divvy's agent would be asked,
a privileged pod of the suite looks into the node: for this the stack file needs `plugin.image`.
With the DRA driver in namespace `dra-driver-nvidia-gpu` it is `--target nvidia-dra`; `divvy init`
describes no node that is served by another DRA driver, so the stack file is written by hand.

In the tables each cell says in how many cases (nodes, or resources of nodes) a check passed; what
**failed** is explained at the end. A dash: the check does not apply to that way of sharing.
"""


def field_page() -> str:
    """Return the page."""
    results = read_results()
    lines = [_INTRODUCTION]
    by_implementation: dict[str, list[Run]] = {}
    for run in results:
        by_implementation.setdefault(run.target, []).append(run)
    for name, runs in by_implementation.items():
        implementation = IMPLEMENTATIONS[name]
        lines += [*_table(implementation, runs), *_inapplicable(implementation)]
    return "\n".join([*lines, *_failures(results), *_ending(), ""])


def _versions(runs: Sequence[Run]) -> Iterator[str]:
    titles: dict[str, list[str]] = {}
    for run in runs:
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
        titles.setdefault(f"Seen on {run.date} with {versions}", []).append(run.title)
    for words, listed in titles.items():
        yield f"{words}." if len(titles) == 1 else f"{words}: {'; '.join(listed)}."
        yield ""


def _table(implementation: Implementation, runs: Sequence[Run]) -> Iterator[str]:
    yield f"## {implementation.title}"
    yield ""
    yield from _versions(runs)
    yield f"| check | {' | '.join(run.title for run in runs)} |"
    yield "|---|" + "---|" * len(runs)
    for identity in CATALOGUE:
        cells = [_cell(_of(run, identity)) for run in runs]
        if any(cell != "–" for cell in cells):
            yield f"| {identity}: {CATALOGUE[identity].title} | {' | '.join(cells)} |"
    counts = [f"{run.counts['passed']} passed, {run.counts['failed']} failed" for run in runs]
    yield f"| **all cases** | {' | '.join(counts)} |"
    yield ""


def _cell(outcomes: Sequence[Outcome]) -> str:
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("passed", "failed")
    }
    open_cases = sum(outcome.missed == "not made" for outcome in outcomes)
    words = [str(counts["passed"])] if counts["passed"] else []
    words += [f"**{counts['failed']} failed**"] if counts["failed"] else []
    words += [f"{open_cases} not made"] if open_cases else []
    return ", ".join(words) or "–"


def _failures(results: Sequence[Run]) -> Iterator[str]:
    yield "## What failed"
    yield ""
    failed = {
        (run.target, outcome.id)
        for run in results
        for outcome in run.outcomes
        if outcome.status == "failed"
    }
    if not failed:
        yield "Nothing."
        yield ""
    order, targets = list(CATALOGUE), list(IMPLEMENTATIONS)
    for target, identity in sorted(
        failed, key=lambda key: (targets.index(key[0]), order.index(key[1]))
    ):
        yield f"### {identity} of {IMPLEMENTATIONS[target].title}: {CATALOGUE[identity].title}"
        yield ""
        yield FINDINGS[target, identity]
        yield ""
        yield "```text"
        runs = [run for run in results if run.target == target]
        for run in runs:
            for outcome in _of(run, identity):
                if outcome.status == "failed":
                    yield f"{run.configuration}  {outcome.case}: {outcome.reason}"
        yield "```"
        yield ""
        first = next(run for run in runs if _has_failed(run, identity))
        yield (
            "Reproduce it, on a lab that stays up until `DIVVY_LAB=field .venv/bin/divvy lab down`:"
        )
        yield ""
        yield "```sh"
        yield f"make field KEEP={first.configuration}"
        yield (
            f".venv/bin/divvy verify --file out/field/{first.configuration}/stack.yaml "
            f"--target {target} --exclusive --select {identity}"
        )
        yield "```"
        yield ""


def _inapplicable(implementation: Implementation) -> Iterator[str]:
    yield "These checks are *not applicable* there, and never passed:"
    yield ""
    yield "| checks | because |"
    yield "|---|---|"
    reasons: dict[str, list[str]] = {}
    for key, reason in implementation.inapplicable.items():
        reasons.setdefault(reason, []).append(key.removesuffix("-"))
    for reason, keys in reasons.items():
        yield f"| {', '.join(keys)} | {reason} |"
    yield ""


def _ending() -> Iterator[str]:
    yield (
        "`make field` runs without `--disruptive`, so the other DISR checks are left out; HW "
        "checks need hardware."
    )
    yield ""
    yield "This page is generated: make field, then python -m docs.generate."


def _of(run: Run, identity: str) -> list[Outcome]:
    return [outcome for outcome in run.outcomes if outcome.id == identity]


def _has_failed(run: Run, identity: str) -> bool:
    return any(outcome.status == "failed" for outcome in _of(run, identity))
