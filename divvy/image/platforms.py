"""The platforms that images are built for: what compiles for each, and which wheels fit it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DEFAULT_PLATFORMS = ("linux/amd64",)
_OPTION = "--platform="


@dataclass(frozen=True)
class Platform:
    """A platform by its OCI name; ``machine`` is what its kernel and compilers call it."""

    name: str
    machine: str

    @property
    def architecture(self) -> str:
        """Return what OCI and Kubernetes call the processors."""
        return self.name.partition("/")[2]

    @property
    def is_native(self) -> bool:
        """Return whether this machine runs its programs."""
        return self.machine == os.uname().machine

    @property
    def compiler(self) -> str:
        """Return the C compiler; one for another machine is called as Debian calls it."""
        return "cc" if self.is_native else f"{self.machine}-linux-gnu-gcc"

    @property
    def wheels(self) -> tuple[str, ...]:
        """Return pip's options for the base image's Python and C library, those of Debian 12."""
        names = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
        return (
            *("--only-binary=:all:", "--implementation=cp", "--python-version=3.11"),
            *(f"--platform={name}_{self.machine}" for name in names),
        )


LINUX_AMD64 = Platform("linux/amd64", "x86_64")
LINUX_ARM64 = Platform("linux/arm64", "aarch64")
PLATFORMS = {platform.name: platform for platform in (LINUX_AMD64, LINUX_ARM64)}


def platforms_of(names: Iterable[str]) -> tuple[Platform, ...]:
    """Return platforms by their names, in one order: so an image does not depend on a file's."""
    return tuple(PLATFORMS[name] for name in sorted(set(names)))


def platform_options(names: Sequence[str]) -> tuple[str, ...]:
    """Return what tells a command that builds an image its platforms."""
    return () if tuple(names) == DEFAULT_PLATFORMS else tuple(f"{_OPTION}{name}" for name in names)


def named_platforms(options: Sequence[str]) -> tuple[str, ...]:
    """Return the platforms that a command's options name."""
    names = (word.removeprefix(_OPTION) for word in options if word.startswith(_OPTION))
    return tuple(names) or DEFAULT_PLATFORMS
