"""The description of a simulated node's GPUs, as the simulated driver's daemon reads it."""

from collections.abc import Sequence
from itertools import cycle, islice
from uuid import NAMESPACE_DNS, uuid5

from divvy.model.gpu_models import GpuModel, MigProfile

# Bus numbers as on an eight-GPU board; further GPUs follow above them and the switches, which
# simulator/nvml/topology.c has at 0xC0 to 0xC5.
_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
# More GPUs than this are joined by switches instead of links of their own.
_DIRECTLY_LINKED = 4


def gpu_uuid(node: str, index: int) -> str:
    """Return the UUID of a node's GPU: always the same for the same name and index."""
    return f"GPU-{uuid5(NAMESPACE_DNS, f'gpu-{index}.{node}.divvy')}"


def driver_description(node: str, driver_version: str, gpus: Sequence[GpuModel]) -> str:
    """Return the daemon's flat file for a node: one statement a line, `key value …`."""
    lines = [f"node {node}", f"driver {driver_version}"]
    for index, model in enumerate(gpus):
        lines += ["", "gpu", *(f"  {line}" for line in _gpu(node, index, len(gpus), model))]
    return "\n".join(lines) + "\n"


def _gpu(node: str, index: int, count: int, model: GpuModel) -> list[str]:
    assert model.compute_capability is not None
    bus = _BUSES[index] if index < len(_BUSES) else 0xC8 + 4 * (index - len(_BUSES))
    lines = [
        f"product {model.product}",
        f"uuid {gpu_uuid(node, index)}",
        f"serial {1_320_000_000_000 + uuid5(NAMESPACE_DNS, f'{node}/{index}').int % 10**9}",
        f"minor {index}",
        f"bus 00000000:{bus:02X}:00.0",
        f"numa {index * 2 // count if count > 1 else 0}",
        f"architecture {model.architecture}",
        f"compute-capability {model.compute_capability[0]}.{model.compute_capability[1]}",
        f"memory-mib {model.memory_mib}",
        f"sms {model.sms}",
        f"sm-clock-mhz {model.sm_clock_mhz}",
        f"memory-clock-mhz {model.memory_clock_mhz}",
        f"power-limit-mw {model.power_limit_w * 1000}",
        f"pci-device-id {model.pci_device_id:#010x}",
        f"pci-subsystem-id {model.pci_subsystem_id:#010x}",
    ]
    if model.memory_of_system:
        lines.append("memory-of-system 1")
    if model.nvlinks and count > 1:
        lines.append(f"links {','.join(_links(index, count, model.nvlinks))}")
    if model.mig is not None:
        lines += [
            f"compute-slices {model.mig.compute_slices}",
            f"memory-slices {model.mig.memory_slices}",
            f"mig-mode-needs-reset {int(model.mig.mode_needs_reset)}",
            f"mig-mode-survives {int(model.mig.mode_survives_reboot)}",
            *(_profile(profile) for profile in model.mig.profiles),
        ]
    return lines


def _links(index: int, count: int, nvlinks: int) -> list[str]:
    if count > _DIRECTLY_LINKED:
        return ["switch"] * nvlinks
    # The same number to each other GPU, so that both ends of a pair agree; the rest is unused.
    peers = [str(peer) for peer in range(count) if peer != index]
    used = nvlinks // len(peers) * len(peers)
    return [*islice(cycle(peers), used), *["-"] * (nvlinks - used)]


def _profile(profile: MigProfile) -> str:
    numbers = (
        profile.memory_mib,
        profile.sms,
        profile.max_count,
        profile.copy_engines,
        profile.decoders,
        profile.encoders,
        profile.jpegs,
        profile.ofas,
        int(any(name.startswith("me") for name in profile.attributes)),
    )
    starts = ",".join(map(str, profile.starts))
    return (
        f"mig-profile {profile.name} {profile.profile_id} {profile.nvml_profile} "
        f"{profile.compute_slices} {profile.memory_slices} {starts} {' '.join(map(str, numbers))}"
    )
