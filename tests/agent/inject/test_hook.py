"""The container hook, under sanitizers, over root file systems made to lead it outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from divvy.agent.inject.hook import Hook, install_hook, remove_older
from divvy.agent.inject.problem import InjectionProblem
from divvy.lab.paths import REPOSITORY
from plugin_image.build import compile_hook

SOURCE = REPOSITORY / "plugin_image/hook"
BUILD = REPOSITORY / "build/hook"
C_SOURCES = Path(__file__).parent / "hook"
LDCONFIG = Path("/sbin/ldconfig")
GIVEN = ("--cuda=12.4", "--driver=550.163.01", "--brand=nvidia", "--arch=8.0")
FOLDER = "/opt/driver"
CONF = "/etc/ld.so.conf.d/00-divvy.conf"
administrator = pytest.mark.skipif(
    os.geteuid() != 0, reason="a hook runs as root: it makes namespaces"
)


@pytest.fixture(scope="module")
def sanitized() -> Path:
    return _sanitized(BUILD)


def _sanitized(folder: Path, *more: str) -> Path:
    # The hook clears its environment: only a function can tell the sanitizer anything.
    options = f"MORE={C_SOURCES / 'sanitizer.c'}"
    command = ["make", "--silent", "-C", SOURCE, f"BUILD={folder}", options, *more, "asan"]
    subprocess.run(command, check=True)
    return folder / "asan"


@pytest.mark.parametrize("name", ["vectors", "mutations"])
def test_requirements_and_texts(sanitized: Path, name: str) -> None:
    program = sanitized / name
    sources = [SOURCE / "json.c", SOURCE / "require.c", C_SOURCES / f"{name}.c"]
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
    mounted: str = ":"
    """What the runtime mounts in the container, as a shell command."""

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

    def command(self, *, cache: bool = True) -> list[str]:
        """Return the call as a runtime makes it: in a PID namespace with its /proc."""
        specification = {"root": {"path": "rootfs"}, "process": {"env": self.environment}}
        (self.folder / "bundle/config.json").write_text(json.dumps(specification))
        command = [str(self.program), *GIVEN]
        if cache:
            command += [f"--ldconfig={self.ldconfig}", f"--folder={FOLDER}"]
        proc = self.root / "proc"
        # The first process keeps the host's root, as the runtime's does: /proc/1/root is it.
        script = f'[ -L {proc} ] || mount -t proc proc {proc}; {self.mounted}; "$@"; exit $?'
        return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", *command]

    @property
    def state(self) -> str:
        """Return what the runtime writes to the hook."""
        return json.dumps({"ociVersion": "1.2.0", "bundle": str(self.folder / "bundle")})

    def call(self, *, cache: bool = True) -> subprocess.CompletedProcess[str]:
        """Call the hook as a runtime does."""
        return subprocess.run(
            self.command(cache=cache),
            input=self.state,
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


@administrator
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
    assert (container.root / "opt/driver/libm.so.6").readlink() == Path("libm.so.550.1")
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
    command = ["cc", "-static", "-D_GNU_SOURCE", "-Wall", "-Werror"]
    subprocess.run([*command, "-o", container.ldconfig, C_SOURCES / "rights.c"], check=True)
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "kept").touch()
    (container.root / "vol").mkdir()
    (container.root / "opt/driver/volume").mkdir()
    os.mknod(container.root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    library = container.root / "opt/driver/libm.so.550.1"
    container.mounted = (
        f"mount --bind {volume} {container.root}/vol; "
        f"mount --bind {volume} {container.root}/opt/driver/volume; "
        f"mount --bind /lib/x86_64-linux-gnu/libm.so.6 {library}"
    )
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert (container.root / "etc/rights").read_text().splitlines() == [
        "pid 1",
        "capabilities 2 10",  # CAP_DAC_OVERRIDE, CAP_BLOCK_SUSPEND
        "bounding 2",
        "no new privileges 1",
        "variables 0",
        "proc 3",  # ".", ".." and our own configuration
        "open 0",
        "volume 2",  # "." and "..": what the image has there, not what is mounted
        "writing a driver's file: Read-only file system",
        "opening a device: Permission denied",
        "writing to a volume beside it: Read-only file system",
        "running a program: Permission denied",
    ]


@administrator
def test_volumes_are_neither_read_nor_written(container: Container, tmp_path: Path) -> None:
    """The image leads /etc into a volume that its own user could not write."""
    volume = tmp_path / "volume"
    (volume / "etc/ld.so.conf.d").mkdir(parents=True)
    (volume / "etc/ld.so.cache").write_text("the volume's own")
    os.mkfifo(volume / "etc/ld.so.conf")
    (container.root / "vol").mkdir()
    shutil.rmtree(container.root / "etc")
    (container.root / "etc").symlink_to("/vol/etc")
    container.mounted = f"mount --bind {volume} {container.root}/vol"
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert (volume / "etc/ld.so.cache").read_text() == "the volume's own"
    assert list((volume / "etc/ld.so.conf.d").iterdir()) == []


@administrator
def test_what_a_volume_hides_is_the_images_own(container: Container, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    container.mounted = f"mount --bind {volume} {container.root}/etc"
    assert container.call().returncode == 0
    assert list(volume.iterdir()) == []
    assert f"{FOLDER}/libm.so.6" in container.cached()


@administrator
def test_a_driver_folder_on_a_volume_is_read_only(container: Container, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", volume / "libm.so.550.1")
    container.mounted = f"mount --bind {volume} {container.root}/opt/driver"
    assert container.call().returncode == 0
    assert [path.name for path in volume.iterdir()] == ["libm.so.550.1"]


@pytest.fixture(scope="module")
def hanging(sanitized: Path) -> Path:
    """Build a hook that gives an image up after a second."""
    quick = sanitized / "quick"
    command = ["make", "--silent", "-C", SOURCE, f"BUILD={quick}", "CFLAGS=-DDIVVY_HOOK_SECONDS=1"]
    subprocess.run(command, check=True)
    return quick / "divvy-hook"


def _hang(container: Container) -> None:
    (container.root / "etc/ld.so.conf").unlink()
    os.mkfifo(container.root / "etc/ld.so.conf")


@administrator
def test_a_hanging_image_is_given_up(container: Container, hanging: Path) -> None:
    container.program = hanging
    _hang(container)
    done = container.call()
    assert done.returncode == 1
    assert "did not end within 1 s" in done.stderr


@contextmanager
def _at_work(container: Container, *prefix: str) -> Iterator[tuple[int, int]]:
    """Call the hook over an image that hangs; give the process IDs of the hook and of ldconfig."""
    _hang(container)
    command = [*prefix, *container.command()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as caller:
        assert caller.stdin is not None
        caller.stdin.write(container.state)
        caller.stdin.close()
        yield (
            _process(caller.pid, b"\0--ldconfig="),
            _process(caller.pid, b"ldconfig\0-f\0"),
        )


def _process(ancestor: int, words: bytes) -> int:
    """Wait for a descendant whose command line has these words, and is no shell's."""
    for _ in range(100):
        below = [ancestor]
        for parent in below:
            children = Path(f"/proc/{parent}/task/{parent}/children")
            below += map(int, children.read_text().split())
        for each in below:
            line = Path(f"/proc/{each}/cmdline").read_bytes()
            if words in line and not line.startswith((b"sh\0", b"setpriv\0", b"unshare\0")):
                return each
        time.sleep(0.01)
    raise AssertionError(f"nothing has {words!r} on its command line")


