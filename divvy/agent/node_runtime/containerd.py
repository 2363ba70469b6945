"""containerd: what its configuration lacks for CDI, and the files that give it. Pure."""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import tomli_w

from divvy.agent.node_runtime.toml_imports import with_import

UNIT = "containerd.service"
SOCKET = "/run/containerd/containerd.sock"
ROOT_FILE = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/90-divvy.toml"
# Ours alone, or nothing: what else lies in the folder is not imported because of us.
_IMPORT = "/etc/containerd/conf.d/90-divvy*.toml"
SPEC_FOLDERS = ("/etc/cdi", "/var/run/cdi")
# The table of the CRI runtime by configuration version (containerd's docs, cri/config.md).
_TABLES = {
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}
_OURS = ("enable_cdi", "cdi_spec_dirs")
_OWN_PLACES = {"-c": ROOT_FILE, "--config": ROOT_FILE, "-a": SOCKET, "--address": SOCKET}


class CannotConfigure(Exception):
    """A configuration that is better left alone; the text says why and what to do."""


@dataclass(frozen=True)
class Files:
    """What to write: the root file (None: as it is) and the drop-in.

    ``trial`` is a root file that imports the same, and the drop-in last, from another place.
    """

    root: str | None
    drop_in: str
    trial: str


def started_elsewhere(command: Sequence[str]) -> str | None:
    """Return which file or socket of its own a containerd was started with, None if with none."""
    words = iter(command[1:])
    for word in words:
        flag, separator, value = word.partition("=")
        expected = _OWN_PLACES.get(flag)
        if expected is not None:
            value = value if separator else next(words, "")
            if value != expected:
                return f"{flag} {value}"
    return None


def missing(dump: str) -> tuple[str, ...]:
    """Return what an effective configuration (``containerd config dump``) lacks for CDI."""
    cri = _cri(_parsed(dump, "containerd's effective configuration"))
    switched_on = cri.get("enable_cdi") is True or _is_always_on(cri)
    lacks = [] if switched_on else ["enable_cdi is off"]
    folders = _texts(cri.get("cdi_spec_dirs"))
    lacks += [f"cdi_spec_dirs lacks {name}" for name in SPEC_FOLDERS[1:] if name not in folders]
    return tuple(lacks)


def exposed(dump: str) -> str | None:
    """Return what hands every GPU to any pod that asks by environment variable, None if nothing."""
    cri = _cri(_parsed(dump, "containerd's effective configuration"))
    name = table_at(cri, "containerd").get("default_runtime_name")
    options = table_at(cri, "containerd", "runtimes", str(name), "options")
    if "nvidia-container-runtime" not in str(options.get("BinaryName", "")):
        return None
    return (
        f"the NVIDIA runtime is the default ({name}): a pod without a GPU request that sets "
        "NVIDIA_VISIBLE_DEVICES=all sees every GPU, unless the toolkit's "
        "accept-nvidia-visible-devices-envvar-when-unprivileged is false"
    )


def candidates(root_text: str | None, dump: str, trial_drop_in: str) -> tuple[Files, ...]:
    """Return the files that could switch CDI on, the smallest first.

    ``root_text`` is None without a root file. The first drop-in has our keys alone.
    The second carries the whole effective CRI table: before containerd 2.1 an imported table
    replaces what was read before it. Which of the two changes nothing else, a trial shows.
    """
    effective = _parsed(dump, "containerd's effective configuration")
    newest = effective.get("version")
    root = {"version": newest} if root_text is None else _parsed(root_text, ROOT_FILE)
    version = root.get("version", 1)
    known = list(_TABLES)
    if version not in known or newest not in known:
        raise CannotConfigure(
            f"configuration version {version} is not known here; 2, 3 and 4 are: migrate it with "
            "`containerd config migrate`, or set runtime.configure to false"
        )
    imports = root.get("imports", [])
    if not isinstance(imports, list) or not all(isinstance(path, str) for path in imports):
        raise CannotConfigure(f"{ROOT_FILE}: imports is {imports!r}; a list of paths is expected")
    changed = None
    if not any(_imports_drop_in(path) for path in imports):
        changed = with_import(f"version = {version}\n" if root_text is None else root_text, _IMPORT)
        if _or_none(changed) != {**root, "imports": [*imports, _IMPORT]}:
            raise CannotConfigure(
                f"{ROOT_FILE} is written in a way that cannot be added to without loss: put "
                f'"{_IMPORT}" into its imports by hand, or set runtime.configure to false'
            )
    cri = _cri(effective)
    folders = _texts(cri.get("cdi_spec_dirs"))
    folders += [name for name in SPEC_FOLDERS if name not in folders]
    ours: dict[str, Any] = {} if _is_always_on(cri) else {"enable_cdi": True}
    ours["cdi_spec_dirs"] = folders
    trial = tomli_w.dumps({**root, "imports": [*map(_absolute, imports), trial_drop_in]})
    return tuple(
        Files(changed, tomli_w.dumps({"version": number, "plugins": {table: content}}), trial)
        for number, table, content in (
            (version, _TABLES[version], ours),
            (newest, _TABLES[newest], {**cri, **ours}),
        )
    )


def other_differences(before: str, after: str) -> tuple[str, ...]:
    """Return the keys, but ours, in which two effective configurations differ."""
    old, new = (_parsed(dump, "containerd's effective configuration") for dump in (before, after))
    spec_folders = _texts(_cri(old).get("cdi_spec_dirs"))
    lost = [name for name in spec_folders if name not in _texts(_cri(new).get("cdi_spec_dirs"))]
    for config in (old, new):
        config.pop("imports", None)
        for key in _OURS:
            _cri(config).pop(key, None)
    flat_old, flat_new = dict(_flat(old)), dict(_flat(new))
    different = [
        ".".join(path)
        for path in sorted(flat_old.keys() | flat_new.keys())
        if (path in flat_old, flat_old.get(path)) != (path in flat_new, flat_new.get(path))
    ]
    return (*different, *(f"cdi_spec_dirs ({name})" for name in lost))


def imports_of(root_text: str) -> list[str]:
    """Return the patterns of the files that a root file imports."""
    return _texts(_parsed(root_text, ROOT_FILE).get("imports"))


def _imports_drop_in(entry: str) -> bool:
    pattern = _absolute(entry)
    # Only with a star it is a pattern to containerd.
    return pattern == DROP_IN or ("*" in pattern and PurePosixPath(DROP_IN).match(pattern))


def _absolute(entry: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(ROOT_FILE), entry))


def table_at(value: object, *keys: str) -> dict[str, Any]:
    """Return the table below these keys, an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}


def _parsed(text: str, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CannotConfigure(f"{what} cannot be read: {error}") from error


def _or_none(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _cri(config: Mapping[str, Any]) -> dict[str, Any]:
    plugins = table_at(config, "plugins")
    for table in reversed(_TABLES.values()):
        if table in plugins:
            return table_at(plugins, table)
    return {}


def _is_always_on(cri: Mapping[str, Any]) -> bool:
    """Return whether CDI cannot be switched off: since containerd 2.4, whose dump has no switch."""
    return "enable_cdi" not in cri and "cdi_spec_dirs" in cri


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _flat(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, (*path, key))
    else:
        yield path, value
