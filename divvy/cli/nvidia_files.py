"""Configurations of NVIDIA's tools in files: alone, in ConfigMaps, in values of Helm charts.

What is a configuration is recognised by its own keys. Everything else in a file is named and
skipped, and stops nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divvy.cli.errors import fail
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, checked, read_operator
from divvy.model.problems import printable, value_text
from divvy.stack.errors import StackError
from divvy.stack.yaml_documents import yaml_documents
from divvy.stack.yaml_text import read_text

_PLUGIN = {"version", "flags", "sharing", "resources", "imex"}
_OPERATOR = {"mig", "devicePlugin", "migManager"}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys of both charts' values, and of a ClusterPolicy, that say nothing about partitions or shares.
_OTHER_VALUES = _names(
    "affinity allowDefaultNamespace ccManager cdi compatWithCPUManager daemonsets dcgm "
    "dcgmExporter deviceDiscoveryStrategy deviceIDStrategy deviceListStrategy driver "
    "extraObjects fabricManager failOnInitError fullnameOverride gdrcopy gdrcopyEnabled gds "
    "gdsEnabled gfd global hostPaths image imagePullSecrets imex kataManager legacyDaemonsetAPI "
    "mofedEnabled mps nameOverride namespaceOverride nfd node-feature-discovery nodeSelector "
    "nodeStatusExporter nvidiaDriverRoot operator platform podAnnotations podSecurityContext "
    "priorityClassName psa psp resources runtimeClassName sandboxDevicePlugin "
    "sandboxWorkloads securityContext selectorLabelsOverride serviceAccount tolerations "
    "toolkit updateStrategy validator vfioManager vgpuDeviceManager vgpuManager"
)
_OPERAND = _names(
    "args config enabled env gpuClientsConfig hostNetwork image imagePullPolicy "
    "imagePullSecrets mps repository resources version"
)
_CONFIG = _names("create data default fallbackStrategies map name")
# Deeper than charts of charts are.
_MAX_CHARTS = 5


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


def _document(read: NvidiaFiles, where: str, name: str, value: Any, charts: int = 0) -> None:
    """Add what one document, or one value in it, is."""
    keys: set[object] = set(value) if isinstance(value, dict) else set()
    kind = value.get("kind") if isinstance(value, dict) else None
    if "mig-configs" in keys:
        read.mig_parted.append((where, name, value))
    elif isinstance(kind, str):
        _object(read, where, kind, value, charts)
    elif keys & {"flags", "sharing"} or ("version" in keys and keys <= _PLUGIN):
        read.plugin.append((where, name, value))
    elif isinstance(value, dict) and _is_values(value):
        _values(read, where, value, charts)
    elif keys and all(isinstance(text, str) for text in value.values()):
        _data(read, where, value)
    elif isinstance(value, dict) and (below := _charts(value)) and charts < _MAX_CHARTS:
        for key, chart in below.items():
            _document(read, f"{where}: {printable(key)}", name, chart, charts + 1)
        others = [printable(key) for key in value if key not in below]
        read.skipped += [f"{where}: {', '.join(others)}: is no configuration"] if others else []
    else:
        expected = "version, flags, sharing or mig-configs is expected"
        read.skipped.append(f"{where}: is no configuration; {expected}")


def _object(
    read: NvidiaFiles, where: str, kind: str, value: Mapping[str, Any], charts: int
) -> None:
    """Add what an object of Kubernetes holds."""
    metadata = value.get("metadata")
    named = metadata.get("name") if isinstance(metadata, dict) else None
    place = f"{where}: {printable(kind)}{f' {printable(named)}' if named else ''}"
    items = value.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            if charts < _MAX_CHARTS:
                _document(read, f"{where}: items[{number}]", Path(where).stem, item, charts + 1)
        return
    spec = value.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    if kind == "ConfigMap":
        read.config_maps.add(named if isinstance(named, str) else None)
        _data(read, place, value.get("data"))
    elif kind == "ClusterPolicy":
        _values(read, place, spec, charts)
    elif kind == "HelmRelease" and isinstance(spec.get("values"), dict):
        _document(read, f"{place}: spec.values", Path(where).stem, spec["values"], charts + 1)
    elif kind == "Kustomization" and value.get("helmCharts"):
        for chart in value["helmCharts"] if isinstance(value["helmCharts"], list) else ():
            inline = chart.get("valuesInline") if isinstance(chart, dict) else None
            if isinstance(inline, dict):
                _document(read, f"{place}: helmCharts", Path(where).stem, inline, charts + 1)
    elif kind == "Application" and isinstance(spec.get("source"), dict):
        helm = spec["source"].get("helm")
        helm = helm if isinstance(helm, dict) else {}
        if isinstance(helm.get("valuesObject"), dict):
            _document(read, f"{place}: valuesObject", Path(where).stem, helm["valuesObject"], 1)
        elif isinstance(helm.get("values"), str):
            _text(read, f"{place}: values", Path(where).stem, helm["values"])
        else:
            read.skipped.append(f"{place}: has no values in it")
    else:
        read.skipped.append(f"{place}: holds no configuration")


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
        return
    document = documents[0] if documents else None
    if document is None:
        read.skipped.append(f"{where} is empty")
    else:
        _document(read, where, name, document, 1)


def _is_values(value: Mapping[str, Any]) -> bool:
    """Return whether a mapping is the values of the operator's chart, or of the plugin's."""
    config = value.get("config")
    return any(isinstance(value.get(key), dict) for key in _OPERATOR) or (
        isinstance(config, dict) and bool({"map", "default", "name"} & config.keys())
    )


def _charts(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of charts in those of another one."""
    return {
        key: chart
        for key, chart in value.items()
        if isinstance(chart, dict) and (_is_values(chart) or _charts_below(chart))
    }


