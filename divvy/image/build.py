"""Build the agent's image with buildah and push it; the same inputs give the same digest."""

from __future__ import annotations

import compileall
import contextlib
import hashlib
import http.client
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from divvy.bundled_sources import AGENT_REQUIREMENTS, PACKAGE, PLUGIN_IMAGE
from divvy.image.platforms import (
    DEFAULT_PLATFORMS,
    LINUX_AMD64,
    Platform,
    named_platforms,
    platforms_of,
)

_HOOK = PLUGIN_IMAGE / "hook"
_LIMITER = PLUGIN_IMAGE / "limiter"
_ROOMS = ("agent", "claim_templates", "kube", "model")
_FILES = ("__init__.py", "atomic_file.py", "kubernetes_yaml.py", "py.typed")
IMAGE_NAME = "divvy/agent"
_INPUTS_OF_BUILD = ("image/build.py", "image/platforms.py")
# What registries answer, in skopeo's words, where an image is not there: Harbor has a code of its
# own, and others only a status.
_ABSENT = re.compile("manifest unknown|name unknown|: unknown: .* not found|StatusCode: 404")
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)
# Somebody waits for it, and a registry that accepts a connection may never answer.
ANSWER_SECONDS = 20
_OF_A_REGISTRY = "Docker-Distribution-Api-Version"
# What buildah and skopeo say of a registry that needs leave to be insecure.
_UNVERIFIED = (
    "HTTP response to HTTPS client",
    "does not look like a TLS handshake",
    "failed to verify certificate",
)
_KEPT_BY_MAKE = ("HOME", "PATH", "TMPDIR")
# What buildah says of a base image that is for other platforms.
_NO_BASE = "no image found in image index for architecture"


class BuildFailed(Exception):
    """A tool of the build failed; the text has the end of its output."""


