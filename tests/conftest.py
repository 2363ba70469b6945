"""Fixtures for every room: the running lab, and the order in which tests run."""

import fcntl
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from conformance.check import MARKS
from lab.fakes.scene import play
from tests.deployment import Deployment, is_deployed
from tests.installed import Installed, install_wheel
from tests.running_lab import RunningLab
from tests.thoroughness import is_left_out

# No test is timed: two noisy cores.
settings.register_profile("divvy", deadline=None)
settings.load_profile("divvy")

# Rooms whose unit tests need no compiler and no server: they fail within seconds.
_PURE = (
    "advise", "agent/claims", "agent/gpu", "agent/memory/test_memory_limit",
    "agent/memory/test_unaccounted_memory", "agent/plugin", "agent/test_containers",
    "claim_templates", "cli", "components", "conformance", "deploy", "docs", "init", "live",
    "model",
    "plan", "render", "stack", "test_dependencies", "test_verify_options", "test_words",
)  # fmt: skip
# Among them, what waits for sockets and loops.
_EDGES = (
    "agent/claims/test_preparation", "agent/claims/test_retirement",
    "agent/claims/test_slice_publisher", "agent/plugin/test_advertise",
    "agent/plugin/test_device_holders", "agent/plugin/test_device_plugins",
    "agent/plugin/test_message_size",
)  # fmt: skip
# Rooms that take half of the time of all tests with a mark: they run beside the other half.
_SECOND_LANE = {
    "pure": ("cli", "conformance"),
    "agent_process": ("agent/claims", "agent/mps", "agent/walk"),
    "shared_lab": ("conformance",),
    "lab": ("deploy", "examples", "render"),
}


def pytest_configure(config: pytest.Config) -> None:
    """Let tests import the conformance suite's, which have marks of their own."""
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run unit tests first: they find most mistakes within seconds.

    Then what needs a lab, and last what needs Divvy deployed on it: the deployment stays
    until the end, and would be in the way of a test that makes one of its own.

    Tests that share the running lab are marked before `-m` looks at them: `tests.lanes` runs
    all others beside them.
    """
    for item in items:
        if "lab" in getattr(item, "fixturenames", ()):
            item.add_marker("shared_lab")
        if is_left_out(item.nodeid):
            item.add_marker("thorough")
        markers = {marker.name for marker in item.iter_markers()}
        room = item.nodeid.removeprefix("tests/")
        is_pure = room.startswith(_PURE) and not room.startswith(_EDGES)
        if is_pure and not markers & {"lab", "agent_process", "thorough"}:
            item.add_marker("pure")
            markers.add("pure")
        mark = next((mark for mark in _SECOND_LANE if mark in markers), None)
        if mark and room.startswith(_SECOND_LANE[mark]):
            item.add_marker("second_lane")
    items.sort(
        key=lambda item: (
            item.get_closest_marker("lab") is not None,
            "deployed" in getattr(item, "fixturenames", ()),
        )
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test in a loop of its own."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    play(lambda: test(**arguments))
    return True


@pytest.fixture(scope="session")
def lab() -> Iterator[RunningLab]:
    """Give the lab of stacks/Pulumi.lab.yaml; leave it as it was found, up or down.

    A lab on which somebody has deployed Divvy, as `make demo` does, or a test session that was
    killed, is recreated: tests install what would already be there.

    Two sessions at once need two labs: DIVVY_LAB names the second one, and DIVVY_LAB_STACK is a
    stack file like the lab's whose `divvy:lab` has another network.
    """
    from divvy.stack.file import read_path
    from lab.cluster import lifecycle
    from lab.cluster.paths import KUBECONFIG, NAME, REPOSITORY, cache
    from lab.cluster.section import read_lab

    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{NAME}-tests.lock").open("w") as users:
        was_up = KUBECONFIG.exists()
        stack = os.environ.get("DIVVY_LAB_STACK", REPOSITORY / "stacks/Pulumi.lab.yaml")
        running = RunningLab(read_lab(read_path(Path(stack))), KUBECONFIG)
        if was_up and _is_last(users.fileno()):
            lifecycle.up(running.description, tell=lambda _line: None)
            if is_deployed(running):
                running.api.close()
                lifecycle.down()
                # The next lab has another authority, which a connection to this one does not trust.
                running = RunningLab(running.description, KUBECONFIG)
        fcntl.flock(users, fcntl.LOCK_SH)
        lifecycle.up(running.description, tell=lambda _line: None)
        yield running
        running.api.close()
        if not was_up and _is_last(users.fileno()):
            lifecycle.down()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build Divvy's wheel and install it in an empty virtual environment."""
    return install_wheel(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def deployed(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Deploy the lab's stack with the agent's real image; remove it in the end.

    One session at a time: two would change each other's profiles.
    """
    from lab.cluster.paths import NAME, cache

    with (cache() / f"{NAME}-deployment.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        deployment = Deployment(lab, tmp_path_factory.mktemp("deployed"))
        deployment.up()
        yield deployment
        # The namespaces of tests go a moment after them; destroy refuses while pods hold claims.
        lab.until(deployment.is_unclaimed)
        deployment.divvy("destroy", "--stack=lab", "--yes")


@pytest.fixture(scope="module")
def claims(deployed: Deployment) -> Iterator[Deployment]:
    """Deploy the lab's pools with claims, too; remove them after a file's last test."""
    with deployed.claims():
        deployed.up()
        yield deployed


def _is_last(descriptor: int) -> bool:
    """Return whether no other test session uses the lab."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
