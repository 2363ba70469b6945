"""The agent's image for two platforms, in a registry of the test's own: one digest for both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.image import build_and_push as push_workloads
from divvy.image import published
from divvy.image.build import build_and_push, build_layout, exists, inspect
from divvy.image.published import published_platforms
from lab.cluster.images import BASE_ARM64, IMAGES, Image
from lab.fakes.ports import free_port
from lab.target import emulator
from release.image import image_archive
from tests.image_layers import unpack

pytestmark = pytest.mark.lab
_PLAIN = "--tls-verify=false"
BOTH = ("linux/amd64", "linux/arm64")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a registry without TLS; return its address."""
    folder = tmp_path_factory.mktemp("registry")
    address = f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(folder / "storage")}}
    config = {"version": 0.1, "storage": storage, "http": {"addr": address}}
    (folder / "config.yml").write_text(json.dumps(config))
    with pytest.MonkeyPatch.context() as patch, (folder / "log").open("w") as log:
        patch.setenv("STORAGE_DRIVER", "vfs")
        patch.setattr(published, "inspect", lambda *words: inspect(*words, _PLAIN))
        command = ["docker-registry", "serve", str(folder / "config.yml")]
        server = subprocess.Popen(command, stdout=log, stderr=log)
        await_port(address)
        yield address
        server.terminate()
        server.wait(10)


def await_port(address: str) -> None:
    host, port = address.split(":")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port))).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the registry does not answer")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def base(registry: str) -> str:
    """Push the lab's base for both platforms, and return the index by its tag."""
    index, name = f"divvy-test-{registry}", f"{registry}/base"
    run("buildah", "manifest", "create", index)
    for image in (IMAGES["base"], BASE_ARM64):
        push_layout(image, f"docker://{name}:{image.name}")
        run("buildah", "manifest", "add", _PLAIN, index, f"docker://{name}:{image.name}")
    options = ("--all", "--rm", "--format=oci", _PLAIN)
    run("buildah", "manifest", "push", *options, index, f"docker://{name}:both")
    return f"{name}:both"


def push_layout(image: Image, target: str) -> None:
    image.build()  # set-up has done so
    copy = ("skopeo", "--insecure-policy", "copy", "--quiet", f"--dest{_PLAIN[1:]}")
    run(*copy, f"oci:{image.layout}", target)


def manifests(reference: str) -> dict[str, str]:
    """Return the digests of an index by platform."""
    index = json.loads(run("skopeo", "inspect", "--raw", _PLAIN, f"docker://{reference}"))
    assert index["mediaType"] == "application/vnd.oci.image.index.v1+json"
    return {
        f"{entry['platform']['os']}/{entry['platform']['architecture']}": entry["digest"]
        for entry in index["manifests"]
    }


def test_builds_one_image_for_two_platforms(registry: str, base: str, tmp_path: Path) -> None:
    reference = build_and_push(registry, base, insecure=True, platforms=BOTH)
    assert exists(reference, insecure=True)
    assert published_platforms(reference) == BOTH
    # The same inputs, the same bytes: of the index, and of the image that was built alone.
    again = build_and_push(registry, base, insecure=True, platforms=reversed(BOTH))
    assert again == reference
    alone = build_and_push(registry, base, insecure=True)
    assert alone.partition("@")[2] == manifests(reference)["linux/amd64"]
    assert published_platforms(alone) == BOTH[:1]
    starts_on_arm64(reference, tmp_path)


def test_packs_both_platforms_into_the_archive_of_a_release(
    registry: str, base: str, tmp_path: Path
) -> None:
    build_layout(tmp_path / "layout", base, BOTH, insecure=True)
    archive = tmp_path / "agent.oci.tar"
    archive.write_bytes(image_archive(tmp_path / "layout"))
    # As the page on releases publishes it.
    copy = ("skopeo", "--insecure-policy", "copy", "--quiet", "--all", "--preserve-digests")
    published = f"{registry}/released/agent:1"
    run(*copy, f"--dest{_PLAIN[1:]}", f"oci-archive:{archive}", f"docker://{published}")
    pushed = build_and_push(registry, base, insecure=True, platforms=BOTH)
    assert manifests(published) == manifests(pushed)


def starts_on_arm64(reference: str, folder: Path) -> None:
    """Start the image's agent under QEMU: it loads everything, then asks for its node's name."""
    copy = ("skopeo", "--insecure-policy", "--override-arch=arm64", "copy", "--quiet")
    run(*copy, f"--src{_PLAIN[1:]}", f"docker://{reference}", f"oci:{folder / 'layout'}")
    root = unpack(folder / "layout", folder / "root")
    for program in ("divvy-hook", "divvy-limiter/libcuda.so.1", "divvy-limiter/libnvidia-ml.so.1"):
        assert "AArch64" in run("readelf", "--file-header", str(root / "opt" / program))
    command = [*emulator(str(root)), str(root / "usr/bin/python3"), "-m", "divvy.agent"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(root / "opt/divvy")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == (
        "divvy agent: NODE_NAME is not set: the DaemonSet passes it from the pod's own fields\n"
    )


def test_builds_the_workloads_for_two_platforms(registry: str, base: str) -> None:
    reference = push_workloads(registry, base, insecure=True, platforms=BOTH)
    assert published_platforms(reference) == BOTH
