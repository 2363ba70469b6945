"""The page about conformance: the catalogue of the suite, and the faults its tests bring about."""

from collections.abc import Iterator

from conformance.catalogue import CATALOGUE, EVERY
from tests.conformance.faults import FAULTS

_INTRODUCTION = """\
# Conformance: what `divvy verify` checks

`divvy verify -s <stack>` computes the plan of the stack file, looks at every live node
of its pools, runs small pods on their devices and says what holds. It leaves nothing
behind. A run against a node whose GPUs are simulated says so everywhere and is at best
*partial*.

| option | does |
|---|---|
| (none) | takes one device per resource for some seconds; disturbs nobody |
| `--exclusive` | fills nodes, burns, asks for too much: wants idle GPUs |
| `--disruptive` | restarts agents |
| `--select PLUG,ISO-02`, `--pool P` | only these checks, only this pool |
| `--no-exec` | does not enter the agents' pods; what needs it is skipped by name |
| `--baseline OLD/report.yaml` | tells what broke, what was mended, what is no longer checked |
| `--out FOLDER` | where `report.html`, `report.yaml`, `junit.xml`, `ctrf.json` go |

The first line has the result. *success*: everything was checked on hardware and holds.
*partial*: nothing that MUST hold failed, but something was skipped, is simulated, or is a
SHOULD that failed. Both exit with 0. *failure*: exit code 1. *nothing checked*: exit code 2.

The workloads are small programs of this project on the CUDA driver API, the same for
hardware and simulation: `cuda-vector-add`, `gpu-burn` (the well-known tool's options and
output; it exits with 1 when a GPU is faulty) and `mem-hog`. They are built and pushed to
`plugin.image.registry`, or given with `--workload-image`.

This page is generated: python -m docs.generate.

## The checks
"""

_FAULTS = """\

## Faults and the checks that name them

A check is worth what it finds. Tests bring each of these faults about on the lab, run
`divvy verify` with the checks beside it, and demand that each of them fails.

| fault | checks that fail |
|---|---|
"""

_UNSEEN = """\

Nobody has made these fail on the lab; trust them less: """


def conformance_page() -> str:
    """Return the catalogue and the table of faults."""
    lines = [_INTRODUCTION, *_catalogue()]
    text = "\n".join(lines) + "\n" + _FAULTS
    text += "".join(f"| {fault.title} | {', '.join(fault.checks)} |\n" for fault in FAULTS)
    return text + _UNSEEN + f"{', '.join(unseen())}.\n"


def unseen() -> list[str]:
    """List the checks that no fault makes fail."""
    seen = {identity for fault in FAULTS for identity in fault.checks}
    return [identity for identity in CATALOGUE if identity not in seen]


def _catalogue() -> Iterator[str]:
    yield "| id | proves that | level | modes | when it fails |"
    yield "|---|---|---|---|---|"
    for check in CATALOGUE.values():
        modes = "all" if check.modes == EVERY else ", ".join(check.modes)
        level = f"{check.level}, hardware only" if check.needs_hardware else check.level
        remedy = check.remedy.replace("|", "\\|")
        yield f"| {check.id} | {check.title} | {level} | {modes} | {remedy} |"
