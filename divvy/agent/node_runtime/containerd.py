"""containerd: what its configuration lacks for CDI, and the files that give it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w

CONF_D = "/etc/containerd/conf.d"
DROP_IN = f"{CONF_D}/90-divvy.toml"
SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# The table of the CRI runtime by configuration version (containerd's docs, cri/config.md).
_TABLES = {
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}


class CannotConfigure(Exception):
    """A configuration that is better left alone; the text says why and what to do."""


@dataclass(frozen=True)
class Files:
    """What to write: the root file (None: as it is) and the drop-in."""

    root: str | None
    drop_in: str


def missing(dump: str) -> tuple[str, ...]:
    """Return what an effective configuration (``containerd config dump``) lacks for CDI."""
    cri = _cri(tomllib.loads(dump))
    lacks = []
    if cri.get("enable_cdi") is not True:
        lacks.append("enable_cdi is off")
    folders = cri.get("cdi_spec_dirs") or []
    lacks += [f"cdi_spec_dirs lacks {name}" for name in SPEC_FOLDERS[1:] if name not in folders]
    return tuple(lacks)


def exposed(dump: str) -> str | None:
    """Say what hands every GPU to any pod that asks by environment variable, None if nothing."""
    cri = _cri(tomllib.loads(dump)).get("containerd") or {}
    name = cri.get("default_runtime_name")
    runtime = (cri.get("runtimes") or {}).get(name) or {}
    binary = str((runtime.get("options") or {}).get("BinaryName", ""))
    if "nvidia-container-runtime" not in binary:
        return None
    return (
        f"the NVIDIA runtime is the default ({name}): a pod without a GPU request that sets "
        "NVIDIA_VISIBLE_DEVICES=all sees every GPU, unless the toolkit's "
        "accept-nvidia-visible-devices-envvar-when-unprivileged is false"
    )


def files_for(root_text: str | None) -> Files:
    """Return the files that switch CDI on, given the root file (None: there is none).

    The drop-in has the root file's version and carries its whole CRI table: before
    containerd 2.1 an imported table replaces the root's instead of joining it.
    """
    root = {} if root_text is None else tomllib.loads(root_text)
    version = root.get("version", 4 if root_text is None else 1)
    if version not in _TABLES:
        raise CannotConfigure(
            f"configuration version {version} is not known here; 2, 3 and 4 are: migrate it with "
            "`containerd config migrate`, or set runtime.configure to false"
        )
    table = _TABLES[version]
    own = dict((root.get("plugins") or {}).get(table) or {})
    own.update({"enable_cdi": True, "cdi_spec_dirs": list(SPEC_FOLDERS)})
    drop_in = tomli_w.dumps({"version": version, "plugins": {table: own}})
    imports = list(root.get("imports") or [])
    pattern = f"{CONF_D}/*.toml"
    if pattern in imports:
        return Files(None, drop_in)
    return Files(_with_imports(root_text, version, [*imports, pattern]), drop_in)


def _with_imports(root_text: str | None, version: int, imports: list[str]) -> str:
    """Return the root file with its ``imports`` set, every other line as it was."""
    line = tomli_w.dumps({"imports": imports}, multiline_strings=False).replace("\n", " ").strip()
    if root_text is None:
        return f"version = {version}\n{line}\n"
    kept = _without_key(root_text, "imports")
    head, separator, rest = kept.partition("\n")
    if head.split("=")[0].strip() == "version":
        return f"{head}\n{line}{separator}{rest}"
    return f"{line}\n{kept}"


def _without_key(text: str, key: str) -> str:
    """Return a TOML text without one top-level array, which may span lines."""
    lines, skipping = [], False
    for line in text.splitlines(keepends=True):
        if not skipping and line.split("=")[0].strip() == key:
            skipping = True
        if skipping:
            skipping = "]" not in line
            continue
        lines.append(line)
    return "".join(lines)


def _cri(config: Mapping[str, Any]) -> Mapping[str, Any]:
    plugins = config.get("plugins") or {}
    for table in reversed(_TABLES.values()):
        if table in plugins:
            found: Mapping[str, Any] = plugins[table]
            return found
    return {}
