"""divvy chart --check-driver-tags: whether the driver's image exists for every pool."""

import json
import subprocess
from collections.abc import Mapping, Sequence

import typer

from divvy.cli.errors import FAILED, fail
from divvy.model import Cluster
from divvy.render.operator import REPOSITORY

_NAME = "driver"
_SECONDS = "30s"


def check_tags(
    cluster: Cluster,
    repository: str | None,
    version: str | None,
    mirror: str | None,
    *,
    plain_http: bool,
) -> None:
    """Print whether each pool's tag is there, and what a mirror needs; exit 1 if one is not.

    The operator's tags are <driver version>-<operating system>.
    """
    image = f"{repository or REPOSITORY}/{_NAME}"
    wanted = version or cluster.driver.version
    if wanted is None:
        fail("driver.version is missing in the stack file: name it there or with --driver-version")
    tags = _tags(image, plain_http=plain_http)
    needed = _needed(cluster, wanted)
    lines = [_tell(pool, tag, wanted, tags, image) for pool, tag in needed.items()]
    if mirror is not None:
        flag = "--src-tls-verify=false " if plain_http else ""
        for tag in dict.fromkeys(tag for tag in needed.values() if tag in tags):
            typer.echo(f"skopeo copy {flag}docker://{image}:{tag} docker://{mirror}/{_NAME}:{tag}")
    if not all(lines):
        raise typer.Exit(FAILED)


def _needed(cluster: Cluster, version: str) -> Mapping[str, str | None]:
    """Return each pool's tag, None if the operating system of its nodes is not known."""
    return {
        name: None
        if pool.hardware is None or pool.hardware.os is None
        else f"{version}-{pool.hardware.os}"
        for name, pool in cluster.pools.items()
    }


def _tell(pool: str, tag: str | None, version: str, tags: Sequence[str], image: str) -> bool:
    if tag is None:
        typer.echo(f"pool {pool}: not known: hardware.os is missing in the stack file")
        return False
    if tag in tags:
        typer.echo(f"pool {pool}: {image}:{tag} exists")
        return True
    near = [other for other in tags if other.startswith(version)]
    # Forks put the kernel between version and system.
    like = ", ".join(near[:6]) if near else f"none of version {version}"
    typer.echo(f"pool {pool}: {image}:{tag} is NOT there; there is {like}")
    return False


def _tags(image: str, *, plain_http: bool) -> Sequence[str]:
    command = ["skopeo", f"--command-timeout={_SECONDS}", "list-tags"]
    command += ["--tls-verify=false"] if plain_http else []
    try:
        done = subprocess.run(
            [*command, f"docker://{image}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        fail("skopeo is not installed: driver tags were not checked")
    if done.returncode:
        last_line = (
            done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no reason given"
        )
        reason = last_line.rstrip('"').rpartition(": ")[2]
        fail(f"could not list tags of {image} ({reason}); driver tags were not checked")
    listed: Sequence[str] = json.loads(done.stdout)["Tags"]
    return listed
