"""Set-up says what it does, what it lacks, and how to go on."""

import errno
import fcntl
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event
from typing import get_args

import pytest

from lab.cluster import pulumi, tools
from lab.cluster.description import DEFAULT_KUBERNETES, ContainerdRelease, Release
from lab.cluster.images import BASE_ARM64, IMAGES, Image, build, mirror
from lab.cluster.images.mirror import debian_mirror
from lab.cluster.paths import LAB, REPOSITORY, cache
from lab.setup import machine, parts, python
from lab.setup.steps import Step, StepFailed, run_steps

INSTALLED = "packages installed, divvy installed, divvy-lab installed"


def test_prints_one_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_steps([Step("first", lambda: "built"), Step("second", lambda: "")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[1/2] first ...")
    assert lines[0].endswith("built (0.0 s)")
    assert lines[1].endswith("there already (0.0 s)")


def test_names_the_failed_step_the_reason_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> str:
        raise StepFailed("no space left", "Make room.")

    reached: list[str] = []
    steps = [Step("build", fail), Step("after", lambda: reached.append("x") or "")]
    assert not run_steps(steps)
    assert reached == []
    captured = capsys.readouterr()
    assert captured.out.endswith("failed\n")
    assert captured.err.splitlines()[1:] == [
        "build: no space left",
        "Make room.",
        "Finished steps are not repeated: run make setup again.",
    ]


def test_runs_lanes_at_once_until_one_fails() -> None:
    started, failed = Event(), Event()
    reached: list[str] = []

    def wait_for_a_failure() -> str:
        started.set()
        assert failed.wait(10)
        return "built"

    def fail() -> str:
        assert started.wait(10)
        raise StepFailed("no network", "Plug it in.")

    def note(*words: object, **_how: object) -> None:
        if "failed" in str(words):
            failed.set()

    slow = [Step("slow", wait_for_a_failure), Step("after", lambda: reached.append("x") or "")]
    quick = [Step("quick", fail)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", note)
        assert not run_steps(slow, quick)
    assert reached == []


def test_says_at_once_why_a_step_failed(capsys: pytest.CaptureFixture[str]) -> None:
    slow_step_ended = Event()
    reasons: list[str] = []

    def fail() -> str:
        raise OSError(errno.EACCES, "Permission denied", "/cache/x")

    def wait_for_the_reason() -> str:
        deadline = time.monotonic() + 10
        while "denied" not in "".join(reasons) and time.monotonic() < deadline:
            reasons.append(capsys.readouterr().err)
            time.sleep(0.01)
        slow_step_ended.set()
        return "built"

    assert not run_steps([Step("slow", wait_for_the_reason)], [Step("quick", fail)])
    assert slow_step_ended.is_set()
    assert "".join(reasons).splitlines()[1:3] == [
        "quick: [Errno 13] Permission denied: '/cache/x'",
        "Remove what stands in the way.",
    ]


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.ENOSPC, "No space left on device", "/checkout/.venv"),
        # As pip, apt and compilers have it.
        StepFailed("could not install: [Errno 28] No space left on device", "Is .venv damaged?"),
        StepFailed("link: write /tmp/a.out: no space left on device", "Is the network there?"),
    ],
)
def test_advises_room_where_a_disk_is_full(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DIVVY_CACHE", "/cache")
    monkeypatch.delenv("TMPDIR", raising=False)
    # It tries to write, to each folder, and all may be on that disk.
    monkeypatch.setattr(tempfile, "gettempdir", lambda: pytest.fail("it was asked"))

    def fail() -> str:
        raise problem

    assert not run_steps([Step("packages", fail)])
    assert capsys.readouterr().err.splitlines()[1:3] == [
        f"packages: {problem}",
        "Make room on that disk. DIVVY_CACHE moves /cache to another, and TMPDIR /tmp.",
    ]


def test_builds_in_the_demo_what_the_lab_runs() -> None:
    done = subprocess.run(["make", "--dry-run", "demo"], capture_output=True, text=True, check=True)
    assert "-m lab.setup lab\n" in done.stdout
    kubernetes = tools.kubernetes(DEFAULT_KUBERNETES)
    assert (kubernetes, tools.CONTAINERD, tools.HELM) == tools.LAB_TOOLS
    assert (tools.PROMETHEUS, *tools.PULUMI_TOOLS) == tools.TEST_TOOLS


def test_builds_pulumi_before_the_demo_that_shows_it(tmp_path: Path) -> None:
    command = ["make", "--dry-run", "--no-print-directory", "demo-pulumi"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].endswith("-m lab.setup pulumi")
    assert "demo/deploy.sh" in lines
    assert not pulumi.is_installed(tmp_path)


def test_builds_every_release_for_all_tests() -> None:
    command = ["make", "--dry-run", "test-all"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "-m lab.setup all\n" in done.stdout
    built = {tools.KUBERNETES, *tools.OTHER_RELEASES}
    kubernetes = {tools.kubernetes(release) for release in tools.KUBERNETES_VERSIONS}
    containerd = {tools.containerd(release) for release in tools.CONTAINERD_VERSIONS}
    assert built == kubernetes | containerd - {tools.CONTAINERD}


def test_builds_pulumi_from_the_modules_that_the_documents_name() -> None:
    page = (REPOSITORY / "docs/deploying.md").read_text()
    for version in (tools.PULUMI_VERSION, tools.PULUMI_KUBERNETES_VERSION):
        assert version.removeprefix("v") in page
    module = (tools.PULUMI.module / "go.mod").read_text()
    assert f"github.com/pulumi/pulumi/pkg/v3 {tools.PULUMI_VERSION} " in module


def test_builds_kueue_for_all_tests_alone() -> None:
    assert tools.KUEUE in tools.THOROUGH_TOOLS
    assert tools.KUEUE not in {*tools.LAB_TOOLS, *tools.TEST_TOOLS, *tools.FIELD_TOOLS}
    modules = (tools.KUEUE.module / "go.mod").read_text()
    assert f"sigs.k8s.io/kueue {tools.KUEUE_VERSION} " in modules


def test_installs_a_compiler_and_an_emulator_of_arm64_for_all_tests_alone() -> None:
    assert {"gcc-aarch64-linux-gnu", "qemu-user-static"} <= {*machine.THOROUGH_PACKAGES}
    assert not {*machine.THOROUGH_PACKAGES} & {*machine.PACKAGES}
    assert BASE_ARM64 not in IMAGES.values()


def test_builds_each_release_from_its_own_modules() -> None:
    assert tuple(tools.KUBERNETES_VERSIONS) == get_args(Release)
    for release, version in tools.KUBERNETES_VERSIONS.items():
        tool = tools.kubernetes(release)
        assert f"k8s.io/kubernetes {version} " in (tool.module / "go.mod").read_text()
        assert f"gitVersion={version} " in tool.ldflags
        # One link each, and none of what the lab does not run.
        assert len(tool.packages) == 6
    assert tuple(tools.CONTAINERD_VERSIONS) == get_args(ContainerdRelease)
    for runtime, version in tools.CONTAINERD_VERSIONS.items():
        tool = tools.containerd(runtime)
        module = f"github.com/containerd/containerd/v2 {version} "
        assert module in (tool.module / "go.mod").read_text()
        assert f"version.Version={version}" in tool.ldflags


def test_reports_what_the_machine_lacks_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machine.what_is_missing() == "The lab needs root: run make setup as root."
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "go" else f"/usr/bin/{name}")
    assert machine.what_is_missing() == (
        "Go 1.26.8 or later is missing: install it and put it on the PATH."
    )
    monkeypatch.undo()
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go1.19.8\n")
    old.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.what_is_missing() in (
        "Go 1.26.8 or later is needed; here is go1.19.8.",
        "The lab is set up on Debian 12 with apt-get, which is missing here.",
    )


def test_needs_the_newest_go_that_a_module_asks_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    modules = (LAB / "tools").glob("*/go.mod")
    asked = [line.split()[1] for path in modules for line in path.read_text().splitlines()
             if line.startswith("go ")]  # fmt: skip
    newest = max(asked, key=lambda version: [int(part) for part in version.split(".")])
    assert newest == "1.26.8"
    for page in ("README.md", "CONTRIBUTING.md"):
        assert f"Go {newest} or later" in (REPOSITORY / page).read_text().replace("\n", " ")
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\n[ "$GOTOOLCHAIN" = local ] || exit 1\necho go1.26.7\n')
    go.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert machine.what_is_missing() == "Go 1.26.8 or later is needed; here is go1.26.7."
    go.write_text("#!/bin/sh\necho go1.27rc1\n")
    assert machine.what_is_missing() is None


def test_keeps_a_cache_with_a_relative_path_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIVVY_CACHE", "build/cache")
    assert cache() == REPOSITORY / "build/cache"
    monkeypatch.delenv("DIVVY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache() == Path("/home/someone/.cache/divvy")


def test_keeps_an_image_that_another_set_up_has_built_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = tmp_path / "images/base-1"

    def buildah(command: Sequence[str]) -> str:
        kind, _, path = command[-1].partition(":")
        if kind == "oci":
            Path(path).mkdir()
            layout.mkdir(parents=True)
            (layout / "index.json").write_text("in use")
        return ""

    monkeypatch.setattr(build, "run", buildah)
    build.build_layout(layout, lambda _root: None, ("sh",))
    assert (layout / "index.json").read_text() == "in use"
    assert list(layout.parent.iterdir()) == [layout]


def test_takes_debian_from_a_mirror_that_apt_has_a_list_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Debian's own images for clouds have it.
    mirrors = tmp_path / "debian.list"
    mirrors.write_text("# the nearest\nhttps://deb.example/debian\tpriority:1\nhttp://b.example/\n")
    listed = f"mirror+file:{mirrors}/|bookworm|main|Packages\n"
    monkeypatch.setattr(mirror, "run", lambda command: listed if "get" in command[0] else "")
    assert debian_mirror("bookworm").uri == "https://deb.example/debian"
    mirrors.write_text("# none\n")
    with pytest.raises(build.ImageBuildFailed, match="names no mirror"):
        debian_mirror("bookworm")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the commands that set-up of Python runs, of which each only makes what it should."""
    ran: list[str] = []

    def run(command: Sequence[str], _remedy: str) -> None:
        ran.append(command[2])
        python.ENVIRONMENT.mkdir(exist_ok=True)
        if command[2] == "venv":
            make_environment(python.ENVIRONMENT)

    monkeypatch.setattr(python, "ENVIRONMENT", tmp_path / ".venv")
    monkeypatch.setattr(python, "_run", run)
    return ran


def make_environment(folder: Path) -> None:
    """Make an environment of which pip alone runs; like every command it has the folder's path."""
    interpreter = folder / "bin/python3"
    interpreter.parent.mkdir(parents=True)
    # As pip says where it is.
    package = folder / "lib/python3.11/site-packages/pip"
    interpreter.write_text(f"#!/bin/sh\necho 'pip 26.0 from {package} (python 3.11)'\n")
    pip = folder / "bin/pip"
    pip.write_text(f"#!/bin/sh\nexec {interpreter}\n")
    for command in (interpreter, pip):
        command.chmod(0o755)


def test_makes_the_environment_anew_in_a_checkout_that_was_moved_or_copied(
    commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert python.ensure_environment() == INSTALLED
    assert commands == ["venv", "pip", "pip", "pip"]
    assert python.ensure_environment() == ""
    moved, copied = tmp_path / "moved", tmp_path / "copied"
    (tmp_path / ".venv").rename(moved)
    monkeypatch.setattr(python, "ENVIRONMENT", moved)
    assert python.ensure_environment() == INSTALLED
    shutil.copytree(moved, copied)
    monkeypatch.setattr(python, "ENVIRONMENT", copied)
    assert python.ensure_environment() == INSTALLED
    assert commands == ["venv", "pip", "pip", "pip"] * 3


def test_keeps_an_environment_of_another_tool(commands: list[str], tmp_path: Path) -> None:
    # virtualenv and uv note no command, and a link to the checkout is as good a path.
    (tmp_path / "link").symlink_to(tmp_path)
    make_environment(tmp_path / "link/.venv")
    (tmp_path / ".venv/of-its-user").touch()
    assert python.ensure_environment() == INSTALLED
    assert commands == ["pip", "pip", "pip"]
    assert (tmp_path / ".venv/of-its-user").exists()


@pytest.mark.parametrize(
    ("ensure", "turn"),
    [
        (python.ensure_environment, "requirements/dev.txt"),
        (python.ensure_stubs, "requirements/dev.txt"),
        (parts.build_simulator, "lab/simulator/Makefile"),
    ],
)
def test_waits_for_a_set_up_of_the_same_checkout(
    ensure: Callable[[], str], turn: str, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_nothing(*_command: object, **_how: object) -> subprocess.CompletedProcess[str]:
        commands.append("make")
        return subprocess.CompletedProcess([], 0, stdout="")

    monkeypatch.setattr(python, "_is_stale", lambda _proto: True)
    monkeypatch.setattr(subprocess, "run", compile_nothing)
    with ThreadPoolExecutor() as threads:
        with (REPOSITORY / turn).open() as other:
            fcntl.flock(other, fcntl.LOCK_EX)
            step = threads.submit(ensure)
            assert not wait([step], timeout=0.2).done
            assert not commands
        step.result(10)
    assert commands


def test_takes_debian_from_sources_of_which_no_lists_were_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As images that have their packages leave it.
    apt, sources = tmp_path / "apt.conf", tmp_path / "sources.list"
    sources.write_text("deb https://deb.example/debian bookworm main\n")
    (tmp_path / "lists/partial").mkdir(parents=True)
    apt.write_text(
        f'Dir::Etc::sourcelist "{sources}"; Dir::Etc::sourceparts "{tmp_path}/none";'
        f'Dir::State "{tmp_path}";'
    )
    monkeypatch.setenv("APT_CONFIG", str(apt))
    assert debian_mirror("bookworm").uri == "https://deb.example/debian/"
    with pytest.raises(build.ImageBuildFailed) as refused:
        debian_mirror("trixie")
    assert str(refused.value) == (
        "apt of this machine has no source for Debian trixie main: the lab is set up on "
        "Debian 12, whose apt has one"
    )


def test_ends_an_interrupted_set_up_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_lanes: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("lab.setup.steps.run_steps", interrupt)
    monkeypatch.setattr(sys, "argv", ["setup", "python"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("lab.setup", run_name="__main__")
    assert ended.value.code == 130
    assert capsys.readouterr().err == (
        "\ninterrupted. Finished steps are not repeated: run make setup again.\n"
    )


def test_builds_a_tool_once_per_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "LAB", tmp_path)
    monkeypatch.setenv("DIVVY_CACHE", str(tmp_path / "cache"))
    module = tmp_path / "tools" / "hello"
    module.mkdir(parents=True)
    (module / "go.mod").write_text("module hello\n")
    (module / "go.sum").write_text("")
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\necho "$@" >> calls\ntouch "$3/hello"\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    tool = tools.Tool("hello", ("hello",), "")
    first = tool.bin
    assert tool.build()
    assert (first / "hello").exists()
    assert not tool.build()
    (module / "go.sum").write_text("changed")
    assert tool.bin != first
    assert tool.build()
    assert len((module / "calls").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("dial tcp: lookup modules.example: no such host", "Is the network there? Both the Go "
         "proxy and the Debian mirror are needed once."),
        ("k8s.io/kubernetes/cmd/kubelet: compile: signal: killed", "Was it the kernel, for want of "
         "memory? Add memory or swap."),
    ],
)  # fmt: skip
def test_advises_what_the_failure_needs(
    words: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_build_a_tool(_tool: tools.Tool) -> bool:
        raise tools.ToolBuildFailed(words)

    def fail_to_build_an_image(_image: Image) -> bool:
        raise build.ImageBuildFailed(words)

    monkeypatch.setattr(tools.Tool, "build", fail_to_build_a_tool)
    monkeypatch.setattr(Image, "build", fail_to_build_an_image)
    for ensure in (parts.build_tool(tools.HELM), parts.build_image(BASE_ARM64)):
        with pytest.raises(StepFailed) as failure:
            ensure()
        assert failure.value.remedy == remedy


def test_leaves_nothing_of_a_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "LAB", tmp_path)
    monkeypatch.setenv("DIVVY_CACHE", str(tmp_path / "cache"))
    module = tmp_path / "tools" / "broken"
    module.mkdir(parents=True)
    for name in ("go.mod", "go.sum"):
        (module / name).touch()
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\ntouch "$3/half"\necho no such module >&2\nexit 1\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    with pytest.raises(tools.ToolBuildFailed, match="no such module"):
        tools.Tool("broken", ("broken",), "").build()
    assert list((tmp_path / "cache" / "tools").iterdir()) == []


def test_agrees_on_python_between_make_clean_and_set_up() -> None:
    done = subprocess.run(["make", "--dry-run", "unit"], capture_output=True, text=True, check=True)
    assert "-m lab.setup python" in done.stdout
    assert "not lab and not hardware" in done.stdout
