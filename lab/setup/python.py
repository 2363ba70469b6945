"""The virtual environments, the command divvy and the generated gRPC stubs."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.cluster.paths import LAB, REPOSITORY
from lab.cluster.turns import turn_at
from lab.setup.steps import StepFailed

ENVIRONMENT = REPOSITORY / ".venv"
_PYTHON = ENVIRONMENT / "bin" / "python"
_REQUIREMENTS = REPOSITORY / "requirements" / "dev.txt"
_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install")
_API = REPOSITORY / "divvy" / "agent" / "kubelet" / "api"
_REMEDY = "If .venv is damaged, make clean removes it."


@turn_at(_REQUIREMENTS)
def ensure_environment() -> str:
    """Create .venv with exactly the pinned packages, and divvy itself in it."""
    if not _works():
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(ENVIRONMENT)], "Is python3-venv installed?")
    pip = [str(_PYTHON), *_PIP]
    done = []
    if _once("requirements", _digest(_REQUIREMENTS)):
        _run([*pip, "--require-hashes", "--requirement", str(_REQUIREMENTS)], _REMEDY)
        _note("requirements", _digest(_REQUIREMENTS))
        done.append("packages installed")
    for name, project in (("divvy", REPOSITORY), ("divvy-lab", LAB)):
        digest = _digest(project / "pyproject.toml")
        if _once(name, digest):
            here = ["--no-deps", "--no-build-isolation", "--editable", str(project)]
            _run([*pip, *here], _REMEDY)
            _note(name, digest)
            done.append(f"{name} installed")
    return ", ".join(done)


@turn_at(_REQUIREMENTS)
def ensure_stubs() -> str:
    """Generate the gRPC stubs of the .proto files that have changed."""
    protos = sorted(_API.glob("*.proto"))
    stale = [proto for proto in protos if _is_stale(proto)]
    if stale:
        outputs = [f"--{kind}=." for kind in ("python_out", "pyi_out", "grpc_python_out")]
        names = [str(proto.relative_to(REPOSITORY)) for proto in stale]
        # Paths from the root make the stubs import each other as divvy.agent.kubelet.api.….
        _run([str(_PYTHON), "-m", "grpc_tools.protoc", "-I.", *outputs, *names], _REMEDY)
        for proto in stale:
            _note(proto.name, _digest(proto) + _digest(_REQUIREMENTS))
    return f"generated from {len(stale)} files" if stale else ""


def _is_stale(proto: Path) -> bool:
    # A stub belongs to the version of the generator as well.
    has_stub = proto.with_name(f"{proto.stem}_pb2_grpc.py").is_file()
    return not has_stub or _once(proto.name, _digest(proto) + _digest(_REQUIREMENTS))


def _works() -> bool:
    """Return whether the environment's commands run, and run what is in it.

    They begin with its path: where it was moved they run nothing, and a copy's are the original's.
    """
    command = [str(ENVIRONMENT / "bin" / "pip"), "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return False
    # As in: pip 26.0 from /checkout/.venv/lib/python3.11/site-packages/pip (python 3.11)
    place = Path(done.stdout.partition(" from ")[2]).resolve()
    return done.returncode == 0 and place.is_relative_to(ENVIRONMENT.resolve())


def _once(what: str, digest: str) -> bool:
    stamp = ENVIRONMENT / f".divvy-{what}"
    return not stamp.is_file() or stamp.read_text() != digest


def _note(what: str, digest: str) -> None:
    (ENVIRONMENT / f".divvy-{what}").write_text(digest)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(command: Sequence[str], remedy: str) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise StepFailed(f"{' '.join(command[:4])} … failed:\n{words}", remedy)
