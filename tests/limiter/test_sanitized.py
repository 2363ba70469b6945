"""The limiter's own tests again, with its libraries under the sanitizers."""

from pathlib import Path

import pytest

from tests.limiter.tenant import build_limiter
from tests.sanitized import run_sanitized

pytestmark = pytest.mark.lab
# What measures time says nothing under the sanitizers.
TIMED = ("burn", "long_kernels", "who_is_alone", "a_cap_caps", "two_processes_of", "waited_for")
TIMED += ("page_that_lies", "comes_back", "waits_a_second")


def test_passes_its_tests_under_the_sanitizers(tmp_path):
    files = ("test_memory.py", "test_memory_kept.py", "test_oversubscription.py", "test_nvml.py")
    files += ("test_graph_memory.py", "test_gate.py", "test_streams.py", "test_forks.py")
    build = build_limiter(tmp_path, "asan")
    run_sanitized(
        [Path(__file__).with_name(file) for file in files], TIMED, DIVVY_LIMITER_BUILD=str(build)
    )
