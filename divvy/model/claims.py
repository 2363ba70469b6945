"""Profiles served by claims: GPUs whole, by size or as MIG devices, when a pod asks for them."""

import re
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator

from divvy.model.quantities import memory_mib
from divvy.model.stack_part import MemorySize, StackPart, Text

# A limiter looks at so many pages of a GPU: MAX_PEERS of plugin_image/limiter/cuda/peers.h.
MAX_SHARES = 64
# A device is named gpu-<UUID>-share-<tenant>, and its name ends at 63 characters.
MAX_TENANT_CHARACTERS = 16
MAX_TENANTS = 8
_TENANT = re.compile(rf"[a-z0-9]([a-z0-9-]{{0,{MAX_TENANT_CHARACTERS - 2}}}[a-z0-9])?")
_ALL = "all"


class ShareMemory(StackPart):
    """How the memory of a GPU is divided among shares."""

    step: MemorySize = "1Mi"
    """Sizes are rounded up to a multiple of this, of which a GPU holds at least two."""
    oversubscribe: Annotated[float, Field(strict=True, ge=1, le=16, allow_inf_nan=False)] = 1.0
    """Allow shares to add up to this multiple of the GPU's memory; the excess is in host memory."""

    def of_gpu(self, memory_mib: int) -> int:
        """Return the MiB that the shares of a GPU may add up to."""
        return int(memory_mib * self.oversubscribe)

    @property
    def factor(self) -> Fraction:
        """Return how many times the GPU's memory the shares have: as written, not as a float."""
        return Fraction(str(self.oversubscribe))

    @field_validator("step")
    @classmethod
    def _size(cls, value: str) -> str:
        if value == "auto":
            raise ValueError("is auto; a size such as 1Mi or 256Mi is expected")
        memory_mib(value)
        return value

    @property
    def step_mib(self) -> int:
        """Return the step in MiB."""
        return memory_mib(self.step)


class Shares(StackPart):
    """Parts of a GPU by size: memory, and compute time in per cent."""

    memory: ShareMemory = ShareMemory()
    """How memory is divided."""
    compute: Literal["share", "cap"] = "share"
    """A share's part of the GPU's time: where others want theirs, or cap: in any case."""
    max: Annotated[int, Field(strict=True, ge=1, le=MAX_SHARES)] = 16
    """Shares of one GPU at once, 64 at most."""
    default: Annotated[
        str,
        Field(strict=True),
        WithJsonSchema({"type": "string", "pattern": r"^(all|\d+(Mi|Gi|Ti))$"}),
    ] = _ALL
    """What a request without a size gets: all of the GPU, or a size."""
    placement: Literal["spread", "pack"] = "spread"
    """spread shares over the GPUs of a node, or pack them onto few."""

    @field_validator("default")
    @classmethod
    def _default_size(cls, value: str) -> str:
        if value != _ALL:
            memory_mib(value, _ALL)
        return value

    @property
    def default_mib(self) -> int | None:
        """Return the default size in MiB, None for all of the GPU."""
        return None if self.default == _ALL else memory_mib(self.default)


class Claims(StackPart):
    """What pods can claim of a GPU; empty: the whole GPU."""

    shares: Shares | None = None
    """Shares by size."""
    mig: tuple[Text, ...] = ()
    """MIG profiles that are made when a pod asks and removed when it ends."""
    tenants: tuple[Text, ...] = Field(default=(), max_length=MAX_TENANTS)
    """Values of the namespace label divvy.gpu/tenant whose shares are never on one GPU."""

    @field_validator("mig", "tenants")
    @classmethod
    def _distinct(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise ValueError(f"names {', '.join(twice)} twice; name each of them once")
        return values

    @field_validator("tenants")
    @classmethod
    def _names(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if not _TENANT.fullmatch(value):
                raise ValueError(
                    f"has {value!r}; 1 to {MAX_TENANT_CHARACTERS} lowercase letters, digits and "
                    "'-', with a letter or digit at both ends, are expected"
                )
        return values

    @property
    def counted(self) -> bool:
        """Return whether the modes of a GPU exclude each other, which takes shared counters."""
        sized = self.shares is not None and self.shares.default_mib is not None
        return bool(self.mig or self.tenants or sized)
