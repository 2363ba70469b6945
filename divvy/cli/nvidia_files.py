"""Configuration files of NVIDIA's tools, as files or in manifests of ConfigMaps."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from divvy.cli.errors import fail
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, read_operator
from divvy.model.problems import value_text
from divvy.stack.yaml_documents import yaml_documents
from divvy.stack.yaml_text import read_text


def operator_profiles(files: Sequence[Path]) -> ImportResult:
    """Read what the GPU Operator is given: both ConfigMaps, and its values; in any order."""
    plugin: dict[str, Any] = {}
    mig_parted: list[Any] = []
    strategy = "mixed"
    for file in files:
        for name, document in documents(file):
            keys = document.keys() if isinstance(document, dict) else ()
            if "mig-configs" in keys:
                mig_parted.append(document)
            elif set(keys) & {"mig", "devicePlugin", "migManager"}:
                mig = document.get("mig") or {}
                if not isinstance(mig, dict):
                    fail(f"{file}: mig is {value_text(mig)}; a mapping is expected")
                strategy = mig.get("strategy", strategy)
            elif name in plugin and plugin[name] != document:
                fail(f"{file}: there is a second configuration {name}")
            else:
                plugin[name] = document
    if len(mig_parted) > 1:
        fail("there are several files with mig-configs; the operator reads one")
    try:
        return read_operator(plugin, mig_parted[0] if mig_parted else None, strategy)
    except InvalidValue as invalid:
        fail(str(invalid))


def documents(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the configurations in a file by name; a ConfigMap holds one per key."""
    for document in yaml_documents(str(file), read_text(file)) or [None]:
        yield from _unpacked(document, file.stem, file)


def _unpacked(document: Any, name: str, file: Path) -> Iterator[tuple[str, Any]]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "List":
        items = document.get("items") or ()
        if not isinstance(items, list | tuple):
            fail(f"{file}: items is {value_text(items)}; a list is expected")
        for item in items:
            if isinstance(item, dict) and item.get("kind") == "List":
                fail(f"{file}: a List is in a List; ConfigMaps are expected there")
            yield from _unpacked(item, name, file)
    elif kind == "ConfigMap":
        data = document.get("data") or {}
        if not isinstance(data, dict):
            fail(f"{file}: data is {value_text(data)}; a mapping is expected")
        for key, text in data.items():
            yield from _of_key(str(key), text, file)
    else:
        yield name, document


def _of_key(key: str, text: object, file: Path) -> Iterator[tuple[str, Any]]:
    if not isinstance(text, str):
        fail(f"{file}: data.{key} is {value_text(text)}; text is expected")
    documents = yaml_documents(f"{file}: data.{key}", text)
    if len(documents) > 1:
        fail(f"{file}: data.{key} has several YAML documents; one is expected")
    yield key, documents[0] if documents else None
