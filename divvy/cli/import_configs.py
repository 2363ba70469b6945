"""divvy import: profiles out of the configurations that clusters already have."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from divvy.cli.exit_codes import CHANGES
from divvy.cli.nvidia_files import NvidiaFiles, nvidia_files, operator_profiles, with_rest
from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, checked, read_device_plugin, read_mig_parted
from divvy.stack.yaml_flow import TextDumper

app = typer.Typer(add_completion=False)

_Files = Annotated[list[Path], typer.Argument(help="Configuration files or ConfigMap manifests.")]


@app.command("nvidia-config")
def nvidia_config(files: _Files, out: OutFile = None) -> None:
    """Read configurations of NVIDIA's device plugin: one profile each."""
    read = nvidia_files(files)
    others = [f"{source}: is mig-parted's; see import mig-parted" for source, *_ in read.mig_parted]
    _write(_imported(read, read.plugin, read_device_plugin, others), out)


@app.command("mig-parted")
def mig_parted(files: _Files, out: OutFile = None) -> None:
    """Read configurations of mig-parted: one profile per mig-config."""
    read = nvidia_files(files)
    empty = [entry for entry in read.plugin if entry[2].keys() == {"version"}]
    others = [
        f"{source}: {name} is the device plugin's; see import nvidia-config"
        for source, name, document in read.plugin
        if document.keys() != {"version"}
    ]
    mig = [*read.mig_parted, *empty]
    _write(_imported(read, mig, lambda document, _: read_mig_parted(document), others), out)


@app.command("gpu-operator")
def gpu_operator(files: _Files, out: OutFile = None) -> None:
    """Read both ConfigMaps of the GPU Operator, and its values: a name in both is one profile."""
    _write(operator_profiles(files), out)


def _imported(
    read: NvidiaFiles,
    configurations: Iterable[tuple[str, str, Any]],
    reader: Callable[[object, str], ImportResult],
    others: Sequence[str],
) -> ImportResult:
    imported, refused = ImportResult(), list(read.refused)
    for source, name, document in configurations:
        try:
            imported = imported.joined(reader(document, name))
        except InvalidValue as invalid:
            place = source if source.endswith(name) else f"{source}: {name}"
            refused += (f"{place}: {problem}" for problem in invalid.problems)
    if read.strategy is not None:
        others = [*others, f"mig.strategy {read.strategy}: import gpu-operator reads it"]
    return with_rest(checked(imported), refused, [*read.skipped, *others])


def _write(imported: ImportResult, out: Path | None) -> None:
    """Write the profiles; ends with 2 if a configuration was refused beside them."""
    write(_stack_text(imported), out)
    if imported.refused:
        raise typer.Exit(CHANGES)


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
