"""The GPU models: what a card is and how MIG can partition it, one TOML file each, with sources.

docs/support.md lists by hand how far each has been tested.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from divvy.model.mig_names import profile_name

# A driver or an ECC setting moves the reported memory by a few percent, not more.
MEMORY_TOLERANCE = 0.08


class UnknownGpuModel(KeyError):
    """A GPU model that no data file describes."""

    def __init__(self, name: str, known: tuple[str, ...]):
        super().__init__(name)
        self.name = name
        self.known = known
        parts = _parts(name)
        self._nearest = [model for model in known if parts and parts <= _parts(model)]
        if not self._nearest:
            close = get_close_matches(_spelling(name), _spellings(), n=1, cutoff=0.4)
            self._nearest = [_spellings()[spelling].name for spelling in close]

    @property
    def remedy(self) -> str:
        """What may have been meant, and all that there are."""
        guess = f"did you mean {' or '.join(self._nearest)}? " if self._nearest else ""
        return f"{guess}known: {', '.join(self.known)}"

    def __str__(self) -> str:
        return f"unknown GPU model {self.name!r}; {self.remedy}"


def _parts(name: str) -> set[str]:
    """Return the words and numbers of a model's name."""
    return set(re.findall(r"[A-Z]+|\d+", name.upper()))


@dataclass(frozen=True)
class MigProfile:
    """One kind of GPU instance.

    ``profile_id`` is what nvidia-smi prints, ``nvml_profile`` the number of
    ``NVML_GPU_INSTANCE_PROFILE_*``. ``memory_slices`` is the size of a
    placement and ``starts`` the memory slices at which one may begin.
    ``attributes`` are what its name ends with: ``me`` with media extensions,
    ``me.all`` with all media engines of the card, ``-me`` with none, ``gfx`` with graphics.
    """

    name: str
    profile_id: int
    nvml_profile: int
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    memory_mib: int
    sms: int
    max_count: int
    attributes: tuple[str, ...]
    copy_engines: int
    decoders: int
    encoders: int
    jpegs: int
    ofas: int


@dataclass(frozen=True)
class MigGeometry:
    """How MIG cuts one model, and how its MIG mode behaves."""

    memory_slices: int
    compute_slices: int
    mode_needs_reset: bool
    mode_survives_reboot: bool
    profiles: tuple[MigProfile, ...]

    def profile(self, name: str) -> MigProfile | None:
        """Return the profile of that name, None if the model lacks it."""
        return next((profile for profile in self.profiles if profile.name == name), None)

    @property
    def whole(self) -> MigProfile | None:
        """Return the profile that takes the whole card, None if its data is not published."""
        return next(
            (profile for profile in self.profiles if profile.memory_slices == self.memory_slices),
            None,
        )


@dataclass(frozen=True)
class GpuModel:
    """One GPU model.

    ``name`` is the key in stack files, ``product`` the name NVML gives;
    ``products`` are all names under which the same silicon and MIG geometry is
    sold, ``pci_device_ids`` their device numbers; ``derived`` lists the numbers
    that were computed instead of read. ``mig_unpublished`` says which MIG profiles
    the card has whose figures are not published: they are not in ``mig``.
    ``node_architecture`` is the processors' of all nodes that have one, empty if it can be any.
    ``memory_of_system`` says that it has no memory of its own: ``memory_mib`` is the node's.
    """

    name: str
    product: str
    products: tuple[str, ...]
    spellings: tuple[str, ...]
    architecture: str
    compute_capability: tuple[int, int] | None
    memory_mib: int
    sms: int | None
    pci_device_id: int
    pci_device_ids: tuple[int, ...]
    pci_subsystem_id: int
    power_limit_w: int
    sm_clock_mhz: int
    memory_clock_mhz: int
    nvlinks: int
    mig: MigGeometry | None
    sources: tuple[str, ...]
    derived: tuple[str, ...]
    mig_unpublished: str = ""
    node_architecture: str = ""
    memory_of_system: bool = False

    @property
    def is_described(self) -> bool:
        """Return whether there is data for the model, and not just what a stack file says."""
        return bool(self.sources)


