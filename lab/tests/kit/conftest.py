"""The kit's folder, built once, and machines with a simulated driver to run it on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cluster.simulated_driver import build
from lab.driver_clients.driver_root import DriverRoot
from lab.kit.pack.__main__ import pack

# The driver's API is asked at 127.0.0.1; there is no other network.
_OFFLINE = 'ip link set lo up && exec "$@"'


@dataclass
class Bench:
    """A machine of a test's own: driver root and state below one folder."""

    kit: Path
    unpacked: Path
    folder: Path
    driver: DriverRoot
    state: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def temporary(self) -> Path:
        """Return where the kit is unpacked."""
        return self.folder / "tmp"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def command(self, *options: object, packed: bool = False) -> list[str]:
        """Return the command line: of the kit as it is unpacked already, or of its run.sh."""
        own = [f"--driver-root={self.driver.root}", f"--out={self.out}"]
        python = [str(self.unpacked / "python/bin/python3"), "-m", "lab.kit"]
        run = [str(self.kit / "run.sh")] if packed else python
        return [*run, *own, *map(str, options)]

    @property
    def environment(self) -> list[str]:
        """Return all variables that the kit is given."""
        return [f"TMPDIR={self.temporary}", f"DIVVY_VERIFY_STATE={self.state}"]

    def start(self, *options: object, packed: bool = False) -> subprocess.Popen[str]:
        """Start the kit with an empty environment, in another folder, without a network."""
        self.temporary.mkdir(exist_ok=True)
        started = subprocess.Popen(
            [
                *("env", "-i", *self.environment),
                *("unshare", "--net", "sh", "-c", _OFFLINE, "sh"),
                *self.command(*options, packed=packed),
            ],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(started)
        return started

    def run(self, *options: object, expect: int = 0, packed: bool = False) -> str:
        """Run the kit to its end; return what it says."""
        started = self.start(*options, packed=packed)
        output, _ = started.communicate(timeout=500)
        assert started.returncode == expect, output
        return output

    @property
    def report(self) -> dict[str, Any]:
        """Return the report of the last run."""
        return dict(yaml.safe_load((self.out / "report.yaml").read_text()))

    @property
    def outcomes(self) -> dict[str, tuple[str, str]]:
        """Return of each check its status and the reason for it, "" if there is none."""
        checks = self.report["checks"]
        return {check["id"]: (check["status"], check.get("reason", "")) for check in checks}

    @property
    def revision(self) -> str:
        """Return what the kit says that it was made from."""
        return str(json.loads((self.kit / "kit.json").read_text())["revision"])

    def left(self) -> list[str]:
        """Return what the run has left where it was unpacked."""
        return [path.name for path in self.temporary.iterdir()]

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        self.driver.stop()


@pytest.fixture(scope="session")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the kit's folder, somewhere else than the checkout."""
    if os.geteuid() != 0:
        pytest.skip("the kit needs root: namespaces, device nodes")
    folder = tmp_path_factory.mktemp("packed") / "kit"
    pack(folder)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copied"
    shutil.move(folder, elsewhere)
    return elsewhere


@pytest.fixture(scope="session")
def unpacked(kit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give what run.sh unpacks, once for many runs."""
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-xzf", kit / "payload.tar.gz", "-C", folder], check=True)
    return folder / "kit"


@pytest.fixture
def bench(kit: Path, unpacked: Path, tmp_path: Path) -> Iterator[Bench]:
    """Give a machine with one A100."""
    driver = DriverRoot(tmp_path / "driver", build())
    driver.install("A100-SXM4-40GB", 1)
    # Sockets are below it, whose paths are short.
    with tempfile.TemporaryDirectory(prefix="divvy-kit-", dir="/run") as state:
        workbench = Bench(kit, unpacked, tmp_path, driver, Path(state))
        yield workbench
        workbench.stop()
