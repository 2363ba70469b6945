"""A container has the limits of its claim's share, or it does not start."""

from __future__ import annotations

import pytest

from tests.agent.inject.bundle import Container, administrator

LIMITS = "/var/lib/divvy/shares/mine/limits"
LIMITER = "/var/lib/divvy/limiter-1"
SHARE = {"destination": "/usr/lib/divvy/share/limits", "source": LIMITS}
CUDA = {"destination": "/usr/lib64/libcuda.so.1", "source": f"{LIMITER}/libcuda.so.1"}
PROC = {"destination": "/proc", "type": "proc"}
BEHIND = {
    "destination": "/usr/lib/divvy/driver/libcuda-driver.so.1",
    "source": "/usr/lib64/libcuda.so.550",
}
pytestmark = administrator


def started(container: Container, *mounts: dict[str, str]) -> bool:
    container.mounts = list(mounts)
    container.arguments = (f"--limits={LIMITS}", f"--limiter={LIMITER}")
    done = container.call(cache=False)
    assert done.returncode in (0, 1), done.stderr
    if done.returncode:
        assert "ask for them in two containers" in done.stderr
    return done.returncode == 0


def test_starts_a_container_with_a_share_alone(container: Container) -> None:
    assert started(container, PROC, SHARE, CUDA, BEHIND)


@pytest.mark.parametrize(
    "mounts",
    [
        (PROC, CUDA),
        ({**SHARE, "source": "/var/lib/divvy/shares/other/limits"}, CUDA),
        (SHARE, CUDA, {**CUDA, "source": "/usr/lib64/libcuda.so.550"}),
        (SHARE, {**CUDA, "source": "/var/lib/divvy/limiter-10/libcuda.so.1"}),
        (
            SHARE,
            {"destination": "/usr/lib/libnvidia-ml.so.1", "source": "/lib/libnvidia-ml.so.550"},
        ),
    ],
)
def test_refuses_to_start_what_would_bypass_the_limits(
    container: Container, mounts: tuple[dict[str, str], ...]
) -> None:
    assert not started(container, *mounts)


def test_checks_no_container_without_a_share(container: Container) -> None:
    container.mounts = [CUDA]
    assert container.call(cache=False).returncode == 0
