"""API servers without nodes, and a stack of its own on one of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bare_cluster import BareCluster, bare_cluster
from tests.deploy.own_stack import OwnStack, left


@pytest.fixture(scope="package")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as running:
        yield running


@pytest.fixture
def own(tmp_path: Path, cluster: BareCluster) -> Iterator[OwnStack]:
    stack = OwnStack(tmp_path / "own", cluster)
    yield stack
    stack.run("destroy", "--yes")
    assert left(cluster) == set()
