"""`make dist`: the same bytes twice, checksums that hold, a signature, archives that are read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from divvy.version_info import NAME, version
from lab.cluster.paths import REPOSITORY
from release import __main__ as command
from release.__main__ import NAMESPACE

STEM = f"{NAME.replace('-', '_')}-{version()}"


def run(*command: object, folder: Path | None = None, text: str = "") -> str:
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    clean["STORAGE_DRIVER"] = "vfs"  # as divvy.image.build
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=clean, input=text,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a private key; its public half is beside it."""
    path = tmp_path_factory.mktemp("key") / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "releases", "-f", path)
    return path


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    """Give an image to build on: nothing of it runs while the agent's image is built."""
    container = run("buildah", "from", "scratch").strip()
    name = "localhost/divvy-release-base:test"
    run("buildah", "commit", "--quiet", "--timestamp=0", "--rm", container, name)
    yield name
    run("buildah", "rmi", name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, key: Path, base: str) -> Path:
    """Give the folder that the command fills."""
    folder = tmp_path_factory.mktemp("built") / "dist"
    release = (sys.executable, "-m", "release", "--key", key, "--base", base)
    run(*release, "--out", folder, folder=REPOSITORY)
    return folder


def test_makes_the_same_bytes_again(built: Path, base: str, tmp_path: Path) -> None:
    release = (sys.executable, "-m", "release", "--base", base)
    run(*release, "--out", tmp_path / "again", folder=REPOSITORY)
    again = {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()}
    assert sorted(again) == [
        "SHA256SUMS",
        f"divvy-{version()}.tgz",
        f"divvy-agent-{version()}-amd64.oci.tar",
        f"{STEM}-py3-none-any.whl",
        f"{STEM}.cdx.json",
        f"{STEM}.tar.gz",
    ]
    different = [name for name, text in again.items() if (built / name).read_bytes() != text]
    assert not different


def test_signs_checksums_of_everything(built: Path, key: Path, tmp_path: Path) -> None:
    output = run("sha256sum", "--check", "--strict", "SHA256SUMS", folder=built)
    assert output.count(": OK") == 5
    allowed = tmp_path / "allowed"
    allowed.write_text(f"releases {key.with_suffix('.pub').read_text()}")
    sums = (built / "SHA256SUMS").read_text()
    verify = ("ssh-keygen", "-Y", "verify", "-f", allowed, "-I", "releases", "-n", NAMESPACE)
    run(*verify, "-s", built / "SHA256SUMS.sig", text=sums)
    with pytest.raises(AssertionError):
        run(*verify, "-s", built / "SHA256SUMS.sig", text=sums.replace("a", "b"))


def test_builds_an_image_that_runs_the_agent(built: Path, tmp_path: Path) -> None:
    archive = f"oci-archive:{built / f'divvy-agent-{version()}-amd64.oci.tar'}"
    config = json.loads(run("skopeo", "inspect", "--config", archive))
    assert config["config"]["Entrypoint"] == ["/usr/bin/python3", "-m", "divvy.agent"]
    assert config["architecture"] == "amd64"
    run("skopeo", "copy", "--preserve-digests", archive, f"oci:{tmp_path / 'copy'}:agent")
    copied = json.loads((tmp_path / "copy/index.json").read_text())["manifests"][0]["digest"]
    raw = run("skopeo", "inspect", "--raw", archive).encode()
    assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == copied
    container = run("buildah", "from", archive).strip()
    try:
        root = Path(run("buildah", "mount", container).strip())
        assert (root / "opt/divvy/divvy/agent/BUILT_FROM").is_file()
        assert os.access(root / "opt/divvy-hook", os.X_OK)
    finally:
        run("buildah", "rm", container)


def test_builds_a_chart_that_begins_with_labelled_nodes(built: Path) -> None:
    with tarfile.open(built / f"divvy-{version()}.tgz") as chart:
        values = chart.extractfile("divvy/values.yaml")
        assert values is not None
        pools = yaml.safe_load(values.read())["pools"]
    assert pools == {"gpu": {"select": {"divvy.gpu/pool": "gpu"}, "profile": "whole"}}


def test_lists_the_base_of_the_image_in_the_bill_of_materials(built: Path, base: str) -> None:
    document = json.loads((built / f"{STEM}.cdx.json").read_text())
    (container,) = [part for part in document["components"] if part["type"] == "container"]
    assert container["bom-ref"] == base


def test_builds_a_wheel_that_installs_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "environment", symlinks=True)
    wheel = built / f"{STEM}-py3-none-any.whl"
    pip = (sys.executable, "-m", "pip", "--quiet", f"--python={tmp_path / 'environment'}")
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    (site,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    (site / "other-packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    output = run(tmp_path / "environment/bin/divvy", "--version", folder=tmp_path)
    head = run("git", "describe", "--always", "--abbrev=12", folder=REPOSITORY).strip()
    assert output.startswith(f"{NAME} {version()}, revision {head}, from file://")


def make_release(
    monkeypatch: pytest.MonkeyPatch, out: Path, build: Callable[[Path], object]
) -> None:
    """Run the command with another build, which fills the folder that it is given."""
    monkeypatch.setattr(command, "_build", lambda _sources, dist, _base, _platforms: build(dist))
    monkeypatch.setattr(sys, "argv", ["release", "--out", str(out)])
    command.main()


@pytest.mark.parametrize("name", ["thesis.txt", "SHA256SUMS/thesis.txt", "wheel/thesis.txt"])
@pytest.mark.parametrize("sums", ["", "0  wheel\n"])
def test_leaves_a_folder_alone_that_is_no_release(
    name: str, sums: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sums and not name.startswith(command.SUMS):
        # Of a release, or of whatever else has such a list.
        (tmp_path / command.SUMS).write_text(sums)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("years of work")
    with pytest.raises(SystemExit) as refused:
        make_release(monkeypatch, tmp_path, lambda _dist: pytest.fail("it was built"))
    assert str(refused.value) == (
        f"error: --out {tmp_path}: it has other files than a release's: name a new folder"
    )
    assert file.read_text() == "years of work"


def test_replaces_an_earlier_release_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "a/dist"

    def fill_the_first(dist: Path) -> None:
        (dist / command.SUMS).write_text("0  of-the-first\n")
        for name in ("of-the-first", "SHA256SUMS.sig"):
            (dist / name).touch()

    make_release(monkeypatch, out, fill_the_first)
    make_release(monkeypatch, out, lambda dist: (dist / command.SUMS).write_text("second"))
    assert [path.name for path in out.iterdir()] == [command.SUMS]
    assert (out / command.SUMS).read_text() == "second"

    def fill_the_disk(dist: Path) -> None:
        (dist / command.SUMS).write_text("third")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SystemExit, match="No space left on device"):
        make_release(monkeypatch, out, fill_the_disk)
    assert (out / command.SUMS).read_text() == "second"
    assert list(out.parent.iterdir()) == [out]


def test_replaces_the_folder_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dist"
    out.mkdir()
    monkeypatch.chdir(out)
    make_release(monkeypatch, Path(), lambda dist: (dist / command.SUMS).write_text("first"))
    assert (out / command.SUMS).read_text() == "first"
    assert list(tmp_path.iterdir()) == [out]
