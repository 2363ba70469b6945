"""Build what can be published of the last commit.

python -m release [--key FILE] [--base IMAGE [--platform NAME]...] [--out DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from divvy.image.platforms import (
    DEFAULT_PLATFORMS,
    PLATFORMS,
    platform_options,
    platforms_of,
)
from release.archive import normalized
from release.image import image_archive
from release.sbom import sbom

REPOSITORY = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"
# Of `ssh-keygen -Y sign`: a signature is good for this use alone.
NAMESPACE = "divvy-release"
# setuptools changes sys.argv.
_BUILD = """\
import sys
import setuptools.build_meta as backend
folder = sys.argv[1]
backend.build_wheel(folder)
backend.build_sdist(folder)
"""


def main() -> None:
    """Fill the folder, or end with one error and leave it as it was."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--key", type=Path, help="private SSH key that signs the checksums")
    parser.add_argument("--base", help="base of the agent's image, by digest; without it: no image")
    parser.add_argument(
        "--platform", action="append", choices=sorted(PLATFORMS), default=[],
        help=f"platforms of the agent's image; {', '.join(DEFAULT_PLATFORMS)} by default",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist")
    options = parser.parse_args()
    if options.key is not None and not options.key.is_file():
        parser.error(f"--key {options.key}: there is no such file")
    out = options.out.resolve()
    if not _is_replaceable(out):
        sys.exit(f"error: --out {out}: it has other files than a release's: name a new folder")
    try:
        _fill(out, options.key, options.base, options.platform or DEFAULT_PLATFORMS)
    except OSError as problem:
        sys.exit(f"error: {problem}")
    for path in sorted(out.iterdir()):
        print(path.name)
    if options.base is None:
        print("without the agent's image: name its base by digest (make dist BASE=...)")
    if changed := _run("git", "status", "--porcelain", folder=REPOSITORY):
        count = len(changed.splitlines())
        print(f"built from the last commit: changes of {count} files are not in it")


def _is_replaceable(folder: Path) -> bool:
    """Return whether nothing but an earlier release is lost with a folder."""
    if not folder.is_dir():
        return not folder.exists()
    files = {SUMS, f"{SUMS}.sig"}
    if (folder / SUMS).is_file():
        lines = (folder / SUMS).read_text(encoding="utf-8", errors="replace").splitlines()
        files |= {line.partition("  ")[2] for line in lines}
    return all(path.is_file() and path.name in files for path in folder.iterdir())


def _fill(folder: Path, key: Path | None, base: str | None, platforms: Sequence[str]) -> None:
    """Build beside the folder, and take its place once everything is there; raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=folder.parent) as scratch:
        sources, dist = Path(scratch, "sources"), Path(scratch, "dist")
        dist.mkdir()
        _build(sources, dist, base, platforms)
        if key is not None:
            _run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, dist / SUMS)
        if folder.exists():
            folder.rename(Path(scratch, "earlier"))
        dist.rename(folder)


def _build(sources: Path, dist: Path, base: str | None, platforms: Sequence[str]) -> None:
    """Build the last commit in a clone of its own, which has the tags that name the revision."""
    _run("git", "clone", "--quiet", "--shared", REPOSITORY, sources)
    epoch = int(_run("git", "log", "-1", "--format=%ct", folder=sources))
    # A wheel has the files' times and modes, and the order of sets of names in places.
    fixed = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    _run(sys.executable, "-c", _BUILD, dist, folder=sources, variables=fixed)
    for archive in dist.glob("*.tar.gz"):
        archive.write_bytes(normalized(archive.read_bytes(), epoch))
    project = tomllib.loads((sources / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    pins = {
        str(path.relative_to(sources)): path.read_text(encoding="utf-8")
        for path in (sources / "requirements").glob("*.txt")
    }
    bill = dist / f"{name.replace('-', '_')}-{version}.cdx.json"
    bill.write_text(sbom(name, version, pins, epoch, base), encoding="utf-8")
    # Chart and image are made by the wheel itself: it has everything that they need.
    (wheel,) = dist.glob("*.whl")
    package = sources.parent / "package"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(package)
    installed = {"PYTHONPATH": str(package), "LC_ALL": "C.UTF-8"}
    _run(
        *(sys.executable, "-c", "from divvy.cli.main import main; main()"),
        *("chart", "--package", "--out", dist),
        *("--file", sources / "release/Pulumi.release.yaml", "--chart-version", version),
        folder=package,
        variables=installed,
    )
    if base is not None:
        layout = sources.parent / "layout"
        build = (sys.executable, "-m", "divvy.image.build", "--layout", layout, base)
        _run(*build, *platform_options(platforms), folder=package, variables=installed)
        wanted = platforms_of(platforms)
        only = f"-{wanted[0].architecture}" if len(wanted) == 1 else ""
        archive = dist / f"divvy-agent-{version}{only}.oci.tar"
        archive.write_bytes(image_archive(layout))
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
    ]
    (dist / SUMS).write_text("".join(lines), encoding="utf-8")


def _run(
    *command: object, folder: Path | None = None, variables: dict[str, str] | None = None
) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder, env={**os.environ, **(variables or {})}, umask=0o022,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()[-20:]
        sys.exit("\n".join([f"error: {command[0]} failed:", *words]))
    return done.stdout


if __name__ == "__main__":
    main()
