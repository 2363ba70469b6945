"""The page docs/hardware.md: the kit, and what its runs have shown, from their records."""

from __future__ import annotations

import json
from pathlib import Path

from hardware_kit.page import body, title
from hardware_kit.record import Run, read_run
from hardware_kit.steps import CATALOGUE

RECORDS = Path(__file__).parent / "hardware"

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
./run.sh --mig         # also cuts an idle GPU by MIG, and makes it whole again
```

* **The result** is one JSON file and one page, `divvy-hardware/hardware-<time>`, and beside them
  what the driver's libraries answered. None of them contains UUIDs or serial numbers of GPUs.
* **Each step has its own process and its own limit.** What fails, breaks or hangs is recorded, and
  the next step runs. Exit code 0: nothing failed; 1: something did; 2: the run could not begin;
  130: it was stopped.
* **GPUs that others use are left alone**: steps that need an idle GPU run on the first one, and
  are not run, with the reason, if there is none.
* **What `--mig` changes is restored**, even after Ctrl-C; after a `kill -9`, the next run restores
  it first. GPUs that are already in MIG mode are not touched.
* **Nothing is installed**: the kit unpacks itself below `/tmp`, or wherever there is room, and
  cleans up at the end. A second run at the same time is refused.

"""

_STEPS = """\
## Steps

| step | what it shows | limit | needs |
|---|---|--:|---|
"""


def hardware_page() -> str:
    """Return the page."""
    lines = []
    for step in CATALOGUE:
        needs = ["an idle GPU"] * step.needs_idle + ["`--mig`"] * step.needs_mig
        text = ", ".join(needs) or "–"
        lines.append(f"| {step.name} | {step.title} | {step.seconds} s | {text} |")
    parts = [f"{_INTRODUCTION}{_STEPS}" + "\n".join(lines)]
    for run in runs():
        parts.append("\n".join([f"## {title(run)}", "", *body(run, level=3)]))
    return "\n\n".join(parts) + "\n"


def runs() -> list[Run]:
    """Return the recorded runs: hardware before simulated, the newest first."""
    recorded = [read_run(json.loads(path.read_text())) for path in RECORDS.glob("*.json")]
    recorded.sort(key=lambda run: run.began, reverse=True)
    return sorted(recorded, key=lambda run: run.simulated)
