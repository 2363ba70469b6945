"""Build the agent's image with buildah and push it; the same inputs give the same digest."""

from __future__ import annotations

import compileall
import hashlib
import http.client
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from divvy.sources import AGENT_REQUIREMENTS, PACKAGE, PLUGIN_IMAGE

_HOOK = PLUGIN_IMAGE / "hook"
_LIMITER = PLUGIN_IMAGE / "limiter"
_ROOMS = ("agent", "claim_templates", "kube", "model", "plan", "preemption")
_FILES = ("__init__.py", "atomic_file.py", "py.typed")
_NAME = "divvy/agent"
BUILD_TOOLS = ("buildah", "make", "cc")
"""Programs that building an image takes; none of them needs root."""
# What registries answer, in skopeo's words, where an image is not there.
_ABSENT = ("manifest unknown", "name unknown")
# What buildah and skopeo say of a registry that needs leave to be insecure.
_UNVERIFIED = (
    "HTTP response to HTTPS client",
    "does not look like a TLS handshake",
    "failed to verify certificate",
)
# The base image's Python and C library: what wheels must fit.
_WHEELS = (
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.11",
    *(
        f"--platform={name}_x86_64"
        for name in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
    ),
)


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
    paths += [PACKAGE / name for name in (*_FILES, "image/build.py")]
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


def compile_hook(folder: Path) -> Path:
    """Compile the container hook into ``folder`` and return it; raises BuildFailed."""
    require_tools("the container hook", "make", "cc")
    make(_HOOK, folder)
    return folder / "divvy-hook"


def compile_limiter(folder: Path) -> Path:
    """Compile the limiter's libraries into ``folder`` and return it; raises BuildFailed."""
    require_tools("the limiter", "make", "cc")
    make(_LIMITER, folder)
    return folder


def make(source: Path, folder: Path) -> None:
    """Compile what is in ``source`` into ``folder``; raises BuildFailed, in one line."""
    _run("make", "--silent", "-C", str(source), f"BUILD={folder.resolve()}")


def build_and_push(
    registry: str, base: str, inputs: str | None = None, *, insecure: bool = False
) -> str:
    """Build, push to ``registry`` and return the reference by digest; raises BuildFailed.

    ``inputs`` is the digest that the image will be known by: what was edited since
    it was taken must not be hidden behind it. ``insecure``: the registry may speak plain HTTP.
    """
    require_tools("the agent's image", *BUILD_TOOLS)
    with tempfile.TemporaryDirectory(prefix="divvy-image-") as scratch:
        context = Path(scratch)
        sources = input_digest(base)
        _lay_out(context, sources)
        if input_digest(base) != (inputs or sources):
            raise BuildFailed(
                "a source of the agent's image changed during the build: run it again"
            )
        return push_context(context, registry, _NAME, base, insecure=insecure)


def build_layout(layout: Path, base: str) -> None:
    """Build into an OCI image layout in a folder; raises BuildFailed."""
    require_tools("the agent's image", *BUILD_TOOLS)
    with tempfile.TemporaryDirectory(prefix="divvy-image-") as scratch:
        context = Path(scratch)
        _lay_out(context, input_digest(base))
        tag = f"localhost/{_NAME}:{layout.name}"
        _build(context, tag, base, _tls_verify(insecure=False))
        _run("buildah", "push", "--quiet", tag, f"oci:{layout}")
        _run("buildah", "rmi", tag)


def push_context(
    context: Path, registry: str, name: str, base: str, *, insecure: bool = False
) -> str:
    """Build the Containerfile in ``context`` on ``base`` and push it; return it by digest.

    ``insecure`` is for this registry: a base image from elsewhere is pulled with TLS verified.
    """
    tag = f"{registry}/{name}:latest"
    pull = _tls_verify(insecure and _host(base) == _host(registry))
    _build(context, tag, base, pull)
    digest_file = context / "digest"
    _run("buildah", "push", "--quiet", _tls_verify(insecure), "--digestfile", str(digest_file), tag)
    return f"{registry}/{name}@{digest_file.read_text().strip()}"


def _build(context: Path, tag: str, base: str, pull: str) -> None:
    _run(
        *("buildah", "build", "--quiet", "--timestamp=0", "--layers=false", pull),
        *(f"--build-arg=BASE={base}", "--tag", tag, str(context)),
    )


def exists(reference: str, *, insecure: bool = False) -> bool:
    """Tell whether a registry still has an image; raises BuildFailed where it does not say."""
    if insecure:
        status = _manifest_status(_host(reference), reference)
        if status in (200, 404):
            return status == 200
    # With TLS, or a log-in: skopeo has the credentials.
    try:
        _run("skopeo", "inspect", "--raw", _tls_verify(insecure), f"docker://{reference}")
    except BuildFailed as problem:
        if any(absent in str(problem) for absent in _ABSENT):
            return False
        raise BuildFailed(f"cannot tell whether {reference} still exists: {problem}") from None
    return True


def _manifest_status(registry: str, reference: str) -> int | None:
    """Ask a registry without TLS or log-in directly: ten times as fast as skopeo.

    Return the HTTP status, None where no HTTP was spoken.
    """
    name, digest = reference.removeprefix(f"{registry}/").split("@")
    connection = http.client.HTTPConnection(registry, timeout=5)
    accepted = "application/vnd.oci.image.manifest.v1+json"
    try:
        connection.request("HEAD", f"/v2/{name}/manifests/{digest}", headers={"Accept": accepted})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _lay_out(context: Path, sources: str) -> None:
    shutil.copy(PLUGIN_IMAGE / "Containerfile", context)
    compile_hook(context)
    with tempfile.TemporaryDirectory(prefix="divvy-limiter-") as scratch:
        built = compile_limiter(Path(scratch))
        (context / "divvy-limiter").mkdir()
        for library in built.glob("*.so.1"):
            shutil.copy(library, context / "divvy-limiter")
    site = context / "site"
    install_pinned(AGENT_REQUIREMENTS, site)
    for name, path in _inputs().items():
        if _is_of_the_agent(name):
            target = site / "divvy" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    # The agent says it in its status: who looks at a cluster can tell whose sources run there.
    (site / "divvy/agent/BUILT_FROM").write_text(sources)
    compile_bytecode(site, optimize=2)
    readable_by_all(context)


def install_pinned(requirements: Path, site: Path) -> None:
    """Install pinned packages for the base image's Python; raises BuildFailed."""
    _run(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"),
        *("--disable-pip-version-check", "--root-user-action=ignore", "--require-hashes"),
        *(*_WHEELS, "--target", str(site), "-r", str(requirements)),
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


def _tls_verify(insecure: bool) -> str:
    return f"--tls-verify={'false' if insecure else 'true'}"


def _run(*command: str) -> str:
    environment = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    try:
        result = subprocess.run(
            command,
            env=environment,
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
    if sys.argv[1] == "--layout":
        build_layout(Path(sys.argv[2]), sys.argv[3])
    else:
        print(build_and_push(sys.argv[1], sys.argv[2], insecure="--insecure" in sys.argv[3:]))
