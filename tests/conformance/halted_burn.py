"""A check of burns at once, of which one is halted."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.conformance.scene import Scene

# Halts one of several burns, and leaves the one that burns alone. It halts the parent of the last
# process, be that gpu-burn or the pod's shell: gpu-burn replaces a burner that stands still.
HALT_ONE = """
for _ in $(seq 1200); do
  if [ "$(pgrep -c -x gpu-burn)" -ge 6 ]; then
    last=$(pgrep -n -x gpu-burn)
    kill -STOP $(ps -o ppid= -p "$last") && echo halted && exit
  fi
  sleep 0.1
done
"""


def with_a_halted_burn(scene: Scene, node: str, pool: str, identity: str) -> dict[str, Any]:
    """Run a check that needs hardware, halt one of its burns, and return its result."""
    options = (f"--divvy-select={identity}", f"--divvy-pool={pool}")
    with ThreadPoolExecutor() as beside:
        halted = beside.submit(scene.deployed.on_node, node, "sh", "-c", HALT_ONE)
        report = scene.suite(*options, "--exclusive", "--hardware-checks-anyway")
        assert halted.result() == "halted\n"
    check: dict[str, Any] = report["checks"][0]
    return check
