"""What a test session does with a lab that is up already."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.cluster.paths import REPOSITORY
from lab.tests.cluster.conftest import SmallLab
from tests.deployment import NAMESPACE

pytestmark = pytest.mark.lab
# It reads the API server in this process, as `kubectl` does not.
_TEST = "lab/tests/cluster/test_cluster.py::test_creates_nodes_as_described"


def test_recreates_a_lab_with_divvy_on_it_and_keeps_any_other(small_lab: SmallLab) -> None:
    small_lab.up()
    small_lab.kubectl("create", "namespace", "somebody")
    _run_a_test(small_lab)
    small_lab.kubectl("get", "namespace", "somebody")

    small_lab.kubectl("create", "namespace", NAMESPACE)
    _run_a_test(small_lab)
    left = small_lab.kubectl("get", "namespaces", "--output=name").split()
    assert not {f"namespace/{NAMESPACE}", "namespace/somebody"} & {*left}


def _run_a_test(small_lab: SmallLab) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", _TEST],
        cwd=REPOSITORY,
        env={**small_lab.environment, "DIVVY_LAB_STACK": str(small_lab.description)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