def _with_rights(bounding: str, *command: str) -> tuple[str, ...]:
    """Return a command that root runs with some of its capabilities."""
    return ("setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", *command)


# What containers have by default.
USUAL = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,"
    "+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)


def _looks_into(process: int | str, rights: str) -> list[str]:
    """Return which links somebody can follow: to a process's program and file system."""
    script = f"for each in exe root cwd; do readlink /proc/{process}/$each >&2 && echo $each; done"
    command = _with_rights(rights, "sh", "-c", script)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


@administrator
def test_a_neighbour_with_the_usual_rights_can_look_into_neither(
    container: Container, hanging: Path
) -> None:
    container.program = hanging
    with _at_work(container) as processes:
        assert [_looks_into(each, USUAL) for each in processes] == [[], []]
    assert _looks_into("self", USUAL) == ["exe", "root", "cwd"]


@administrator
def test_nor_can_one_with_the_hooks_own_rights(container: Container, hanging: Path) -> None:
    """CAP_SYS_PTRACE aside, against which nothing in a pod's PID namespace helps."""
    rights = "-sys_ptrace"
    container.program = hanging
    with _at_work(container, *_with_rights(rights)) as (hook, _):
        assert _looks_into(hook, rights) == []


@administrator
def test_what_runs_is_a_copy_that_nobody_can_write(container: Container, hanging: Path) -> None:
    container.program = hanging
    files = (container.program, container.ldconfig)
    before = [path.read_bytes() for path in files]
    with _at_work(container) as processes:
        kept = [os.open(f"/proc/{each}/exe", os.O_RDONLY) for each in processes]
    for each in kept:
        assert str(Path(f"/proc/self/fd/{each}").readlink()) == "/memfd:divvy (deleted)"
        again = os.open(f"/proc/self/fd/{each}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.write(again, b"#!/bin/sh")
        with pytest.raises(PermissionError):
            os.ftruncate(again, 0)
        os.close(again)
        os.close(each)
    assert [path.read_bytes() for path in files] == before


@administrator
def test_ldconfig_ends_with_the_hook(container: Container) -> None:
    container.program = compile_hook(BUILD)
    container.mounted = "trap 'sleep 2' EXIT"  # the pod's PID namespace lives on
    with _at_work(container) as (hook, ldconfig):
        os.kill(hook, signal.SIGKILL)
        time.sleep(0.5)
        status = Path(f"/proc/{ldconfig}/status")
        assert not status.exists() or "State:\tZ" in status.read_text()


@administrator
def test_it_works_in_a_pods_user_namespace(container: Container) -> None:
    container.program = compile_hook(BUILD)
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", *container.command()],
        input=container.state,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{FOLDER}/libm.so.6" in container.cached()


@administrator
def test_an_old_kernel_is_a_refusal_with_the_reason(container: Container, sanitized: Path) -> None:
    old = sanitized / "old_kernel"
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-o", old, C_SOURCES / "old_kernel.c"]
    subprocess.run(command, check=True)
    program = compile_hook(BUILD)
    checked = subprocess.run([old, program, "--check"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (
        1,
        "divvy: this kernel has no mount_setattr: Linux 5.12 or newer is needed\n",
    )
    called = subprocess.run(
        [old, *container.command()],
        input=container.state,
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 1
    assert "Function not implemented" in called.stderr
    assert not (container.root / "etc/ld.so.cache").exists()


@administrator
def test_a_kernel_that_runs_nothing_from_memory_is_a_refusal_with_the_reason() -> None:
    setting = Path("/proc/sys/vm/memfd_noexec")
    if not setting.exists():
        pytest.skip("the kernel has no vm.memfd_noexec")
    # It holds for the PID namespace in which it is set.
    script = f'echo 2 > {setting}; exec "$@"'
    command = ["unshare", "--pid", "--fork", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, compile_hook(BUILD), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "divvy: the hook cannot run from memory: Permission denied\n",
    )


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
    before = hook.program.stat()
    assert hook == install_hook(program, tmp_path)
    assert hook.program.stat().st_ino == before.st_ino
    assert hook.program.parent.name.startswith("hook-")
    assert hook.program.read_bytes() == program.read_bytes()


def _written(path: Path, content: bytes) -> None:
    """Write as root does, whom the mode does not hold back."""
    path.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o555)


def _tampered(path: Path) -> None:
    _written(path, b"#!/bin/sh\n")


def _empty(path: Path) -> None:
    _written(path, b"")


def _cut_off(path: Path) -> None:
    _written(path, path.read_bytes()[:4096])


def _for_everybody(path: Path) -> None:
    path.chmod(0o777)


def _link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize("damage", [_tampered, _empty, _cut_off, _for_everybody, _link])
@pytest.mark.parametrize("name", ["divvy-hook", "ldconfig"])
def test_what_is_not_as_installed_is_replaced_at_the_next_start(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    program = compile_hook(BUILD)
    path = install_hook(program, tmp_path).program.with_name(name)
    content = path.read_bytes()
    damage(path)
    install_hook(program, tmp_path)
    assert path.read_bytes() == content
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o555


def _generation(folder: Path, number: int) -> Path:
    """Install something as the hook of an image."""
    program, ldconfig = folder / "program", folder / "ldconfig"
    program.write_text(f"#!/bin/sh\n# {number}\n")
    shutil.copy("/bin/true", ldconfig)
    program.chmod(0o755)
    place = install_hook(program, folder, ldconfig).program.parent
    os.utime(place, (number, number))
    return place


def test_the_hook_of_the_image_before_stays(tmp_path: Path) -> None:
    first, second, third = (_generation(tmp_path, number) for number in (1, 2, 3))
    remove_older(tmp_path, Hook(third / "divvy-hook", third / "ldconfig"))
    assert set(tmp_path.glob("hook-*")) == {second, third}
    assert not first.exists()


def test_an_older_hook_that_is_not_its_digests_goes(tmp_path: Path) -> None:
    first, second = (_generation(tmp_path, number) for number in (1, 2))
    (first / "ldconfig").chmod(0o755)
    (first / "ldconfig").write_text("tampered")
    remove_older(tmp_path, Hook(second / "divvy-hook", second / "ldconfig"))
    assert set(tmp_path.glob("hook-*")) == {second}


def test_a_hook_that_is_missing_or_does_not_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(InjectionProblem, match="not installed"):
        install_hook(tmp_path / "nothing", tmp_path)
    (tmp_path / "rubbish").write_text("rubbish")
    with pytest.raises(InjectionProblem, match="does not run"):
        install_hook(tmp_path / "rubbish", tmp_path)
    (tmp_path / "refuses").write_text("#!/bin/sh\necho 'divvy: this kernel has no x' >&2; exit 1\n")
    with pytest.raises(InjectionProblem, match="divvy-hook does not run: this kernel has no x"):
        install_hook(tmp_path / "refuses", tmp_path)


@administrator
def test_a_folder_that_is_mounted_noexec_is_told(tmp_path: Path) -> None:
    program = compile_hook(BUILD)
    script = (
        f"mount -t tmpfs -o noexec none {tmp_path} && exec .venv/bin/python -c '"
        "from pathlib import Path; from divvy.agent.inject.hook import install_hook; "
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