def input_digest(base: str) -> str:
    """Return a digest of everything that goes into the image, less the compiler of its C parts."""
    digest = hashlib.sha256(base.encode())
    for name, path in _inputs().items():
        digest.update(f"\0{name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _inputs() -> dict[str, Path]:
    """Return every input by a name that is the same in a checkout and in an installed package."""
    paths = [PLUGIN_IMAGE / "Containerfile", AGENT_REQUIREMENTS]
    paths += [path for path in _HOOK.iterdir() if path.suffix in (".c", ".h", "")]
    paths += [path for path in _LIMITER.rglob("*") if path.suffix in (".c", ".h", "")]
    paths += [PACKAGE / name for name in (*_FILES, *_INPUTS_OF_BUILD)]
    for room in _ROOMS:
        paths += [path for path in (PACKAGE / room).rglob("*") if "__pycache__" not in path.parts]
    named = {str(path.relative_to(PACKAGE)): path for path in paths if path.is_file()}
    return dict(sorted(named.items()))


def _is_of_the_agent(name: str) -> bool:
    """Return whether an input is part of the package that the image carries."""
    return name.partition("/")[0] in (*_ROOMS, *_FILES)


def require_tools(what: str, *tools: str) -> None:
    """Raise BuildFailed with every program that this machine lacks to build something."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise BuildFailed(
            f"{what} cannot be built on this machine: {', '.join(missing)} not found. Install "
            f"{'it' if len(missing) == 1 else 'them'}, or build the image elsewhere and name it by "
            "digest (plugin.image.reference in the stack file)"
        )


def build_tools(platforms: Iterable[Platform]) -> tuple[str, ...]:
    """Return the programs that building an image takes; none of them needs root."""
    return ("buildah", "make", *dict.fromkeys(platform.compiler for platform in platforms))


def compile_hook(folder: Path, compiler: str = "cc") -> Path:
    """Compile the container hook into ``folder`` and return it; raises BuildFailed."""
    require_tools("the container hook", "make", compiler)
    make(_HOOK, folder, compiler)
    return folder / "divvy-hook"


def compile_limiter(folder: Path, compiler: str = "cc") -> Path:
    """Compile the limiter's libraries into ``folder`` and return it; raises BuildFailed."""
    require_tools("the limiter", "make", compiler)
    make(_LIMITER, folder, compiler)
    return folder


def make(source: Path, folder: Path, compiler: str = "cc") -> None:
    """Compile what is in ``source`` into ``folder``; raises BuildFailed, in one line."""
    # The user's own CFLAGS may be for the processor of this machine, and a node has another.
    kept = {name: os.environ[name] for name in _KEPT_BY_MAKE if name in os.environ}
    command = ("make", "--silent", "-C", str(source), f"BUILD={folder.resolve()}", f"CC={compiler}")
    _run(*command, environment=kept)


def build_and_push(
    registry: str,
    base: str,
    inputs: str | None = None,
    *,
    insecure: bool = False,
    platforms: Iterable[str] = DEFAULT_PLATFORMS,
) -> str:
    """Build, push to ``registry`` and return the reference by digest; raises BuildFailed.

    ``inputs`` is the digest that the image will be known by: what was edited since
    it was taken must not be hidden behind it. ``insecure``: the registry may speak plain HTTP.
    The reference is that of an image, or with several ``platforms`` of their images' index.
    """
    wanted = platforms_of(platforms)
    require_tools("the agent's image", *build_tools(wanted))
    with tempfile.TemporaryDirectory(prefix="divvy-image-") as scratch:
        sources = input_digest(base)
        contexts = {}
        for platform in wanted:
            contexts[platform] = Path(scratch, platform.architecture)
            _lay_out(contexts[platform], sources, platform)
        if input_digest(base) != (inputs or sources):
            raise BuildFailed(
                "a source of the agent's image changed during the build: run it again"
            )
        return push_contexts(
            contexts, registry, IMAGE_NAME, base, f"{sources[:12]}-", insecure=insecure
        )


def build_layout(
    layout: Path, base: str, platforms: Iterable[str] = DEFAULT_PLATFORMS, *, insecure: bool = False
) -> None:
    """Build into an OCI image layout in a folder; raises BuildFailed.

    Several platforms have an index there, as in a registry; ``insecure`` is for the base's.
    """
    wanted = platforms_of(platforms)
    require_tools("the agent's image", *build_tools(wanted))
    with tempfile.TemporaryDirectory(prefix="divvy-image-") as scratch:
        contexts = {platform: Path(scratch, platform.architecture) for platform in wanted}
        for platform, context in contexts.items():
            _lay_out(context, input_digest(base), platform)
        _build_to(f"oci:{layout}", contexts, base, tls_verify(insecure))


def push_context(
    context: Path, registry: str, name: str, base: str, *, insecure: bool = False
) -> str:
    """Build the Containerfile in ``context`` on ``base`` and push it; return it by digest.

    ``insecure`` is for this registry: a base image from elsewhere is pulled with TLS verified.
    """
    return push_contexts({LINUX_AMD64: context}, registry, name, base, insecure=insecure)


def push_contexts(
    contexts: Mapping[Platform, Path],
    registry: str,
    name: str,
    base: str,
    tag_prefix: str = "",
    *,
    insecure: bool = False,
) -> str:
    """Build a context for each platform as ``push_context`` does, and push them as one image.

    Several are pushed with an index: the digest that is returned is the index's.
    """
    # A registry may remove what has no tag, or refuse a tag that it has: another cluster's image
    # of the same sources may be another compiler's.
    tag = f"{tag_prefix}{uuid.uuid4().hex[:12]}"
    pull = tls_verify(insecure and _host(base) == _host(registry))
    with tempfile.NamedTemporaryFile("r", prefix="divvy-digest-") as digest:
        push = (tls_verify(insecure), "--digestfile", digest.name)
        _build_to(f"docker://{registry}/{name}:{tag}", contexts, base, pull, *push)
        return f"{registry}/{name}@{digest.read().strip()}"


def _build_to(
    target: str, contexts: Mapping[Platform, Path], base: str, pull: str, *push: str
) -> None:
    """Build a context for each platform and push them to ``target``, several with an index."""
    # A name of its own: another build on this machine may end between this one's steps.
    name = f"localhost/divvy-build:{uuid.uuid4().hex}"
    images = {platform: f"{name}-{platform.architecture}" for platform in contexts}
    try:
        for platform, context in contexts.items():
            _build(context, images[platform], base, pull, platform)
        if len(images) == 1:
            _run("buildah", "push", "--quiet", *push, *images.values(), target)
        else:
            stored = (f"containers-storage:{image}" for image in images.values())
            _run("buildah", "manifest", "create", name, *stored)
            options = ("--all", "--format=oci", *push)
            _run("buildah", "manifest", "push", *options, name, target)
    finally:
        if len(images) > 1:
            with contextlib.suppress(BuildFailed):  # there may be none yet
                _run("buildah", "manifest", "rm", name)
        with contextlib.suppress(BuildFailed):  # not all of them were built
            _run("buildah", "rmi", *images.values())


def _build(context: Path, tag: str, base: str, pull: str, platform: Platform) -> None:
    foreign = () if platform.is_native else (f"--platform={platform.name}",)
    try:
        _run(
            *("buildah", "build", "--quiet", "--timestamp=0", "--layers=false", pull, *foreign),
            *(f"--build-arg=BASE={base}", "--tag", tag, str(context)),
        )
    except BuildFailed as problem:
        if _NO_BASE in str(problem):
            raise BuildFailed(
                f"{base} is not for {platform.name}: name a base that is (plugin.image.base), "
                "or leave that platform out (plugin.image.platforms)"
            ) from None
        raise


def exists(reference: str, *, insecure: bool = False) -> bool:
    """Tell whether a registry still has an image; raises BuildFailed if it does not say."""
    if insecure:
        status = _manifest_status(_host(reference), reference)
        if status in (200, 404):
            return status == 200
    # With TLS, or a log-in: skopeo has the credentials.
    try:
        inspect(reference, "--raw", tls_verify(insecure))
    except BuildFailed as problem:
        if _ABSENT.search(str(problem)):
            return False
        raise BuildFailed(f"cannot tell whether {reference} still exists: {problem}") from None
    return True


def inspect(reference: str, *options: str) -> str:
    """Return what skopeo prints of an image in a registry; raises BuildFailed."""
    patience = f"--command-timeout={ANSWER_SECONDS}s"
    return _run("skopeo", "inspect", patience, *options, f"docker://{reference}")


def _manifest_status(registry: str, reference: str) -> int | None:
    """Ask a registry without TLS or log-in directly: ten times as fast as skopeo.

    Return the HTTP status, None if no registry has answered.
    """
    name, digest = reference.removeprefix(f"{registry}/").split("@")
    connection = http.client.HTTPConnection(registry, timeout=5)
    accepted = ", ".join(_MANIFESTS)
    try:
        connection.request("HEAD", f"/v2/{name}/manifests/{digest}", headers={"Accept": accepted})
        answer = connection.getresponse()
        return answer.status if answer.getheader(_OF_A_REGISTRY) else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _lay_out(context: Path, sources: str, platform: Platform) -> None:
    context.mkdir(exist_ok=True)
    shutil.copy(PLUGIN_IMAGE / "Containerfile", context)
    compile_hook(context, platform.compiler)
    with tempfile.TemporaryDirectory(prefix="divvy-limiter-") as scratch:
        built = compile_limiter(Path(scratch), platform.compiler)
        (context / "divvy-limiter").mkdir()
        for library in built.glob("*.so.1"):
            shutil.copy(library, context / "divvy-limiter")
    site = context / "site"
    install_pinned(AGENT_REQUIREMENTS, site, platform)
    for name, path in _inputs().items():
        if _is_of_the_agent(name):
            target = site / "divvy" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    # The agent says it in its status: who looks at a cluster can tell whose sources run there.
    (site / "divvy/agent/BUILT_FROM").write_text(sources)
    compile_bytecode(site, optimize=2)
    readable_by_all(context)


def install_pinned(requirements: Path, site: Path, platform: Platform = LINUX_AMD64) -> None:
    """Install pinned packages for the base image's Python; raises BuildFailed."""
    _run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"),
        *("--disable-pip-version-check", "--root-user-action=ignore", "--require-hashes"),
        *(*platform.wheels, "--target", str(site), "-r", str(requirements)),
    )
    shutil.rmtree(site / "bin", ignore_errors=True)


