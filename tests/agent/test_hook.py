"""The container hook, under sanitizers, over root file systems made to lead it outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from divvy.agent.hook import Hook, HookUnusable, install_hook, remove_older
from divvy.lab.paths import REPOSITORY
from plugin_image.build import compile_hook

SOURCE = REPOSITORY / "plugin_image/hook"
BUILD = REPOSITORY / "build/hook"
LDCONFIG = Path("/sbin/ldconfig")
GIVEN = ("--cuda=12.4", "--driver=550.163.01", "--brand=nvidia", "--arch=8.0")
FOLDER = "/opt/driver"
CONF = "/etc/ld.so.conf.d/00-divvy.conf"
administrator = pytest.mark.skipif(
    os.geteuid() != 0, reason="a hook runs as root: it makes namespaces"
)


@pytest.fixture(scope="module")
def sanitized() -> Path:
    subprocess.run(["make", "--silent", "-C", SOURCE, f"BUILD={BUILD}", "asan"], check=True)
    return BUILD / "asan"


def test_requirements_and_texts(sanitized: Path) -> None:
    program = sanitized / "vectors"
    sources = [SOURCE / "json.c", SOURCE / "require.c", Path(__file__).parent / "hook/vectors.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", f"-I{SOURCE}"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run(["cc", *flags, *sanitizers, "-o", program, *sources], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@dataclass
class Container:
    """A bundle whose root file system has a C library, and a driver's library to be found."""

    folder: Path
    program: Path
    environment: list[str] = field(default_factory=list)
    ldconfig: Path = LDCONFIG

    @property
    def root(self) -> Path:
        return self.folder / "bundle/rootfs"

    def make(self) -> None:
        for name in ("etc/ld.so.conf.d", "lib64", "proc", "opt/driver", "usr/lib64"):
            (self.root / name).mkdir(parents=True)
        (self.root / "lib64/ld-linux-x86-64.so.2").symlink_to("/opt/ld.so")
        shutil.copy("/lib64/ld-linux-x86-64.so.2", self.root / "opt/ld.so")
        (self.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", self.root / "opt/driver/libm.so.550.1")

    def call(self, *, cache: bool = True) -> subprocess.CompletedProcess[str]:
        """Call the hook as a runtime does; for the cache in a PID namespace with its /proc."""
        specification = {"root": {"path": "rootfs"}, "process": {"env": self.environment}}
        (self.folder / "bundle/config.json").write_text(json.dumps(specification))
        state = json.dumps({"ociVersion": "1.2.0", "bundle": str(self.folder / "bundle")})
        command = [str(self.program), *GIVEN]
        if cache:
            command += [f"--ldconfig={self.ldconfig}", f"--folder={FOLDER}"]
            proc = self.root / "proc"
            # The first process keeps the host's root, as the runtime's does: /proc/1/root is it.
            script = f'[ -L {proc} ] || mount -t proc proc {proc}; "$@"; exit $?'
            enter = ("unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh")
            command = [*enter, *command]
        return subprocess.run(
            command,
            input=state,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0" if cache else ""},
            capture_output=True,
            text=True,
            check=False,
        )

    def cached(self) -> str:
        listed = [LDCONFIG, "-p", "-C", self.root / "etc/ld.so.cache"]
        return subprocess.run(listed, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def container(sanitized: Path, tmp_path: Path) -> Container:
    made = Container(tmp_path, sanitized / "divvy-hook")
    made.make()
    return made


def test_an_image_for_a_newer_cuda_is_refused_with_the_reason(container: Container) -> None:
    container.environment = ["PATH=/bin", "NVIDIA_REQUIRE_CUDA=cuda>=13.0"]
    done = container.call(cache=False)
    assert done.returncode == 1
    assert "NVIDIA_REQUIRE_CUDA=cuda>=13.0, but driver 550.163.01 gives CUDA 12.4" in done.stderr
    assert done.stderr.count("\n") == 1
    container.environment.append("NVIDIA_DISABLE_REQUIRE=1")
    assert container.call(cache=False).returncode == 0


@administrator
def test_the_cache_names_the_drivers_library(container: Container) -> None:
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{FOLDER}/libm.so.6" in container.cached()
    assert (container.root / CONF[1:]).read_text() == f"{FOLDER}\n"
    assert (container.root / "etc/ld.so.cache").stat().st_mode & 0o777 == 0o644
    # What was mounted for the purpose has gone with its namespace.
    assert list((container.root / "proc").iterdir()) == []


@administrator
def test_an_images_own_compat_is_loaded_first_where_the_driver_is_too_old(
    container: Container,
) -> None:
    (container.root / "usr/local/cuda-13.0/compat").mkdir(parents=True)
    (container.root / "usr/local/cuda").symlink_to("/usr/local/cuda-13.0")
    compat = container.root / "usr/local/cuda-13.0/compat/libcuda.so.580.65.06"
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", compat)
    container.environment = ["NVIDIA_REQUIRE_CUDA=cuda>=12.0"]
    assert container.call().returncode == 0
    assert "compat" not in (container.root / CONF[1:]).read_text()
    container.environment = ["NVIDIA_REQUIRE_CUDA=cuda>=13.0"]
    assert container.call().returncode == 0
    assert (container.root / CONF[1:]).read_text() == f"/usr/local/cuda/compat\n{FOLDER}\n"


@administrator
def test_an_image_without_a_c_library_is_left_alone(container: Container) -> None:
    (container.root / "lib64/ld-linux-x86-64.so.2").unlink()
    assert container.call().returncode == 0
    assert not (container.root / "etc/ld.so.cache").exists()


Trap = Callable[[Path, Path], None]


def _up(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf.d").symlink_to("../../../../.." + str(outside))


def _absolute(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc")
    (root / "etc").symlink_to(outside)


def _by_process(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc")
    (root / "etc").symlink_to(f"/proc/1/root{outside}")


def _by_itself(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf.d").symlink_to(f"/proc/self/cwd{outside}")


def _cache(root: Path, outside: Path) -> None:
    (root / "etc/ld.so.cache").symlink_to(outside / "cache")
    (root / "etc/ld.so.cache~").symlink_to(outside / "cache")


def _scratch(root: Path, outside: Path) -> None:
    (root / "etc/ld.so.conf.d/.00-divvy.conf.new").symlink_to(outside / "conf")
    (root / CONF[1:]).symlink_to(outside / "conf")


def _no_proc(root: Path, outside: Path) -> None:
    (root / "proc").rmdir()
    (root / "proc").symlink_to(outside)


def _libraries(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "opt/driver")
    (root / "opt/driver").symlink_to(outside)


@administrator
@pytest.mark.parametrize(
    "trap", [_up, _absolute, _by_process, _by_itself, _cache, _scratch, _no_proc, _libraries]
)
def test_no_link_of_an_image_leads_outside(
    container: Container, tmp_path: Path, trap: Trap
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", outside / "libm.so.1.2")
    for name in ("cache", "conf"):
        (outside / name).write_text("untouched")
    (outside / "ld.so.conf").write_text("untouched")
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    trap(container.root, outside)
    done = container.call()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert done.returncode in (0, 1)
    assert "Sanitizer" not in done.stderr


@administrator
def test_an_ldconfig_that_a_stranger_controls_can_do_little(
    container: Container, tmp_path: Path
) -> None:
    container.ldconfig = tmp_path / "rights"
    source = Path(__file__).parent / "hook/rights.c"
    command = ["cc", "-static", "-D_GNU_SOURCE", "-Wall", "-Werror"]
    subprocess.run([*command, "-o", container.ldconfig, source], check=True)
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert (container.root / "etc/rights").read_text().splitlines() == [
        "pid 1",
        "capabilities 2 0",  # CAP_DAC_OVERRIDE alone
        "bounding 1",
        "no new privileges 1",
        "variables 0",
        "proc 3",  # ".", ".." and our own configuration
        "open 0",
    ]


@administrator
def test_a_hanging_image_is_given_up(container: Container, sanitized: Path) -> None:
    (container.root / "etc/ld.so.conf").unlink()
    os.mkfifo(container.root / "etc/ld.so.conf")
    quick = sanitized / "quick"
    subprocess.run(
        ["make", "--silent", "-C", SOURCE, f"BUILD={quick}", "CFLAGS=-DDIVVY_HOOK_SECONDS=1"],
        check=True,
    )
    container.program = quick / "divvy-hook"
    done = container.call()
    assert done.returncode == 1
    assert "did not end within 1 s" in done.stderr


@pytest.mark.parametrize("state", ["", "{}", '{"bundle": "relative"}', '{"bundle": "/none"}'])
def test_a_state_without_a_bundle_is_an_error(sanitized: Path, state: str) -> None:
    done = subprocess.run(
        [sanitized / "divvy-hook", *GIVEN], input=state, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("divvy: ")


def test_it_needs_nothing_of_the_host() -> None:
    program = compile_hook(BUILD)
    described = subprocess.run(
        ["readelf", "--program-headers", program], capture_output=True, text=True, check=True
    )
    assert "INTERP" not in described.stdout


def test_it_is_installed_once_under_its_digest(tmp_path: Path) -> None:
    program = compile_hook(BUILD)
    hook = install_hook(program, tmp_path)
    assert hook == install_hook(program, tmp_path)
    assert hook.program.parent.name.startswith("hook-")
    assert hook.program.read_bytes() == program.read_bytes()


def test_older_hooks_go_unless_a_specification_names_them(tmp_path: Path) -> None:
    hook = Hook(tmp_path / "hook-3/divvy-hook", tmp_path / "hook-3/ldconfig")
    for name in ("hook-1", "hook-2", "hook-3"):
        (tmp_path / name).mkdir()
    remove_older(tmp_path, hook, '"path": "/var/lib/divvy/hook-2/divvy-hook"')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hook-2", "hook-3"]


def test_a_hook_that_is_missing_or_does_not_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(HookUnusable, match="not installed"):
        install_hook(tmp_path / "nothing", tmp_path)
    (tmp_path / "rubbish").write_text("rubbish")
    with pytest.raises(HookUnusable, match="does not run"):
        install_hook(tmp_path / "rubbish", tmp_path)


@administrator
def test_a_folder_that_is_mounted_noexec_is_told(tmp_path: Path) -> None:
    program = compile_hook(BUILD)
    script = (
        f"mount -t tmpfs -o noexec none {tmp_path} && exec .venv/bin/python -c '"
        "from pathlib import Path; from divvy.agent.hook import install_hook; "
        f'install_hook(Path("{program}"), Path("{tmp_path}"))\''
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot be run (mounted noexec)" in done.stderr
