"""The limiter's own tests again, with its libraries under the sanitizers."""

from pathlib import Path

import pytest

from tests.limiter.tenant import build_limiter
from tests.sanitized import run_sanitized

pytestmark = pytest.mark.lab
# What measures time says nothing under the sanitizers.
TIMED = ("burn", "long_kernels", "alone", "cap", "two_processes_of", "waited_for", "killed")


def test_the_limiter_under_the_sanitizers(tmp_path):
    files = ("test_memory.py", "test_oversubscription.py", "test_nvml.py", "test_gate.py")
    build = build_limiter(tmp_path, "asan")
    run_sanitized(
        [Path(__file__).with_name(one) for one in files], TIMED, DIVVY_LIMITER_BUILD=str(build)
    )
