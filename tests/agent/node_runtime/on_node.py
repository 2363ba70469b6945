"""The lab's node whose runtime these tests change, and how they reach into it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lab.cluster.node_files import write_node_files
from lab.cluster.paths import REPOSITORY
from tests.running_lab import RunningLab

NODE = "cpu-1"
FILE, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/90-divvy.toml"
REAL = "/srv/containerd.toml"
"""What FILE is a link to where an administrator has made it one."""
ADMIN = "/etc/containerd/conf.d/10-admin.toml"


def on_node(lab: RunningLab, *command: str, text: str | None = None) -> str:
    """Run a command on the node; raise with its words if it fails."""
    entered = lab.machine(NODE).enter_command(command)
    done = subprocess.run(entered, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_on_node(lab: RunningLab, program: str) -> str:
    """Run a program that imports Divvy on the node."""
    path = f"PYTHONPATH={REPOSITORY}"
    return on_node(lab, "/usr/bin/env", path, sys.executable, "-c", program).strip()


def restart(lab: RunningLab) -> None:
    """Have containerd read its files again."""
    # Its supervisor may still be about to start it again after an earlier restart.
    lab.until(lambda: containerd_pids(lab))
    before = containerd_pids(lab)
    on_node(lab, "pkill", "-TERM", "-x", "containerd")
    # The one that ends may answer for a moment.
    lab.until(lambda: containerd_pids(lab) - before and "io.containerd" in try_plugins(lab))


def containerd_pids(lab: RunningLab) -> set[str]:
    """Return the process that is the node's containerd now, if there is one."""
    return set(try_on_node(lab, "pgrep", "-x", "containerd").split())


def try_plugins(lab: RunningLab) -> str:
    """Return containerd's list of plugins, an empty text if it does not answer."""
    return try_on_node(lab, "ctr", "--connect-timeout=1s", "plugins", "ls")


def try_on_node(lab: RunningLab, *command: str) -> str:
    """Run a command on the node and return its output, however it ends."""
    entered = lab.machine(NODE).enter_command(command)
    return subprocess.run(entered, capture_output=True, text=True, check=False).stdout


def restore(lab: RunningLab, folder: Path) -> None:
    """Give containerd the files with which the lab describes the node."""
    write_node_files(lab.description, lab.description.node(NODE), folder)
    on_node(lab, "rm", "-f", FILE, REAL, ADMIN, DROP_IN)
    on_node(lab, "tee", FILE, text=(folder / FILE.lstrip("/")).read_text())
    restart(lab)
