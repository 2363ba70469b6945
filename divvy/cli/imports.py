"""divvy import: profiles out of the configurations that clusters already have."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divvy.cli.output import fail, write

if TYPE_CHECKING:
    from divvy.model.nvidia import Imported

_Files = Annotated[list[Path], typer.Argument(help="Configuration files or ConfigMap manifests.")]
_Out = Annotated[Path | None, typer.Option(help="Write to this file.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the program."""
    group = typer.Typer(help="Turn existing configurations into profiles.", no_args_is_help=True)
    group.command(name="nvidia-config")(nvidia_config)
    group.command(name="mig-parted")(mig_parted)
    group.command(name="gpu-operator")(gpu_operator)
    app.add_typer(group, name="import")


def nvidia_config(files: _Files, out: _Out = None) -> None:
    """Read configurations of NVIDIA's device plugin: one profile each."""
    from divvy.model.nvidia import BadConfig, Imported, read_device_plugin

    imported = Imported()
    for file in files:
        for name, document in _documents(file):
            try:
                imported = imported.joined(read_device_plugin(document, name))
            except BadConfig as bad:
                fail(f"{file}: {bad}")
    write(_stack_text(imported), out)


def mig_parted(files: _Files, out: _Out = None) -> None:
    """Read configurations of mig-parted: one profile per mig-config."""
    from divvy.model.nvidia import BadConfig, Imported, read_mig_parted

    imported = Imported()
    for file in files:
        for name, document in _documents(file):
            try:
                imported = imported.joined(read_mig_parted(document))
            except BadConfig as bad:
                fail(f"{file}: {name}: {bad}")
    write(_stack_text(imported), out)


def gpu_operator(files: _Files, out: _Out = None) -> None:
    """Read both ConfigMaps of the GPU Operator, and its values: a name in both is one profile."""
    from divvy.model.nvidia import BadConfig, read_operator

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
    except BadConfig as bad:
        fail(str(bad))
    write(_stack_text(imported), out)


def _documents(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the configurations in a file by name; a ConfigMap holds one per key."""
    import yaml

    try:
        documents = [*yaml.safe_load_all(file.read_text(encoding="utf-8"))]
        for document in documents or [None]:
            yield from _unpacked(document, file.stem)
    except OSError as error:
        fail(f"cannot read {file}: {error.strerror}")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{file} is no YAML: {' '.join(str(error).split())}")


def _unpacked(document: Any, name: str) -> Iterator[tuple[str, Any]]:
    import yaml

    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "List":
        for item in document.get("items") or ():
            yield from _unpacked(item, name)
    elif kind == "ConfigMap":
        for key, text in (document.get("data") or {}).items():
            yield str(key), yaml.safe_load(text)
    else:
        yield name, document


def _stack_text(imported: "Imported") -> str:
    """Return the profiles as the part of a stack file, with what was left out above them."""
    import json

    import yaml

    for reason in imported.left_out:
        typer.echo(f"not imported: {reason}", err=True)
    comments = "".join(f"# not imported: {reason}\n" for reason in imported.left_out)
    document = {"config": {"divvy:cluster": {"profiles": dict(imported.profiles)}}}
    # Through a copy, so that equal layouts are written out instead of referred to.
    plain = json.loads(json.dumps(document))
    return comments + yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=100)
