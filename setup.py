"""What pyproject.toml cannot say of the build: gRPC stubs, and the revision of the sources."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

API = Path("divvy/agent/kubelet/api")
REVISION = Path("divvy/revision.txt")


def _write_revision(folder: Path) -> None:
    """Write the revision that is built, as ``git describe`` names it."""
    if REVISION.is_file():
        return  # an archive has its own already, and a git around it is its packager's
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        path = folder / REVISION
        path.unlink(missing_ok=True)  # sdist links the files of the work tree
        path.write_text(done.stdout, encoding="utf-8")


class BuildWithStubs(build_py):
    """Generates the stubs of the kubelet's interfaces; in a checkout, set-up has done so."""

    def run(self) -> None:
        """Copy the packages, and put the stubs beside them."""
        super().run()
        if self.editable_mode:
            return
        _write_revision(Path(self.build_lib))
        from grpc_tools import protoc  # noqa: PLC0415 (only a wheel needs it)

        outputs = [
            f"--{kind}={self.build_lib}" for kind in ("python_out", "pyi_out", "grpc_python_out")
        ]
        protos = [str(path) for path in sorted(API.glob("*.proto"))]
        # Paths from the root make the stubs import each other as divvy.agent.kubelet.api.….
        if protoc.main(["protoc", "-I.", *outputs, *protos]):
            raise SystemExit(f"the gRPC stubs of {API} cannot be generated")


class SourceWithRevision(sdist):
    """Puts the revision into the archive, which has no git."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Lay out the archive's files."""
        super().make_release_tree(base_dir, files)
        _write_revision(Path(base_dir))


setup(cmdclass={"build_py": BuildWithStubs, "sdist": SourceWithRevision})
