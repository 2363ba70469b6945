"""The limiter's own tests again, with its libraries under the sanitizers."""

from pathlib import Path

import pytest

from tests.limiter.tenant import build_limiter
from tests.sanitized import run_sanitized

pytestmark = pytest.mark.lab
# What measures time says nothing under the sanitizers.
TIMED = ("shares_that_burn", "long_and_short_kernels", "lone_tenant", "tenant_alone_again")
TIMED += ("two_processes_as_one", "returning_tenant", "lying_page", "killed_in_its_turn")
TIMED += ("killed_while_waiting",)


def test_passes_its_tests_under_the_sanitizers(tmp_path):
    files = ("test_memory.py", "test_memory_kept.py", "test_oversubscription.py", "test_nvml.py")
    files += ("test_graph_memory.py", "test_gate.py", "test_streams.py", "test_forks.py")
    build = build_limiter(tmp_path, "asan")
    run_sanitized(
        [Path(__file__).with_name(file) for file in files], TIMED, DIVVY_LIMITER_BUILD=str(build)
    )
