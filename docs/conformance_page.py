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
| `--disruptive` | restarts agents and kubelets, changes profiles and back, breaks simulated GPUs |
| `--select PLUG,ISO-02`, `--pool P` | only these checks, only this pool |
| `--no-exec` | does not enter the agents' pods; what needs it is skipped by name |
| `--bare` | checks this host, without Kubernetes or stack: driver, discovery, workloads |
| `--host ssh://user@name` | with `--bare`: another host |
| `--driver-root FOLDER` | with `--bare`: where the driver is, if not on the host itself |
| `--vector-add-image I`, `--gpu-burn-image I` | runs well-known images too, reads what they print |
| `--baseline OLD/report.yaml` | tells what broke, what was mended, what is no longer checked |
| `--out FOLDER` | where `report.html`, `report.yaml`, `junit.xml`, `ctrf.json` go |

The first line has the result. *success*: everything was checked on hardware and holds.
*partial*: nothing that MUST hold failed, but something was skipped, is simulated, or is a
SHOULD that failed. Both exit with 0. *failure*: exit code 1. *nothing checked*: exit code 2.

## What a run does to a cluster

* Its pods live in namespaces of their own, `divvy-conformance-…`: at the level *restricted*; a
  look at device numbers at *baseline* (root, the runtime's usual capabilities); and with
  `--disruptive` one privileged pod in the node's process namespace, which restarts the kubelet.
  They have the lowest priority, preempt nobody and end by themselves after half an hour.
* Devices that others hold stay theirs. A check that finds none free, or that wants an idle GPU
  and finds somebody on it, is skipped and says who. Shares are only used where nobody else holds
  one, since their GPU cannot be told.
* A profile is changed by the label `divvy.gpu/profile` on the node, with the annotation
  `divvy.gpu/conformance-profile` beside it, and never where others hold devices. It is taken off
  in the end, and when the run is stopped by Ctrl-C or SIGTERM. **If the run is killed outright, the
  next run of any kind takes it off before it looks at anything, and says so.** By hand:
  `kubectl label node NODE divvy.gpu/profile-`.
* The kubelet is restarted by systemd; without systemd it is killed, if the node's first process is
  what started it; else the check is skipped. An error of a GPU is only brought about on the
  simulated driver.
* Everything is removed in the end; namespaces of killed runs when they are two hours old.

The workloads are small programs of this project on the CUDA driver API, the same for
hardware and simulation: `cuda-vector-add`, `gpu-burn` (the well-known tool's options and
output; it exits with 1 when a GPU is faulty), `mem-hog`, `mem-bandwidth`, `bad-access` and
`open-devices`. They are built and pushed to `plugin.image.registry`, or given with
`--workload-image`. `conformance/workloads/manifests` has pods to apply by hand.

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

_MADE_UP = "nvidia-smi lists a MIG device that is not there (test_bare_on_lab.py)"
_SLOWED = "figures of a MIG device that neighbours slow down (test_cases.py, without a lab)"
_ELSEWHERE = {
    "WORK-04": "an image that fails (tests/conformance/test_options_on_lab.py)",
    "WORK-05": "an image that prints FAULTY and ends with 0 (test_options_on_lab.py)",
    "HW-01": _SLOWED,
    "HW-02": _SLOWED,
    "HW-03": "bad arithmetic beside it, with the simulated GPUs let in (test_options_on_lab.py)",
    "HW-04": "a share that is halted, with the simulated GPUs let in (test_options_on_lab.py)",
    "BARE-01": "a libcuda of another version (test_bare_on_lab.py)",
    "BARE-02": _MADE_UP,
    "BARE-03": _MADE_UP,
    "BARE-04": _MADE_UP,
    "BARE-06": _MADE_UP,
    "BARE-05": "GPUs that compute wrongly (test_bare_on_lab.py)",
}
_BY_HAND = """\

HW-01 and HW-02 were also let in by hand on simulated GPUs, whose devices share one processor: they
fail there, as they have to (a MIG device kept 11 % of its bandwidth beside seven others). What
passes of HW-… on simulated GPUs counts as skipped.
"""


def conformance_page() -> str:
    """Return the catalogue and the table of faults."""
    lines = [_INTRODUCTION, *_catalogue()]
    text = "\n".join(lines) + "\n" + _FAULTS
    text += "".join(f"| {fault.title} | {', '.join(fault.checks)} |\n" for fault in FAULTS)
    for why in dict.fromkeys(_ELSEWHERE.values()):
        own = ", ".join(key for key, value in _ELSEWHERE.items() if value == why)
        text += f"| {why} | {own} |\n"
    return text + _BY_HAND


def unseen() -> list[str]:
    """List the checks without a fault in the tables here; a check that cannot fail is none."""
    seen = {identity for fault in FAULTS for identity in fault.checks} | set(_ELSEWHERE)
    return [identity for identity in CATALOGUE if identity not in seen]


def _catalogue() -> Iterator[str]:
    yield "| id | proves that | level | modes | when it fails |"
    yield "|---|---|---|---|---|"
    for check in CATALOGUE.values():
        modes = "all" if check.modes == EVERY else ", ".join(check.modes)
        level = f"{check.level}, hardware only" if check.needs_hardware else check.level
        remedy = check.remedy.replace("|", "\\|")
        yield f"| {check.id} | {check.title} | {level} | {modes} | {remedy} |"
