"""The links of all nodes, in a few processes, and what they have told."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import yaml

from lab.cluster.paths import REPOSITORY
from tests.divvy_command import divvy_environment
from tests.render.objects.claims.api_server import ApiServer

PATIENCE = 900.0
PROCESSES = 2
_LINKS = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "benchmarks.fleet.links")


def until(holds: Callable[[], bool], otherwise: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


class Fleet:
    """The links of all nodes, in a few processes, and what they have told."""

    def __init__(self, folder: Path, server: ApiServer, nodes: list[str]) -> None:
        self._folder = folder
        self._server = server
        self._nodes = nodes
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[str]] = []
        self.linked_processes = 0
        self.touched: list[float] = []
        self.followed: dict[str, list[float]] = {}

    def make(self) -> None:
        """Start the processes; their links wait."""
        with self._lock:
            self.linked_processes, self.touched, self.followed = 0, [], {}
        users = yaml.safe_load(self._server.cluster.kubeconfig.read_text())["users"]
        token = users[0]["user"]["token"]
        for number in range(PROCESSES):
            share = self._folder / f"process-{number}"
            share.mkdir(exist_ok=True)
            nodes = self._nodes[number::PROCESSES]
            (share / "nodes").write_text("\n".join(nodes))
            for node in nodes:
                if not (share / node).exists():
                    (share / node).symlink_to(self._folder / node)
            arguments = (share, self._server.cluster.server, token)
            process = subprocess.Popen(
                [*_LINKS, *map(str, arguments)],
                env=divvy_environment(),
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._processes.append(process)
            threading.Thread(target=self._listen, args=(process.stdout,), daemon=True).start()
        until(lambda: self.linked_processes == PROCESSES, "the links are not made")

    def begin(self) -> float:
        """Let all links begin at once; return when."""
        began = time.monotonic()
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return began

    def processor_seconds(self) -> float:
        """Return what the links have used of processors since their start."""
        ticks = 0
        for process in self._processes:
            # After the name, which may hold blanks: the 14th and 15th field of all.
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End them all at once, as a power cut does."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes = []

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            words = line.split()
            with self._lock:
                match words:
                    case ["made"]:
                        self.linked_processes += 1
                    case ["touch", at]:
                        self.touched.append(float(at))
                    case ["follows", of, at]:
                        self.followed.setdefault(of, []).append(float(at))
