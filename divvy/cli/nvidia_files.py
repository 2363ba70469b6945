"""Configurations of NVIDIA's tools in files: alone, in ConfigMaps, in values of Helm charts.

What is a configuration is recognised by its own keys. Everything else in a file is named and
skipped, and stops nothing.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divvy.errors import fail
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, checked, read_operator
from divvy.model.problems import printable, value_text
from divvy.stack.errors import StackError
from divvy.stack.yaml_documents import yaml_documents
from divvy.stack.yaml_text import read_text

_PLUGIN = {"version", "flags", "sharing", "resources", "imex"}
_CONFIG_MAP = {"apiVersion", "kind", "metadata", "data", "binaryData", "immutable"}
_CONFIG = {"create", "data", "default", "fallbackStrategies", "map", "name"}
_STRATEGIES = ("none", "single", "mixed")
# What the text of a configuration contains, in a place where any text may be.
_TEXT = re.compile(r"""(mig-configs|sharing|^version|"version")['"]?\s*:""", re.M)
# Deeper than charts of charts of manifests are.
_MAX_DEPTH = 30


@dataclass
class NvidiaFiles:
    """What files hold: configurations of the plugin and of mig-parted, by name, and what else.

    ``strategy`` is the operator's mig.strategy, None if no file has it. ``refused`` are
    configurations that NVIDIA's tools would refuse, ``skipped`` what is none. ``referred`` are
    ConfigMaps by the place that names them, ``config_maps`` those that the files have.
    """

    plugin: list[tuple[str, str, Any]] = field(default_factory=list)
    mig_parted: list[tuple[str, str, Any]] = field(default_factory=list)
    strategy: Any = None
    refused: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    referred: dict[str, object] = field(default_factory=dict)
    config_maps: set[object] = field(default_factory=set)

    def size(self) -> int:
        """Return how much there is of anything."""
        named = len(self.refused) + len(self.skipped) + len(self.referred)
        return len(self.plugin) + len(self.mig_parted) + named + (self.strategy is not None)


def nvidia_files(files: Iterable[Path]) -> NvidiaFiles:
    """Read what the files hold."""
    read = NvidiaFiles()
    for file in files:
        for document in yaml_documents(str(file), read_text(file)):
            if document is not None:
                _document(read, str(file), file.stem, document)
    read.skipped += [
        f"{place} is in the ConfigMap {printable(name)}; import that, too"
        for place, name in read.referred.items()
        if name not in read.config_maps
    ]
    return read


def operator_profiles(files: Sequence[Path]) -> ImportResult:
    """Read what the GPU Operator is given: both ConfigMaps, and its values; in any order."""
    read = nvidia_files(files)
    plugin: dict[str, Any] = {}
    for source, name, document in read.plugin:
        if plugin.setdefault(name, document) != document:
            fail(f"{source}: there is a second configuration {name}")
    if len(read.mig_parted) > 1:
        fail("there are several files with mig-configs; the operator reads one")
    mig_parted = read.mig_parted[0][2] if read.mig_parted else None
    refused = list(read.refused)
    try:
        imported = read_operator({}, mig_parted, read.strategy or "mixed")
    except InvalidValue as invalid:
        fail(str(invalid))
    for name in list(plugin):
        try:
            read_operator({name: plugin[name]}, None)
        except InvalidValue as invalid:
            refused += (f"{name}: {problem}" for problem in invalid.problems)
            del plugin[name]
    imported = checked(read_operator(plugin, mig_parted, read.strategy or "mixed"))
    return with_rest(imported, refused, read.skipped)


def with_rest(
    imported: ImportResult, refused: Sequence[str], skipped: Sequence[str]
) -> ImportResult:
    """Add what was not imported; fails if that is all there is."""
    whole = ImportResult(
        imported.profiles,
        (*refused, *imported.left_out, *skipped),
        imported.refused or bool(refused),
    )
    if not whole.profiles:
        fail("\n".join(whole.left_out) or "the files hold no configuration of NVIDIA's tools")
    return whole


def _document(read: NvidiaFiles, where: str, name: str, value: Any) -> None:
    """Add what one document is, or the text of one."""
    keys: set[object] = set(value) if isinstance(value, dict) else set()
    if "mig-configs" in keys:
        read.mig_parted.append((where, name, value))
    elif "kind" not in keys and (
        keys & {"flags", "sharing"} or ("version" in keys and keys <= _PLUGIN)
    ):
        read.plugin.append((where, name, value))
    elif isinstance(value, dict):
        _object(read, where, name, value)
    else:
        read.skipped.append(f"{where}: is {_NONE}")


_NONE = "no configuration; version, flags, sharing or mig-configs is expected"


def _object(read: NvidiaFiles, where: str, name: str, value: dict[str, Any]) -> None:
    """Add what an object of Kubernetes holds, or the values of a chart."""
    metadata = value.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else None
    if isinstance(value.get("kind"), str):
        where += f": {printable(value['kind'])}{f' {printable(named)}' if named else ''}"
    items = value.get("items")
    if isinstance(items, list):
        for number, item in enumerate(items):
            _document(read, f"{where}: items[{number}]", name, item)
        value = {key: item for key, item in value.items() if key != "items"}
        if "kind" in value:
            return
    before = read.size()
    if value.get("kind") == "ConfigMap":
        read.config_maps.add(named if isinstance(named, str) else None)
        _data(read, where, value.get("data"))
        _name(read, where, value, _CONFIG_MAP)
        value = {key: item for key, item in value.items() if key != "data"}
    inner = {key: item for key, item in value.items() if isinstance(item, dict | list)}
    texts = {key: item for key, item in value.items() if key not in inner}
    if "kind" not in value and any(_TEXT.search(str(text)) for text in texts.values()):
        # The data of a ConfigMap alone, as `kubectl get -o jsonpath={.data}` prints it.
        _data(read, where, texts)
        value = inner
    _walk(read, where, value, 0)
    if read.size() == before:
        read.skipped.append(f"{where}: is {_NONE}")


def _walk(read: NvidiaFiles, where: str, value: object, depth: int) -> None:
    """Add the configurations in a value, at any depth: charts are in charts, and in releases."""
    if depth > _MAX_DEPTH:
        read.skipped.append(f"{where}: is nested too deeply")
        return
    entries = value if isinstance(value, dict) else {}
    if isinstance(value, list):
        entries = dict(enumerate(value))
    for key, item in entries.items():
        place = f"{where}[{key}]" if isinstance(value, list) else f"{where}: {printable(key)}"
        name = where.rpartition(": ")[2] if isinstance(value, list) else str(key)
        if key == "annotations":
            continue
        if key == "mig" and isinstance(item, dict):
            _name(read, place, item, {"strategy"})
            if "strategy" in item:
                read.strategy = item["strategy"]
        elif key == "mig" and item is not None:
            read.skipped.append(f"{place} is {value_text(item)}; a mapping is expected")
        elif key == "config" and isinstance(item, dict) and item.keys() & {"data", "map", "name"}:
            _config(read, place, item)
        elif isinstance(item, str):
            if _TEXT.search(item):
                _text(read, place, name, item)
            elif key in ("strategy", "migStrategy") and item in _STRATEGIES:
                read.skipped.append(f"{place} is not read: mig.strategy, or a MIG layout, has it")
        elif isinstance(item, dict) and (
            "mig-configs" in item or ("sharing" in item and item.keys() <= _PLUGIN)
        ):
            _document(read, place, name, item)
        else:
            _walk(read, place, item, depth + 1)


def _config(read: NvidiaFiles, where: str, config: dict[str, Any]) -> None:
    """Add what a chart's values say of a ConfigMap: its data, or its name alone."""
    inline = {key: config[key] for key in ("data", "map") if config.get(key)}
    for data in inline.values():
        _data(read, where, data)
    if isinstance(config.get("name"), str) and not inline:
        read.referred[where] = config["name"]
    rest = {key: item for key, item in config.items() if key not in _CONFIG}
    _name(read, where, rest, ())
    _walk(read, where, rest, 0)


def _data(read: NvidiaFiles, where: str, data: object) -> None:
    """Add the configurations that a ConfigMap has, one by key."""
    if not isinstance(data, dict) or not data:
        read.skipped.append(f"{where}: data is {value_text(data)}; texts by name are expected")
        return
    for key, text in data.items():
        place = f"{where}: data.{printable(key)}"
        if isinstance(text, str):
            _text(read, place, str(key), text)
        else:
            read.skipped.append(f"{place} is {value_text(text)}; text is expected")


def _text(read: NvidiaFiles, where: str, name: str, text: str) -> None:
    try:
        documents = yaml_documents(where, text)
    except StackError as error:
        read.skipped.append(str(error))
        return
    if len(documents) > 1:
        read.refused.append(f"{where} has several YAML documents; one is expected")
    elif not documents or documents[0] is None:
        read.skipped.append(f"{where} is empty")
    else:
        _document(read, where, name, documents[0])


def _name(read: NvidiaFiles, where: str, value: Mapping[str, Any], known: Collection[str]) -> None:
    """Name the keys that nothing is known of."""
    others = [printable(key) for key in value if key not in known]
    if others:
        read.skipped.append(f"{where}: {', '.join(others)}: not read")
