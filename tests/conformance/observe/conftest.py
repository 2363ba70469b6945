"""A simulated driver, and the scripts that ask NVML run over it as the agent's pod would."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lab.driver_clients.driver_root import DriverRoot


@pytest.fixture
def run_script(driver: DriverRoot) -> Callable[[str], Any]:
    """Run a script over the driver and return the JSON that it prints."""

    def run(script: str) -> Any:
        command = [sys.executable, "-c", script, str(driver.root)]
        return json.loads(subprocess.check_output(command, text=True, timeout=20))

    return run
