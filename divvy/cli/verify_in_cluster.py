"""divvy verify --in-cluster: what runs the suite there, by kubectl, Sonobuoy or hydrophone."""

from collections.abc import Sequence
from pathlib import Path

import typer

from divvy.cli.chart_images import build_options, built_image
from divvy.cli.errors import fail
from divvy.model import Cluster
from divvy.render.plain_yaml import plain_yaml
from divvy.render.verify_job import NAME, hydrophone_configuration, sonobuoy_plugin, verify_job
from divvy.stack.file import StackFile
from divvy.stack.sections import read_document

JOB, PLUGIN, HYDROPHONE = "verify-job.yaml", "sonobuoy-plugin.yaml", "hydrophone.yaml"


def write_job(
    out: Path, source: StackFile, arguments: Sequence[str], image: str | None, workloads: str | None
) -> None:
    """Write the files; images that are not given are built where the agent's is."""
    document = read_document(source)
    runner = image or _built("conformance.runner_image", document.cluster, "--runner-image")
    programs = workloads or _built("conformance.image", document.cluster, "--workload-image")
    everything = [*arguments, f"--workload-image={programs}"]
    try:
        out.mkdir(parents=True, exist_ok=True)
        job = verify_job(document, source.name, runner, everything)
        (out / JOB).write_text("---\n".join(plain_yaml(obj) for obj in job))
        for name, render in ((PLUGIN, sonobuoy_plugin), (HYDROPHONE, hydrophone_configuration)):
            (out / name).write_text(plain_yaml(render(document, source.name, runner, everything)))
    except OSError as problem:
        fail(f"--out={out} cannot be written to: {problem.strerror}")
    typer.echo(f"kubectl apply -f {out / JOB}")
    typer.echo(f"sonobuoy run --plugin {out / PLUGIN}")
    # Its second container keeps the results until they are fetched: any image with a shell will do.
    flags = f"--busybox-image {runner} --namespace {NAME}"
    typer.echo(f"hydrophone --config {out / HYDROPHONE} {flags} --focus divvy")


def _built(module: str, cluster: Cluster, option: str) -> str:
    image = cluster.plugin.image
    if image is None or image.registry is None or image.base is None:
        fail(f"{option} is needed: the stack file has no plugin.image.registry and .base")
    return built_image(module, image.registry, image.base, *build_options(image))
