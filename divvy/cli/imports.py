"""divvy import: profiles out of the configurations that clusters already have."""

import json
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import yaml

from divvy.cli.errors import fail
from divvy.cli.nvidia_files import documents, operator_profiles
from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, read_device_plugin, read_mig_parted
from divvy.stack.yaml_flow import TextDumper

app = typer.Typer(add_completion=False)

_Files = Annotated[list[Path], typer.Argument(help="Configuration files or ConfigMap manifests.")]


@app.command("nvidia-config")
def nvidia_config(files: _Files, out: OutFile = None) -> None:
    """Read configurations of NVIDIA's device plugin: one profile each."""
    imported = ImportResult()
    for file in files:
        for name, document in documents(file):
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
        for name, document in documents(file):
            try:
                imported = imported.joined(read_mig_parted(document))
            except InvalidValue as invalid:
                _refuse(f"{file}: {name}", invalid)
    write(_stack_text(imported), out)


@app.command("gpu-operator")
def gpu_operator(files: _Files, out: OutFile = None) -> None:
    """Read both ConfigMaps of the GPU Operator, and its values: a name in both is one profile."""
    write(_stack_text(operator_profiles(files)), out)


def _refuse(source: str, invalid: InvalidValue) -> NoReturn:
    fail("\n".join(f"{source}: {problem}" for problem in invalid.problems))


def _stack_text(imported: ImportResult) -> str:
    """Return the profiles as the part of a stack file, with what was left out above them."""
    for reason in imported.left_out:
        typer.echo(f"not imported: {reason}", err=True)
    comments = "".join(f"# not imported: {reason}\n" for reason in imported.left_out)
    document = {"config": {"divvy:cluster": {"profiles": dict(imported.profiles)}}}
    # Through a copy, so that equal layouts are written out instead of referred to.
    plain = json.loads(json.dumps(document))
    return comments + yaml.dump(
        plain, Dumper=TextDumper, sort_keys=False, default_flow_style=None, width=100
    )
