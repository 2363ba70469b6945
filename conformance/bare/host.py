"""A host without Kubernetes: where its driver is, which devices it has, how programs run there."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import testinfra

from conformance.bare.gpus import APPS, QUERY, Gpu, read_gpus
from conformance.image import compile_workloads
from conformance.tested_versions import program_versions
from divvy.image.build import BuildFailed
from divvy.model import model_of_product
from divvy.stack.errors import StackError
from divvy.stack.file import read_path
from divvy.stack.sections import read_cluster

_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia")
# Those that the loader searches, and where clouds have the driver.
_FOLDERS = "usr/lib/x86_64-linux-gnu usr/lib64 usr/lib/aarch64-linux-gnu usr/lib lib64"
_ELSEWHERE = "usr/local/nvidia/lib64"
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (\S+)\)")
_GPU = re.compile(r"^GPU (\d+): (.*) \(UUID: (\S+)\)")


@dataclass(frozen=True)
class Device:
    """A GPU or MIG device that a program can use; ``memory_mib`` is what its kind should have."""

    host: str
    name: str
    uuid: str
    gpu: str
    product: str
    memory_mib: int | None

    @property
    def is_mig(self) -> bool:
        """Return whether it is a part of a GPU."""
        return self.uuid.startswith("MIG-")

    def __str__(self) -> str:
        return f"{self.host}:{self.name}"


@dataclass(frozen=True)
class CommandResult:
    """How a program ended and what it printed."""

    code: int
    log: str

    def __str__(self) -> str:
        last = self.log.strip().splitlines()[-1:] or [""]
        return f"exit code {self.code}, `{last[0]}`"


@dataclass(frozen=True)
class BareHost:
    """The host under test. Without a driver ``problem`` says what was looked for."""

    name: str
    connection: Any
    is_here: bool
    root: str
    folder: str
    expected_driver: str | None
    problem: str | None
    devices: tuple[Device, ...]

    def run(self, command: str) -> CommandResult:
        """Run a shell command with the driver's libraries and programs at hand."""
        if not self._is_searched:
            programs = f"{self.folder.rpartition('/')[0]}/bin:{self.root.rstrip('/')}/usr/bin"
            command = f"export LD_LIBRARY_PATH={self.folder} PATH={programs}:$PATH; {command}"
        result = self.connection.run(command)
        return CommandResult(result.rc, result.stdout + result.stderr)

    @property
    def simulated(self) -> bool:
        """Return whether the driver is the simulated one, by a mark that only its library has."""
        if self.problem is not None:
            return False
        return self.run(f"grep -q divvySimulated {self.folder}/libnvidia-ml.so.1").code == 0

    @property
    def driver(self) -> str:
        """Return the version that nvidia-smi tells, "" if it tells none."""
        if self.problem is not None:
            return ""
        smi = self.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
        return smi.log.strip().splitlines()[0] if smi.code == 0 and smi.log.strip() else ""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs as nvidia-smi lists them now, and who uses them."""
        table, apps = self.run(f"nvidia-smi {QUERY}"), self.run(f"nvidia-smi {APPS}")
        return read_gpus(table.log, apps.log) if table.code == 0 else ()

    def users(self, device: Device) -> str:
        """Return who uses a device's GPU, "" if it is idle."""
        return "; ".join(user for gpu in self.gpus if gpu.uuid == device.gpu for user in gpu.users)

    @property
    def environment(self) -> dict[str, str]:
        """Return what programs here need to find the driver's libraries."""
        inherited = {name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"}
        return inherited if self._is_searched else {**inherited, "LD_LIBRARY_PATH": self.folder}

    @property
    def _is_searched(self) -> bool:
        """Return whether programs find the driver's libraries without being told where."""
        return self.root == "/" and self.folder != f"/{_ELSEWHERE}"

    def start(self, program: Path, *arguments: object, device: str) -> subprocess.Popen[str]:
        """Start a program here that sees one device; its output and errors are one stream."""
        return subprocess.Popen(
            [str(program), *map(str, arguments)],
            env={**self.environment, "CUDA_VISIBLE_DEVICES": device},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def end(self, started: subprocess.Popen[str], seconds: float = 60) -> CommandResult:
        """Wait for a program that was started, and kill it where it takes too long."""
        try:
            log, _ = started.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            started.kill()
            log, _ = started.communicate()
        return CommandResult(started.returncode, log)

    def describe(self) -> dict[str, Any]:
        """Return the identity of what was tested, for the report."""
        gpus = {device.gpu for device in self.devices}
        products = sorted({device.product for device in self.devices})
        node = {
            "name": self.name,
            "pool": "",
            "profile": "",
            "gpus": len(gpus),
            "model": ", ".join(products),
            "driver": self.driver,
            "simulated": self.simulated,
            **self._system,
        }
        return {
            "stack": self.name,
            "image": "",
            "divvy": program_versions(),
            "nodes": [node],
        }

    @property
    def _system(self) -> dict[str, str]:
        # Without what the builder of a kernel has added to its version.
        answer = self.run('uname -r | cut -d- -f1; nproc; . /etc/os-release; echo "$PRETTY_NAME"')
        names = ("kernel", "processors", "os")
        return dict(zip(names, answer.log.splitlines(), strict=False)) if answer.code == 0 else {}


HOST = pytest.StashKey[BareHost]()


def open_host(config: pytest.Config) -> BareHost:
    """Look at the host that the options name."""
    host_url = config.getoption("--bare-host")
    if host_url is None:
        host_url = "local://"
    root, version = config.getoption("--driver-root"), None
    if config.getoption("--divvy-file"):
        try:
            cluster = read_cluster(read_path(Path(config.getoption("--divvy-file"))))
        except StackError as problem:
            raise pytest.UsageError(str(problem)) from None
        root, version = root or cluster.driver.root, cluster.driver.version
    try:
        connection = testinfra.get_host(host_url)
        name = connection.check_output("hostname")
    except (RuntimeError, AssertionError, ValueError) as problem:
        # testinfra's exceptions carry the whole result of the command that failed.
        match = re.search(r"_?stderr=b?['\"](.*?)(?:\\r)?(?:\\n)?['\"]", str(problem))
        text = match.group(1) if match else problem
        raise pytest.UsageError(f"{host_url} does not answer: {text}") from None
    if config.getoption("--no-identities"):
        name = "host"
    roots = (root,) if root else _ROOTS
    is_here = host_url.startswith("local")
    for candidate in roots:
        folder = _library_folder(connection, candidate)
        if folder:
            bare = BareHost(name, connection, is_here, candidate, folder, version, None, ())
            return BareHost(**{**vars(bare), "devices": _devices(bare)})
    nothing = f"no NVIDIA driver on {name}: libnvidia-ml.so.1 is not below {' or '.join(roots)}"
    return BareHost(name, connection, is_here, "/", "", version, nothing, ())


def _library_folder(connection: Any, root: str) -> str:
    place = f"{shlex.quote(root.rstrip('/'))}/$each"
    result = connection.run(
        f"for each in {_FOLDERS} {_ELSEWHERE}; do "
        f"[ -e {place}/libnvidia-ml.so.1 ] && echo {place} && break; done"
    )
    return str(result.stdout).strip()


def _devices(host: BareHost) -> tuple[Device, ...]:
    listed = host.run("nvidia-smi -L")
    memory = host.run("nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits")
    mib = dict(re.findall(r"^(GPU-\S+), (\d+)", memory.log, re.MULTILINE))
    return devices_of(host.name, listed.log, {uuid: int(size) for uuid, size in mib.items()})


def devices_of(host: str, listed: str, memory: dict[str, int]) -> tuple[Device, ...]:
    """Return what programs can use, given `nvidia-smi -L` and the memory of each GPU in MiB."""
    devices: list[Device] = []
    cut: set[str] = set()
    number, product, gpu = "", "", ""
    for line in listed.splitlines():
        if match := _GPU.match(line):
            number, product, gpu = match.groups()
            model = model_of_product(product, memory.get(gpu, 0))
            size = None if model is None else model.memory_mib
            devices.append(Device(host, f"GPU {number}", gpu, gpu, product, size))
        elif match := _MIG.match(line):
            profile, index, uuid = match.groups()
            cut.add(gpu)
            known = model.mig.profile(profile) if model is not None and model.mig else None
            size = None if known is None else known.memory_mib
            name = f"GPU {number} MIG {index} ({profile})"
            devices.append(Device(host, name, uuid, gpu, product, size))
    # If a GPU is partitioned, programs see its parts only.
    return tuple(device for device in devices if device.is_mig or device.gpu not in cut)


@contextlib.contextmanager
def programs(host: BareHost, compiled: str | None = None) -> Iterator[str]:
    """Give the folder on the host that has the workloads: those compiled already, or from here."""
    if compiled is not None:
        with _on_host(host, Path(compiled)) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="divvy-workloads-") as scratch:
        built = Path(scratch)
        try:
            compile_workloads(built)
        except BuildFailed as problem:
            pytest.skip(str(problem))
        with _on_host(host, built) as folder:
            yield folder


@contextlib.contextmanager
def _on_host(host: BareHost, built: Path) -> Iterator[str]:
    """Give the folder on the host that has the programs: this one, or a copy."""
    if host.is_here:
        yield str(built)
        return
    folder = host.connection.check_output("mktemp -d")
    try:
        for program in sorted(path for path in built.iterdir() if path.is_file()):
            text = base64.b64encode(gzip.compress(program.read_bytes())).decode()
            target = shlex.quote(f"{folder}/{program.name}")
            host.connection.check_output(
                f"echo {text} | base64 -d | gunzip > {target} && chmod +x {target}"
            )
        yield folder
    finally:
        host.connection.run(f"rm -rf {folder}")
