"""divvy verify --in-cluster: what runs the suite there, by kubectl, Sonobuoy or hydrophone."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from divvy.cli.chart_images import build_options, built_image
from divvy.cli.errors import fail
from divvy.model import Cluster
from divvy.render.plain_yaml import plain_yaml
from divvy.render.verify_job import (
    NAME,
    hydrophone_configuration,
    sonobuoy_plugin,
    stack_of_pod,
    verify_job,
)
from divvy.stack.file import StackFile
from divvy.stack.sections import read_document

JOB, PLUGIN, HYDROPHONE = "verify-job.yaml", "sonobuoy-plugin.yaml", "hydrophone.yaml"

# MAX_ARG_STRLEN of Linux, with the zero at the end: it starts no program with a longer one.
_MAX_VARIABLE_BYTES = 128 << 10
_TOO_LONG = "the stack file is too long for a variable of a pod"


def write_job(
    out: Path, source: StackFile, arguments: Sequence[str], image: str | None, workloads: str | None
) -> None:
    """Write the files; images that are not given are built where the agent's is."""
    document = read_document(source)
    runner = image or _built("conformance.runner_image", document.cluster, "--runner-image")
    programs = workloads or _built("conformance.image", document.cluster, "--workload-image")
    everything = [*arguments, f"--workload-image={programs}"]
    if _is_too_long(f"DIVVY_STACK_FILE={stack_of_pod(document)}"):
        fail(f"{_TOO_LONG}: run divvy verify without --in-cluster")
    configuration = hydrophone_configuration(document, source.name, runner, everything)
    takes_all = not _is_too_long(f"E2E_EXTRA_ARGS={' '.join(configuration['extraArgs'])}")
    texts = {
        JOB: "---\n".join(map(plain_yaml, verify_job(document, source.name, runner, everything))),
        PLUGIN: plain_yaml(sonobuoy_plugin(document, source.name, runner, everything)),
        HYDROPHONE: plain_yaml(configuration) if takes_all else None,
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            if text is None:
                (out / name).unlink(missing_ok=True)
            else:
                (out / name).write_text(text, encoding="utf-8")
    except OSError as problem:
        fail(f"--out={out} cannot be written to: {problem.strerror}")
    typer.echo(shlex.join(["kubectl", "apply", "-f", str(out / JOB)]))
    typer.echo(shlex.join(["sonobuoy", "run", "--plugin", str(out / PLUGIN)]))
    if not takes_all:
        typer.echo(f"no {HYDROPHONE}: {_TOO_LONG}, encoded as hydrophone takes it", err=True)
        return
    # Its second container keeps the results until they are fetched: any image with a shell will do.
    flags = ["--busybox-image", runner, "--namespace", NAME, "--focus", "divvy"]
    typer.echo(shlex.join(["hydrophone", "--config", str(out / HYDROPHONE), *flags]))


def _is_too_long(variable: str) -> bool:
    return len(variable.encode()) >= _MAX_VARIABLE_BYTES


def _built(module: str, cluster: Cluster, option: str) -> str:
    image = cluster.plugin.image
    if image is None or image.registry is None or image.base is None:
        fail(f"{option} is needed: the stack file has no plugin.image.registry and .base")
    return built_image(module, image.registry, image.base, *build_options(image))
