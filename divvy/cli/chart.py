"""divvy chart: the same objects as a Helm chart, as plain manifests, or for the GPU Operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from divvy.atomic_file import replace_file
from divvy.cli.chart_images import Images, images, without_other_image
from divvy.cli.generated_folder import archive, differences, write_folder
from divvy.cli.operator_files import operator as for_operator
from divvy.cli.options import StackName, StackPath, named_stack
from divvy.errors import fail
from divvy.model import ClusterDocument
from divvy.model.phrases import plural
from divvy.render.chart import NAME, Chart, chart_files
from divvy.render.exports.operator.files import Site
from divvy.render.exports.plain_yaml import yaml_documents
from divvy.render.objects.cluster import objects
from divvy.stack.file import read_stack
from divvy.stack.sections import read_document
from divvy.version_info import version as installed_version

_Out = Annotated[Path | None, typer.Option("--out", help="Folder to write.")]
_Kind = Annotated[
    Literal["chart", "manifests"], typer.Option("--format", help="A Helm chart, or plain YAML.")
]
_Image = Annotated[str | None, typer.Option("--image", help="The agent's image, by digest.")]
_Workloads = Annotated[
    str | None, typer.Option("--workload-image", help="Image for `helm test`: adds two vectors.")
]
_Build = Annotated[
    bool, typer.Option("--build", help="Build and push both images where the stack file says.")
]
_Version = Annotated[
    str | None, typer.Option("--chart-version", help="The chart's version; default: Divvy's.")
]
_Package = Annotated[bool, typer.Option("--package", help="Write the chart as a .tgz into --out.")]
_Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; fail if --out is not up to date.")
]
_Force = Annotated[bool, typer.Option("--force", help="Overwrite generated files with edits.")]
_OPERATOR = "For NVIDIA's GPU Operator"
_Operator = Annotated[
    bool,
    typer.Option(
        "--operator",
        help="Write its values, ConfigMaps and the nodes' labels.",
        rich_help_panel=_OPERATOR,
    ),
]
_Pools = Annotated[
    list[str] | None,
    typer.Option("--pool", help="Only this pool (repeatable).", rich_help_panel=_OPERATOR),
]
_Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        help="Omit a part that it cannot express (repeatable).",
        rich_help_panel=_OPERATOR,
    ),
]
_Namespace = Annotated[
    str,
    typer.Option(
        "--operator-namespace", help="The Operator's namespace.", rich_help_panel=_OPERATOR
    ),
]
_Repository = Annotated[
    str | None,
    typer.Option(
        "--driver-repository", help="Where driver images come from.", rich_help_panel=_OPERATOR
    ),
]
_DriverVersion = Annotated[
    str | None,
    typer.Option(
        "--driver-version",
        help="Version of the driver images, if not the stack file's.",
        rich_help_panel=_OPERATOR,
    ),
]


def chart(
    *,
    stack: StackName = None,
    file: StackPath = None,
    out: _Out = None,
    kind: _Kind = "chart",
    image: _Image = None,
    workload_image: _Workloads = None,
    build: _Build = False,
    chart_version: _Version = None,
    package: _Package = False,
    check: _Check = False,
    force: _Force = False,
    operator: _Operator = False,
    pool: _Pools = None,
    without: _Without = None,
    operator_namespace: _Namespace = "gpu-operator",
    driver_repository: _Repository = None,
    driver_version: _DriverVersion = None,
) -> None:
    """Write a stack as a Helm chart, as plain manifests, or for NVIDIA's GPU Operator."""
    if (kind == "manifests" or operator) and (package or workload_image or chart_version):
        fail("--package, --workload-image and --chart-version belong to the chart")
    if check and build:
        fail("--build pushes images, and --check changes nothing: name them with --image")
    if (pool or without) and not operator:
        fail("--pool and --without belong to --operator: a chart has all pools")
    source = read_stack(named_stack(stack, file), file)
    document = read_document(source)
    cluster = document.cluster
    if out is None and (kind == "chart" or operator or check):
        fail("name a folder with --out DIR")
    if operator:
        site = Site(source.name, operator_namespace, driver_repository, driver_version)
        _deliver(for_operator(cluster, site, pool or (), without or ()), out, check, force)
        return

    known = images(cluster, image, workload_image, build=build)
    document = without_other_image(document, known.agent)
    if kind == "manifests":
        _deliver(_manifests(document, known), out, check, force)
        return
    version = chart_version or installed_version()
    files = _chart_files(document, source.name, version, known)
    if package:
        assert out is not None
        _package(files, out, version, check=check)
    else:
        _deliver(files, out, check, force)


def _chart_files(
    document: ClusterDocument, stack: str, version: str, images: Images
) -> Mapping[str, str]:

    if images.agent is None:
        typer.echo(
            "note: the agent's image is not known: give --image or --build, or set "
            "image.repository and image.digest when installing",
            err=True,
        )

    chart = Chart(stack, version, installed_version(), images.agent, images.workloads)
    return chart_files(document, chart)


def _manifests(document: ClusterDocument, images: Images) -> Mapping[str, str]:

    if images.agent is None:
        fail("the agent's image is not known: give --image or --build")

    return {"divvy.yaml": yaml_documents(objects(document, images.agent))}


def _package(files: Mapping[str, str], out: Path, version: str, *, check: bool) -> None:

    target = out / f"{NAME}-{version}.tgz"
    content = archive(files, NAME)
    try:
        if not check:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, content, 0o644)
            typer.echo(f"{target}: {plural(len(files), 'file')}")
        elif not target.is_file() or target.read_bytes() != content:
            fail(f"{target} is not what would be generated now")
        else:
            typer.echo(f"{target} is up to date")
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror}")


def _deliver(files: Mapping[str, str], out: Path | None, check: bool, force: bool) -> None:
    """Write files as a folder's content, compare them with it, or print them."""
    if out is None:
        typer.echo("".join(files.values()), nl=False)
        return
    try:
        if check:
            stale = differences(out, files)
            if stale:
                listed = "\n  ".join(stale)
                fail(f"{out} is not what would be generated now:\n  {listed}")
            typer.echo(f"{out} is up to date")
            return
        write_folder(out, files, force=force)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    typer.echo(f"{out}: {plural(len(files), 'file')}")