@cache
def gpu_models() -> Mapping[str, GpuModel]:
    """Return every known GPU model by its stack-file name, in the order of the names."""
    folder = files("divvy.model") / "gpu_models"
    models = [
        _model(tomllib.loads(file.read_text(encoding="utf-8")))
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    ]
    return MappingProxyType({model.name: model for model in sorted(models, key=lambda m: m.name)})


def gpu_model(name: str) -> GpuModel:
    """Return a model by its stack-file name or another common spelling of it."""
    model = _find(name)
    if model is None:
        raise UnknownGpuModel(name, tuple(gpu_models()))
    return model


def _find(name: str) -> GpuModel | None:
    return _spellings().get(_spelling(name))


@cache
def _spellings() -> Mapping[str, GpuModel]:
    """Return every model by each of its names: NVML's, those of feature labels, and our own."""
    return {
        _spelling(name): model
        for model in gpu_models().values()
        for name in (*model.spellings, *model.products, model.name)
    }


def _spelling(name: str) -> str:
    """Return a name as all its spellings are alike: without vendor, in lower case, with hyphens."""
    return "-".join(re.split(r"[\s_-]+", name.strip().casefold())).removeprefix("nvidia-")


@cache
def model_or_undescribed(name: str, memory_mib: int | None) -> GpuModel:
    """Return a model by its name; one without data has no more than its name and its memory.

    Raises UnknownGpuModel if it is unknown and no memory is given.
    """
    model = _find(name)
    if model is not None or memory_mib is None:
        return model or gpu_model(name)
    return GpuModel(
        name=name,
        product=name,
        products=(name,),
        spellings=(),
        architecture="unknown",
        compute_capability=None,
        memory_mib=memory_mib,
        sms=None,
        pci_device_id=0,
        pci_device_ids=(),
        pci_subsystem_id=0,
        power_limit_w=0,
        sm_clock_mhz=0,
        memory_clock_mhz=0,
        nvlinks=0,
        mig=None,
        sources=(),
        derived=(),
    )


@cache
def model_of_product(nvml_name: str, memory_mib: int) -> GpuModel | None:
    """Return the model that a driver's product name and memory mean, None if unknown."""
    for model in gpu_models().values():
        if is_memory_of(model, memory_mib) and nvml_name.strip() in model.products:
            return model
    return None


def is_memory_of(model: GpuModel, memory_mib: int) -> bool:
    """Return whether a driver may report this memory for a whole GPU of a model."""
    return abs(memory_mib - model.memory_mib) <= MEMORY_TOLERANCE * model.memory_mib


def _model(raw: dict[str, Any]) -> GpuModel:
    mig = raw.pop("mig", None)
    products = tuple(raw.pop("products"))
    return GpuModel(
        product=products[0],
        products=products,
        spellings=tuple(raw.pop("spellings")),
        compute_capability=tuple(raw.pop("compute_capability")),
        pci_device_ids=tuple(raw.pop("pci_device_ids")),
        sources=tuple(raw.pop("sources")),
        derived=tuple(raw.pop("derived")),
        mig=None if mig is None else _geometry(mig, raw["memory_mib"]),
        **raw,
    )


def _geometry(raw: dict[str, Any], total_memory_mib: int) -> MigGeometry:
    profiles = tuple(_profile(row, total_memory_mib) for row in raw.pop("profiles"))
    return MigGeometry(profiles=profiles, **raw)


def _profile(raw: dict[str, Any], total_memory_mib: int) -> MigProfile:
    attributes = tuple(raw.pop("attributes"))
    return MigProfile(
        name=profile_name(raw["compute_slices"], raw["memory_mib"], total_memory_mib, attributes),
        attributes=attributes,
        starts=tuple(raw.pop("starts")),
        **raw,
    )
