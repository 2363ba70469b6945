"""The page docs/hardware.md: the kit, and what its runs have shown, from their reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPORTS = Path(__file__).parent / "hardware"
# Of a check's evidence; the rest is in its report.
_MAX_LINES, _MAX_WIDTH = 40, 400

_INTRODUCTION = """\
# The hardware kit

The hardware kit shows on a machine with an NVIDIA GPU what simulated GPUs cannot show, in at
most nine minutes. The machine needs no network, no Kubernetes, no Python and no compiler: x86-64
Linux, an NVIDIA driver, root, a shell, tar and gzip are enough.

```sh
make hardware-kit      # out/hardware-kit: at most 60 MiB
```

Copy the folder to the machine and run it as root:

```
./run.sh               # all that leaves the GPUs' settings alone
./run.sh --mig         # also partitions an idle GPU by MIG, and makes it whole again
```

It is [`divvy verify --bare --exclusive`](conformance.md) with the programs that such a machine
lacks, and takes its options, such as `--select`, `--driver-root` and `--out`. All BARE checks are
made: those of hook, limiter, agent and CDI specification, and what NVML and CUDA answer beside the
simulated driver's answers.

* **The result** is the report of `divvy verify` in `divvy-hardware/<time>`, and beside it
  `driver-answers.json`, what the driver's libraries answered. None of them contains the name of the
  machine, or UUIDs or serial numbers of GPUs.
* **Each check has its own limit.** What fails, breaks or hangs is recorded, and the next check
  runs. Exit code 0: nothing failed; 1: something did; 2: nothing was checked; 130: it was stopped,
  and what was not checked says so.
* **GPUs that others use are left alone**: checks that need an idle GPU use the first one, and
  are not made, with the reason, if there is none.
* **What `--mig` changes is restored**, even after Ctrl-C; after a `kill -9`, the next run restores
  it first. GPUs that are already in MIG mode are not touched.
* **Nothing is installed**: the kit unpacks itself below `/tmp`, or wherever there is room, and
  cleans up at the end. A second run at the same time is refused. `/var/lib/divvy-verify` has a
  lock, and what is to be restored.
"""


def hardware_page() -> str:
    """Return the page."""
    runs = "\n".join(line for report in reports() for line in _run(report))
    by_hand = (REPORTS / "by-hand.txt").read_text(encoding="utf-8")
    return "\n".join([_INTRODUCTION, runs, by_hand])


def reports() -> list[dict[str, Any]]:
    """Return the recorded runs: hardware before simulated, the newest first."""
    recorded = [yaml.safe_load(path.read_text()) for path in REPORTS.glob("*.yaml")]
    recorded.sort(key=lambda report: str(report["began"]), reverse=True)
    return sorted(recorded, key=lambda report: report["mode"] == "simulated")


def _run(report: dict[str, Any]) -> Iterator[str]:
    simulated = report["mode"] == "simulated"
    (node,) = report["environment"]["nodes"]
    title = f"{node['gpus']} × {node['model']}, driver {node['driver']}, {report['began'][:10]}"
    yield f"## {'SIMULATED: ' if simulated else ''}{title}"
    if simulated:
        yield from ("", f"**{report['disclaimer']}**")
    options = ", ".join(f"`{option}`" for option in report["options"])
    yield from (
        "",
        f"Result: **{report['result']}**.",
        f"{node['os']}, kernel {node['kernel']}, {node['processors']} processors.",
        f"The kit of revision `{report['environment']['kit']}`, begun {report['began']}, with",
        f"{options}.",
        "",
        "| check | what it shows | case | result | seconds | reason |",
        "|---|---|---|---|---|---|",
    )
    for check in report["checks"]:
        case = check["case"].partition(":")[2]
        cells = (check["title"], case, check["status"], check["seconds"], check.get("reason", ""))
        yield f"| {check['id']} | {' | '.join(map(_cell, cells))} |"
    for check in report["checks"]:
        if check.get("evidence") and ":" not in check["case"]:
            mark = " (SIMULATED)" if simulated else ""
            yield from ("", f"### {check['id']}: {check['title']}{mark}", "", "```text")
            lines = [line for text in check["evidence"] for line in text.splitlines()]
            yield from (_shortened(line) for line in lines[:_MAX_LINES])
            if len(lines) > _MAX_LINES:
                yield f"… and {len(lines) - _MAX_LINES} more lines in the report"
            yield "```"
    yield ""


def _shortened(line: str) -> str:
    line = line.replace("```", "'''").rstrip()
    return line if len(line) <= _MAX_WIDTH else f"{line[:_MAX_WIDTH]} …"


def _cell(value: object) -> str:
    return " ".join(str(value).replace("|", "\\|").split())
