"""divvy chart: the same objects as a Helm chart, as plain manifests, or for the GPU Operator."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divvy.cli.output import counted, fail, reading

if TYPE_CHECKING:
    from divvy.cli.stack_files import StackFile
    from divvy.model import Cluster


class Kind(StrEnum):
    """What is generated."""

    CHART = "chart"
    MANIFESTS = "manifests"


_Stack = Annotated[str | None, typer.Option("-s", "--stack", help="The stack.")]
_File = Annotated[Path | None, typer.Option("--file", help="A stack file instead of a name.")]
_Out = Annotated[Path | None, typer.Option("--out", help="Folder to write.")]
_Kind = Annotated[Kind, typer.Option("--format", help="A Helm chart, or plain YAML.")]
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
_IMAGE_PATTERN = r"\S+@sha256:[0-9a-f]{64}"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="chart")(chart)


def chart(
    *,
    stack: _Stack = None,
    file: _File = None,
    out: _Out = None,
    kind: _Kind = Kind.CHART,
    image: _Image = None,
    workload_image: _Workloads = None,
    build: _Build = False,
    chart_version: _Version = None,
    package: _Package = False,
    check: _Check = False,
    force: _Force = False,
) -> None:
    """Write a Helm chart, or plain manifests, with the objects of a stack."""
    from divvy.cli.stack_files import read_stack

    if kind is Kind.MANIFESTS and (package or workload_image or chart_version):
        fail("--package, --workload-image and --chart-version belong to --format chart")
    if out is None and (kind is Kind.CHART or check):
        fail("name a folder with --out DIR")
    with reading():
        source = read_stack(stack, file)
    with reading(source):
        cluster = source.cluster()
    images = _images(cluster, image, workload_image, build=build)
    assert isinstance(source.value, dict)
    if kind is Kind.MANIFESTS:
        _manifests(source.value, images, out, check=check, force=force)
        return
    version = chart_version or _version()
    files = _chart_files(source, version, images)
    assert out is not None
    if package:
        _package(files, out, version, check=check)
    else:
        deliver(files, out, check=check, force=force)


@dataclass(frozen=True)
class _Images:
    agent: str | None
    workloads: str | None


def _images(cluster: Cluster, image: str | None, workloads: str | None, *, build: bool) -> _Images:
    import re

    if image is not None and not re.fullmatch(_IMAGE_PATTERN, image):
        fail(
            f"--image is {image!r}; an image with its digest is expected: …@sha256:<64 hex digits>"
        )
    wish = cluster.plugin.image
    if wish is not None and wish.reference is not None:
        image = image or wish.reference
    if not build:
        return _Images(image, workloads)
    if wish is None or wish.registry is None or wish.base is None:
        fail("--build needs plugin.image.registry and plugin.image.base in the stack file")
    where = (str(wish.registry), str(wish.base))
    return _Images(
        image or _built("plugin_image.build", *where),
        workloads or _built("conformance.image", *where),
    )


def _built(module: str, *where: str) -> str:
    """Run one of the checkout's image builds; return the image by digest."""
    root = Path(__file__).resolve().parents[2]
    if not (root / module.partition(".")[0]).is_dir():
        fail(f"--build: {module} is not beside the package: run from a checkout")
    done = subprocess.run(
        [sys.executable, "-m", module, *where],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        fail(f"--build: {module} failed: {words[-1]}")
    return done.stdout.strip().splitlines()[-1]


def _version() -> str:
    from importlib.metadata import version

    return version("divvy")


def _chart_files(source: StackFile, version: str, images: _Images) -> Mapping[str, str]:
    from divvy.render.chart import Chart, chart_files

    if images.agent is None:
        typer.echo(
            "note: the agent's image is not known: give --image or --build, or set "
            "image.repository and image.digest when installing",
            err=True,
        )
    value: Any = source.value
    return chart_files(
        value, Chart(source.name, version, _version(), images.agent, images.workloads)
    )


def _manifests(
    value: dict[str, Any], images: _Images, out: Path | None, *, check: bool, force: bool
) -> None:
    from divvy.render.manifests import manifests

    if images.agent is None:
        fail("the agent's image is not known: give --image or --build")
    text = manifests(value, images.agent)
    if out is None:
        typer.echo(text, nl=False)
    else:
        deliver({"divvy.yaml": text}, out, check=check, force=force)


def _package(files: Mapping[str, str], out: Path, version: str, *, check: bool) -> None:
    from divvy.cli.generated_folder import archive, write_file
    from divvy.render.chart import NAME

    target = out / f"{NAME}-{version}.tgz"
    content = archive(files, NAME)
    try:
        if not check:
            write_file(target, content)
            typer.echo(f"{target}: {counted(len(files), 'file')}")
        elif not target.is_file() or target.read_bytes() != content:
            fail(f"{target} is not what would be generated now")
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror}")


def deliver(files: Mapping[str, str], out: Path, *, check: bool, force: bool) -> None:
    """Write files as a folder's content, or compare them with it."""
    from divvy.cli.generated_folder import NotOurs, differences, write_folder

    try:
        if check:
            stale = differences(out, files)
            if stale:
                listed = "\n  ".join(stale)
                fail(f"{out} is not what would be generated now:\n  {listed}")
            typer.echo(f"{out} is up to date")
            return
        write_folder(out, files, force=force)
    except NotOurs as refusal:
        fail(str(refusal))
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")
    typer.echo(f"{out}: {counted(len(files), 'file')}")
