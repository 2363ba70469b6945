"""What the machine must be, and the Debian packages it must have."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.cluster.paths import LAB
from lab.setup.steps import StepFailed

PACKAGES = (
    "buildah",
    "busybox-static",
    "conntrack",
    "containernetworking-plugins",
    "debootstrap",
    "docker-registry",
    "etcd-server",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "make",
    "nftables",
    "python3-venv",
    "runc",
    "skopeo",
)
# What `make test-all` needs beside them: a compiler for arm64, and what runs its programs.
THOROUGH_PACKAGES = ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static")
# Debian starts these after installation; the lab runs its own copies on the same ports.
_SERVICES = {"docker-registry": "docker-registry", "etcd-server": "etcd"}
_GO_VERSION = re.compile(r"^go ?(\d+)\.(\d+)(?:\.(\d+))?", re.MULTILINE)


def what_is_missing() -> str | None:
    """Return in one sentence what keeps the lab from being set up here, None if nothing."""
    if not sys.platform.startswith("linux"):
        return "The lab needs Linux; this is " + sys.platform + "."
    if os.geteuid() != 0:
        return "The lab needs root: run make setup as root."
    if shutil.which("apt-get") is None:
        return "The lab is set up on Debian 12 with apt-get, which is missing here."
    return _go_problem()


def ensure_packages(packages: Sequence[str]) -> str:
    """Install the Debian packages that are missing."""
    missing = [name for name in packages if not _is_installed(name)]
    if not missing:
        return ""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "--quiet"],
        ["apt-get", "install", "--quiet", "--yes", "--no-install-recommends", *missing],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
            raise StepFailed(
                f"{' '.join(command[:2])} failed:\n{words}",
                f"Install by hand: {' '.join(missing)}.",
            )
    for name in missing:
        if name in _SERVICES and Path("/run/systemd/system").is_dir():
            unit = f"{_SERVICES[name]}.service"
            subprocess.run(
                ["systemctl", "disable", "--now", unit], capture_output=True, check=False
            )
    return f"installed {', '.join(missing)}"


def _is_installed(name: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", name]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout == "installed"


def _go_problem() -> str | None:
    modules = (LAB / "tools").glob("*/go.mod")
    needed = max(_go_version(path.read_text()) for path in modules)
    wanted = ".".join(map(str, needed))
    if shutil.which("go") is None:
        return f"Go {wanted} or later is missing: install it and put it on the PATH."
    # As the tools are built, with no other toolchain than the one that is installed.
    local = {**os.environ, "GOTOOLCHAIN": "local"}
    command = ["go", "env", "GOVERSION"]
    done = subprocess.run(command, env=local, capture_output=True, text=True, check=False)
    if _go_version(done.stdout) < needed:
        return f"Go {wanted} or later is needed; here is {done.stdout.strip() or 'a broken go'}."
    return None


def _go_version(text: str) -> tuple[int, ...]:
    """Return the version that go prints, or that a module asks for; () if there is none."""
    version = _GO_VERSION.search(text)
    return tuple(int(part or 0) for part in version.groups()) if version else ()