def compile_bytecode(site: Path, optimize: int) -> None:
    """Compile to bytecode that does not depend on file times: it starts sooner, and is the same."""
    compileall.compile_dir(
        site,
        quiet=2,
        optimize=optimize,
        stripdir=str(site),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def readable_by_all(folder: Path) -> None:
    """Let everybody read what is in a folder, whatever the mask of who laid it out.

    The template maker is not root in its container.
    """
    for path in folder.rglob("*"):
        mode = path.stat().st_mode
        path.chmod(mode | (0o555 if path.is_dir() or mode & 0o100 else 0o444))


def _host(image: str) -> str:
    """Return an image's or a registry's host, with its port."""
    return image.split("/", 1)[0]


def tls_verify(insecure: bool) -> str:
    """Return the option of buildah and skopeo that says whether TLS is verified."""
    return f"--tls-verify={'false' if insecure else 'true'}"


def _run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program with an environment, by default this process's own; return its output."""
    own = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    try:
        result = subprocess.run(
            command,
            env=own if environment is None else environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError:
        raise BuildFailed(f"{command[0]} is not installed") from None
    if result.returncode:
        lines = (result.stderr or result.stdout).strip().splitlines()
        # buildah and skopeo log each attempt, and end with the error.
        errors = [line for line in lines if line.startswith("Error:")]
        why = f"{' '.join(command[:2])} failed: {' / '.join(errors or lines[-3:])}"
        if any(words in why for words in _UNVERIFIED):
            why += "; `plugin.image.insecure: true` in the stack file skips that verification"
        raise BuildFailed(why)
    return result.stdout


if __name__ == "__main__":
    insecure, platforms = "--insecure" in sys.argv[3:], named_platforms(sys.argv[3:])
    if sys.argv[1] == "--layout":
        build_layout(Path(sys.argv[2]), sys.argv[3], platforms, insecure=insecure)
    else:
        print(build_and_push(sys.argv[1], sys.argv[2], insecure=insecure, platforms=platforms))
