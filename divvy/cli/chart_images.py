"""The images that a chart names: given, of the stack file, or built now."""

import re
import subprocess
import sys
from dataclasses import dataclass, replace

from divvy.bundled_sources import CONFORMANCE
from divvy.errors import fail
from divvy.image.build import IMAGE_NAME
from divvy.image.platforms import platform_options
from divvy.model import Cluster, ClusterDocument, PluginImage

_BY_DIGEST = r"\S+@sha256:[0-9a-f]{64}"


@dataclass(frozen=True)
class Images:
    """The agent's image and that of the workloads, None if they are not known."""

    agent: str | None
    workloads: str | None


def images(cluster: Cluster, agent: str | None, workloads: str | None, *, build: bool) -> Images:
    """Find the images; with ``build``, what is not given is built and pushed."""
    if agent is not None:
        require_digest(agent)
    image = cluster.plugin.image
    if agent is None and image is not None:
        agent = image.reference
    if not build:
        return Images(agent, workloads)
    if image is None or image.registry is None or image.base is None:
        fail("--build needs plugin.image.registry and plugin.image.base in the stack file")
    where = (image.registry, image.base, *build_options(image))
    return Images(
        agent or built_image("divvy.image.build", *where),
        workloads or built_image("conformance.image", *where),
    )


def without_other_image(document: ClusterDocument, agent: str | None) -> ClusterDocument:
    """Return a stack that does not say what its image is for, if the agent's is another one."""
    plugin = document.cluster.plugin
    if plugin.image is None:
        return document
    repository = re.escape(f"{plugin.image.registry}/{IMAGE_NAME}")
    if re.match(rf"{repository}(:[^@/]+)?@", agent or ""):
        return document
    plugin = plugin.model_copy(update={"image": None})
    return replace(document, cluster=document.cluster.model_copy(update={"plugin": plugin}))


def build_options(image: PluginImage) -> tuple[str, ...]:
    """Return how the stack file has images built, as options of the builds."""
    insecure = ("--insecure",) if image.insecure else ()
    return (*insecure, *platform_options(image.platforms))


def require_digest(image: str) -> None:
    """Fail where --image is not an image by digest."""
    if not re.fullmatch(_BY_DIGEST, image):
        fail(f"--image is {image!r}; an image by digest is expected: …@sha256:<64 hex digits>")


def built_image(module: str, *where: str) -> str:
    """Run one of the image builds; return the image by digest."""
    done = subprocess.run(
        [sys.executable, "-m", module, *where],
        cwd=CONFORMANCE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["it gave no reason"]
        fail(f"{module} failed: {words[-1]}")
    return done.stdout.strip().splitlines()[-1]
