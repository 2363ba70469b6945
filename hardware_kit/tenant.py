"""A container with a share of the GPU: the limiter in front of the driver, as the agent puts it."""

from __future__ import annotations

from divvy.agent.inject.limiter import write_share
from divvy.model.sharing import Compute, DeviceShare, Sharing
from hardware_kit.container import Container
from hardware_kit.injected import Injected
from hardware_kit.settings import KitSettings


def tenant(
    settings: KitSettings, injected: Injected, name: str, mib: int, weight: int = 0
) -> Container:
    """Make a container with ``mib`` of the GPU; with a ``weight``, its time is shared by weight."""
    compute: Compute | None = "share" if weight else None
    page = f"{name}-0" if weight else "-"
    sharing = Sharing(memory_mib=mib, action="prevent", compute=compute, weight=weight or 100)
    share = DeviceShare(settings.gpu, sharing, page)
    mounts = write_share(injected.state, [f"{settings.gpu}::{name}"], [share])
    made = Container(settings, settings.scratch / name, injected.limited, settings.gpu, mounts)
    made.make()
    return made
