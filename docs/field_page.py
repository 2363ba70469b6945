"""The page docs/field.md, from what `make field` has seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.catalogue import CATALOGUE
from conformance.implementation import NVIDIA_DEVICE_PLUGIN
from field.results import Outcome, Results, Run, read_results

# What a check that fails has found, and whose it is.
FINDINGS: Mapping[str, str] = {
    "ISO-09": """\
NVIDIA's. The plugin's CDI specification mounts the socket of nvidia-persistenced with the options
`nosuid, nodev, rbind, rprivate, noexec`, and not `ro` (`internal/discover/ipc.go` of
nvidia-container-toolkit); all other files of the driver are mounted `ro`. Connecting to a socket
needs no writable mount. With one, a container that runs as root can change the mode of the node's
socket: on the lab `chmod 600 /run/nvidia-persistenced/socket` in a pod with a GPU changed it from
666 to 600. On the lab the simulated driver's daemon has this socket; a real node has it where
nvidia-persistenced runs, which was not tried.""",
}

_INTRODUCTION = """\
# The field: other implementations under the same checks

`make field` deploys NVIDIA's device plugin and GPU Feature Discovery on a lab of its own, by the
chart in their Go module, in the configurations below, and runs
`divvy verify --target nvidia-device-plugin --exclusive` on each. Divvy is not installed there. What
should be advertised follows from the plugin's own configuration file, as `divvy import` reads it.

**The GPUs are simulated**: this shows what the plugin does with a driver, and nothing of hardware.
The programs are built from unmodified modules. The lab differs from a cluster in four ways:

* A container's `/proc` and `/sys` do not show a simulated kernel module, so the image starts each
  program after mounting what the driver root has of them. For this the pods are privileged.
* The chart expects the driver's libraries from NVIDIA's container runtime. The lab has none:
  containers get devices by CDI (`deviceListStrategy: cdi-cri`), and feature discovery gets the
  driver root mounted.
* Node Feature Discovery is not there; `make field` puts its labels on the nodes, and those of the
  NodeFeature objects that GPU Feature Discovery writes.
* The MIG devices are created with `nvidia-smi` before the plugin starts.

On your own cluster, with the plugin in release `nvdp` and namespace `nvidia-device-plugin`, as
NVIDIA's guide installs it: `divvy init prod` writes a stack file of what the nodes offer today, and
`divvy verify -s prod --target nvidia-device-plugin` checks it. Where Divvy's agent would be asked,
a privileged pod of the suite looks into the node: for this the stack file needs `plugin.image`.
"""


def field_page() -> str:
    """Return the page."""
    results = read_results()
    return "\n".join([_INTRODUCTION, *_versions(results), *_table(results), *_failures(results),
                      *_inapplicable(), ""])  # fmt: skip


def _versions(results: Results) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    yield f"Seen on {results.date} with {versions}."
    yield ""


def _table(results: Results) -> Iterator[str]:
    yield "## Results"
    yield ""
    yield (
        "Each cell says in how many cases (nodes, or resources of nodes) a check passed; what "
        "**failed** is explained below. A dash: the check does not apply to that way of sharing."
    )
    yield ""
    yield f"| check | {' | '.join(run.title for run in results.runs)} |"
    yield "|---|" + "---|" * len(results.runs)
    for identity in CATALOGUE:
        cells = [_cell(_of(run, identity)) for run in results.runs]
        if any(cell != "–" for cell in cells):
            yield f"| {identity}: {CATALOGUE[identity].title} | {' | '.join(cells)} |"
    counts = [
        f"{run.counts['passed']} passed, {run.counts['failed']} failed" for run in results.runs
    ]
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


def _failures(results: Results) -> Iterator[str]:
    yield "## What failed"
    yield ""
    failed = dict.fromkeys(
        outcome.id for run in results.runs for outcome in run.outcomes if outcome.status == "failed"
    )
    if not failed:
        yield "Nothing."
        yield ""
    for identity in sorted(failed, key=list(CATALOGUE).index):
        yield f"### {identity}: {CATALOGUE[identity].title}"
        yield ""
        yield FINDINGS[identity]
        yield ""
        yield "```text"
        for run in results.runs:
            for outcome in _of(run, identity):
                if outcome.status == "failed":
                    yield f"{run.configuration}  {outcome.case}: {outcome.reason}"
        yield "```"
        yield ""
        first = next(run for run in results.runs if _has_failed(run, identity))
        yield (
            "Reproduce it, on a lab that stays up until `DIVVY_LAB=field .venv/bin/divvy lab down`:"
        )
        yield ""
        yield "```sh"
        yield f"make field KEEP={first.configuration}"
        yield (
            f".venv/bin/divvy verify --file out/field/{first.configuration}/stack.yaml "
            f"--target {NVIDIA_DEVICE_PLUGIN.name} --exclusive --select {identity}"
        )
        yield "```"
        yield ""


def _inapplicable() -> Iterator[str]:
    yield "## What is not asked"
    yield ""
    yield "These checks are *not applicable* there, and never passed:"
    yield ""
    yield "| checks | because |"
    yield "|---|---|"
    reasons: dict[str, list[str]] = {}
    for key, reason in NVIDIA_DEVICE_PLUGIN.inapplicable.items():
        reasons.setdefault(reason, []).append(key.removesuffix("-"))
    for reason, keys in reasons.items():
        yield f"| {', '.join(keys)} | {reason} |"
    yield ""
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
