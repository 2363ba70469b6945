"""A container with a share of the GPU: the limiter in front of the driver, as the agent puts it."""

from __future__ import annotations

from divvy.agent.decide.share import Compute, DeviceShare
from divvy.agent.inject.limiter import write_share
from hardware_kit.container import Container
from hardware_kit.injected import Injected
from hardware_kit.settings import KitSettings


def tenant(
    settings: KitSettings, injected: Injected, name: str, mib: int, weight: int = 0
) -> Container:
    """Make a container with ``mib`` of the GPU; with a ``weight``, its time is shared by weight."""
    compute = Compute.SHARE if weight else Compute.FREE
    page = f"{name}-0" if weight else "-"
    share = DeviceShare(settings.gpu, mib, compute, weight or 100, page)
    mounts = write_share(injected.state, [f"{settings.gpu}::{name}"], [share])
    made = Container(settings, settings.scratch / name, injected.limited, settings.gpu, mounts)
    made.make()
    return made
