"""libcuda in a process of its own, for what the tests' process cannot show."""

import os
import subprocess
import sys
from pathlib import Path

from lab.driver_clients.driver_root import DriverRoot


def run(driver: DriverRoot, line: str, **environment: str) -> str:
    """Run Python in a new process, with `cuda` initialised, and return what it prints."""
    script = (
        "import sys; from pathlib import Path; from lab.driver_clients.cuda import Cuda\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); name = cuda.name; count = cuda.count\n" + line
    )
    command = [sys.executable, "-c", script, str(driver.library("libcuda.so.1"))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
    )
    return done.stdout.strip()