def _charts_below(value: Mapping[str, Any], depth: int = 1) -> bool:
    inner = [chart for chart in value.values() if isinstance(chart, dict)]
    return any(map(_is_values, inner)) or (
        depth < _MAX_CHARTS and any(_charts_below(chart, depth + 1) for chart in inner)
    )


def _values(read: NvidiaFiles, where: str, value: Mapping[str, Any], charts: int) -> None:
    """Add what the values of a chart say, and name what is not read of them."""
    mig = value.get("mig")
    if mig is not None and not isinstance(mig, dict):
        fail(f"{where}: mig is {value_text(mig)}; a mapping is expected")
    read.strategy = (mig or {}).get("strategy", read.strategy)
    _name(read, f"{where}: mig", mig, {"strategy"})
    for operand in ("devicePlugin", "migManager"):
        _name(read, f"{where}: {operand}", value.get(operand), _OPERAND)
        holder = value.get(operand)
        if isinstance(holder, dict) and "config" in holder:
            _config(read, f"{where}: {operand}.config", holder["config"])
    if "config" in value:
        _config(read, f"{where}: config", value["config"])
    rest = {key: item for key, item in value.items() if key not in _OPERATOR | {"config"}}
    for key, chart in _charts(rest).items():
        if charts < _MAX_CHARTS:
            _document(read, f"{where}: {printable(key)}", "", rest.pop(key) or chart, charts + 1)
    _name(read, where, rest, _OTHER_VALUES)
    for key in rest.keys() & _OTHER_VALUES:
        _name(read, f"{where}: {key}", _inner(rest[key]), frozenset())


def _inner(value: object) -> dict[str, Any]:
    """Return what, at any depth, has a key that means a configuration elsewhere."""
    inner: dict[str, Any] = {}
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in {"config", "data", "map", "mig", "migStrategy", "strategy"} and item:
            inner[key] = item
        inner |= {f"{key}.{below}": found for below, found in _inner(item).items()}
    return inner


def _name(read: NvidiaFiles, where: str, value: object, known: Collection[str]) -> None:
    """Name the keys that nothing is known of."""
    others = (
        [printable(key) for key in value if key not in known] if isinstance(value, dict) else []
    )
    if others:
        read.skipped.append(f"{where}: {', '.join(others)}: not read")


def _config(read: NvidiaFiles, place: str, config: object) -> None:
    if not isinstance(config, dict):
        if config is not None:
            read.skipped.append(f"{place} is {value_text(config)}; a mapping is expected")
        return
    _name(read, place, config, _CONFIG)
    for key in ("data", "map"):
        if config.get(key):
            _data(read, place, config[key])
    if isinstance(config.get("name"), str) and not (config.get("data") or config.get("map")):
        read.referred[place] = config["name"]
