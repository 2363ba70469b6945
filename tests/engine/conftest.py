"""Fixtures of the engine's tests: API servers without nodes, and trials on them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.bare_cluster import BareCluster, bare_cluster
from tests.engine.sdk_server import sdk_server
from tests.engine.trial import Trial


@pytest.fixture(scope="package")
def cluster() -> Iterator[BareCluster]:
    with bare_cluster() as shared_cluster:
        yield shared_cluster


@pytest.fixture(scope="package")
def other_cluster() -> Iterator[BareCluster]:
    with bare_cluster() as second_cluster:
        yield second_cluster


@pytest.fixture(scope="package")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with sdk_server(tmp_path_factory.mktemp("sdk")) as address:
        yield address


@pytest.fixture
def trial(cluster: BareCluster, sdk: Path, tmp_path: Path) -> Iterator[Trial]:
    namespace = f"t-{abs(hash(tmp_path)):x}"[:20]
    cluster.kubectl("create", "namespace", namespace)
    yield Trial(tmp_path / "project", cluster, namespace, sdk)
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
