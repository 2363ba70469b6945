"""From a pod's creation to Running: without a GPU, by the device plugin, and by claims.

The kinds take turns on the lab, one pod after the other, so that what else the machine does meets
all of them alike. It brings the lab up, deploys its stack with the pools of claims, and removes it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from divvy.stack.file import read_stack
from lab.cluster import lifecycle
from lab.cluster.paths import KUBECONFIG
from lab.cluster.section import read_lab
from lab.cluster.tools import KUBERNETES
from tests.deployment import Deployment
from tests.running_lab import RunningLab

ROUNDS = 12
KINDS: dict[str, tuple[str, dict[str, str]]] = {
    "no GPU": ("gpu-a100", {}),
    "device plugin, whole GPU": ("gpu-h100", {"nvidia.com/gpu": "1"}),
    "device plugin, MIG device": ("gpu-a100", {"nvidia.com/mig-1g.5gb": "1"}),
    "claim, share": ("gpu-by-size", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
    "claim, whole GPU": ("gpu-by-size", {"nvidia.com/gpu": "1"}),
    "claim, MIG device": ("gpu-on-demand", {"nvidia.com/mig-1g.5gb": "1"}),
}


def _pod(lab: RunningLab, node: str, limits: dict[str, str]) -> dict[str, Any]:
    pod = lab.pod("timed", "exec sleep 1000", container={"resources": {"limits": limits}})
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def _started(lab: RunningLab, namespace: str, pod: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds until the pod was bound to its node, and until it was Running."""
    command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={lab.kubeconfig}", "get", "pods"]
    command += [f"--namespace={namespace}", "--watch", "--output-watch-events", "--output=json"]
    pod["metadata"]["namespace"] = namespace
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        lab.apply(pod)
        began = bound = 0.0
        for line in watch.stdout:
            now = time.monotonic()
            live_pod = json.loads(line)["object"]
            began = began or now
            if live_pod["spec"].get("nodeName"):
                bound = bound or now
            if live_pod["status"].get("phase") == "Running":
                watch.terminate()
                break
    lab.kubectl("delete", "pod", "timed", f"--namespace={namespace}", "--timeout=60s")
    lab.until(lambda: not lab.get("resourceclaims", f"--namespace={namespace}")["items"])
    return bound - began, now - began


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    description = read_lab(read_stack("lab", None))
    lifecycle.up(description, tell=lambda _line: None)
    lab = RunningLab(description, KUBECONFIG)
    seconds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        deployment = Deployment(lab, Path(folder))
        deployment.add_claims()
        deployment.up()
        try:
            with lab.namespace() as namespace:
                for _ in range(rounds):
                    for kind, (node, limits) in KINDS.items():
                        seconds[kind].append(_started(lab, namespace, _pod(lab, node, limits)))
        finally:
            deployment.divvy("destroy", "--stack=lab", "--yes")
    print(f"{'milliseconds':<28} {'bound':>7} {'Running':>9} {'least':>7} {'most':>7}   of")
    for kind, pairs in seconds.items():
        bound = statistics.median(to_bound for to_bound, _ in pairs)
        running = sorted(to_running for _, to_running in pairs)
        figures = (bound, statistics.median(running), running[0], running[-1])
        print(
            f"{kind:<28} {' '.join(f'{figure * 1000:8.0f}' for figure in figures)}   {len(pairs)}"
        )


if __name__ == "__main__":
    main()
