"""divvy import: profiles out of the configurations that clusters already have."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from divvy.cli.errors import fail
from divvy.cli.manifest_files import read_documents
from divvy.cli.nvidia_files import documents, operator_profiles
from divvy.cli.options import OutFile
from divvy.cli.output import write
from divvy.model import InvalidValue
from divvy.model.nvidia import ImportResult, read_device_plugin, read_mig_parted
from divvy.plan.hami_quota import import_quotas
from divvy.render.hami_quota import hami_quota_objects
from divvy.stack.yaml_flow import TextDumper

app = typer.Typer(add_completion=False)

_QUOTA = "ResourceQuota"
_LISTS = ("List", f"{_QUOTA}List")

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


@app.command("hami-quota")
def hami_quota(
    files: Annotated[list[Path], typer.Argument(help="ResourceQuota manifests; - reads stdin.")],
    out: OutFile = None,
) -> None:
    """Read the ResourceQuotas of HAMi's namespaces: Kueue's quota in MiB, and numbers of GPUs."""
    try:
        quotas = import_quotas(_resource_quotas(files))
    except InvalidValue as invalid:
        fail(str(invalid))
    if not (quotas.memory or quotas.counts or quotas.ended):
        fail("no ResourceQuota has a name of HAMi's: limits.nvidia.com/gpumem is expected")
    for difference in quotas.differences:
        typer.echo(f"differs: {difference}", err=True)
    write(hami_quota_objects(quotas), out)


def _resource_quotas(files: list[Path]) -> Iterator[tuple[str, Any]]:
    """Yield the ResourceQuotas of manifests and of Lists of them, each with its place."""
    for document in read_documents(files):
        value = document.value if isinstance(document.value, dict) else {}
        if value.get("kind") in _LISTS:
            items = value.get("items")
            listed = items if isinstance(items, list) else []
            for number, item in enumerate(listed):
                # The items of a typed list have no kind of their own.
                if isinstance(item, dict) and item.get("kind", _QUOTA) == _QUOTA:
                    yield f"{document.source}: items[{number}]", item
        elif value.get("kind") == _QUOTA:
            yield document.source, value


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
