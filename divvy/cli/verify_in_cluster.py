"""divvy verify --in-cluster: a Job that runs the suite there."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from divvy.cli.chart_images import build_options, built_image
from divvy.errors import fail
from divvy.model import Cluster
from divvy.render.exports.plain_yaml import yaml_documents
from divvy.render.objects.verify_job import stack_of_pod, verify_job
from divvy.stack.file import StackFile
from divvy.stack.sections import read_document

JOB = "verify-job.yaml"

# MAX_ARG_STRLEN of Linux, with the zero at the end: it starts no program with a longer one.
_MAX_VARIABLE_BYTES = 128 << 10
_TOO_LONG = "the stack file is too long for a variable of a pod"


def write_job(
    out: Path, source: StackFile, arguments: Sequence[str], image: str | None, workloads: str | None
) -> None:
    """Write the Job; images that are not given are built where the agent's is."""
    document = read_document(source)
    runner = image or _built("conformance.runner_image", document.cluster, "--runner-image")
    programs = workloads or _built("conformance.image", document.cluster, "--workload-image")
    everything = [*arguments, f"--workload-image={programs}"]
    if _is_too_long(f"DIVVY_STACK_FILE={stack_of_pod(document)}"):
        fail(f"{_TOO_LONG}: run divvy verify without --in-cluster")
    text = yaml_documents(verify_job(document, source.name, runner, everything))
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / JOB).write_text(text, encoding="utf-8")
    except OSError as problem:
        fail(f"--out={out} cannot be written to: {problem.strerror}")
    typer.echo(shlex.join(["kubectl", "apply", "-f", str(out / JOB)]))


def _is_too_long(variable: str) -> bool:
    return len(variable.encode()) >= _MAX_VARIABLE_BYTES


def _built(module: str, cluster: Cluster, option: str) -> str:
    image = cluster.plugin.image
    if image is None or image.registry is None or image.base is None:
        fail(f"{option} is needed: the stack file has no plugin.image.registry and .base")
    return built_image(module, image.registry, image.base, *build_options(image))
