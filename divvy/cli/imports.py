"""divvy import: profiles out of the configurations that clusters already have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from divvy.cli.errors import fail
from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, read_device_plugin, read_mig_parted, read_operator

app = typer.Typer()

_Files = Annotated[list[Path], typer.Argument(help="Configuration files or ConfigMap manifests.")]


@app.command("nvidia-config")
def nvidia_config(files: _Files, out: OutFile = None) -> None:
    """Read configurations of NVIDIA's device plugin: one profile each."""
    imported = ImportResult()
    for file in files:
        for name, document in _documents(file):
            try:
                imported = imported.joined(read_device_plugin(document, name))
            except InvalidValue as invalid:
                _refuse(f"{file}: {name}", invalid)
    write(_stack_text(imported), out)


@app.command("mig-parted")
def mig_parted(files: _Files, out: OutFile = None) -> None:
    """Read configurations of mig-parted: one profile per mig-config."""
    imported = ImportResult()
    for file in files:
        for name, document in _documents(file):
            try:
                imported = imported.joined(read_mig_parted(document))
            except InvalidValue as invalid:
                _refuse(f"{file}: {name}", invalid)
    write(_stack_text(imported), out)


@app.command("gpu-operator")
def gpu_operator(files: _Files, out: OutFile = None) -> None:
    """Read both ConfigMaps of the GPU Operator, and its values: a name in both is one profile."""
    plugin: dict[str, Any] = {}
    mig_parted: list[Any] = []
    strategy = "mixed"
    for file in files:
        for name, document in _documents(file):
            keys = document.keys() if isinstance(document, dict) else ()
            if "mig-configs" in keys:
                mig_parted.append(document)
            elif set(keys) & {"mig", "devicePlugin", "migManager"}:
                strategy = (document.get("mig") or {}).get("strategy", strategy)
            elif name in plugin and plugin[name] != document:
                fail(f"{file}: there is a second configuration {name}")
            else:
                plugin[name] = document
    if len(mig_parted) > 1:
        fail("there are several files with mig-configs; the operator reads one")
    try:
        imported = read_operator(plugin, mig_parted[0] if mig_parted else None, strategy)
    except InvalidValue as invalid:
        fail(str(invalid))
    write(_stack_text(imported), out)


def _refuse(source: str, invalid: InvalidValue) -> NoReturn:
    fail("\n".join(f"{source}: {problem}" for problem in invalid.problems))


def _documents(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the configurations in a file by name; a ConfigMap holds one per key."""
    try:
        documents = [*yaml.safe_load_all(file.read_text(encoding="utf-8"))]
        for document in documents or [None]:
            yield from _unpacked(document, file.stem)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{file} is not YAML: {' '.join(str(error).split())}")


def _unpacked(document: Any, name: str) -> Iterator[tuple[str, Any]]:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "List":
        for item in document.get("items") or ():
            yield from _unpacked(item, name)
    elif kind == "ConfigMap":
        for key, text in (document.get("data") or {}).items():
            yield str(key), yaml.safe_load(text)
    else:
        yield name, document


def _stack_text(imported: ImportResult) -> str:
    """Return the profiles as the part of a stack file, with what was left out above them."""
    for reason in imported.left_out:
        typer.echo(f"not imported: {reason}", err=True)
    comments = "".join(f"# not imported: {reason}\n" for reason in imported.left_out)
    document = {"config": {"divvy:cluster": {"profiles": dict(imported.profiles)}}}
    # Through a copy, so that equal layouts are written out instead of referred to.
    plain = json.loads(json.dumps(document))
    return comments + yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=100)
