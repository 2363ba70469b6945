"""The lab's image registry on the bridge, and how images get into it.

Its storage lies in the cache: an image that was pushed once need not be pushed to the next lab.
"""

import http.client
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from lab.cluster import processes
from lab.cluster.addresses import Addresses
from lab.cluster.description import Lab
from lab.cluster.errors import RegistryFailed
from lab.cluster.images import IMAGES
from lab.cluster.network import past_proxies
from lab.cluster.paths import STATE, cache

COMPONENT = "registry"
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)


def address(lab: Lab) -> str:
    """Return the registry's host:port, the beginning of its images' names."""
    return f"{Addresses(lab.network).host}:{lab.ports.registry}"


def reference(lab: Lab, name: str) -> str:
    """Return the name by digest of one of the lab's own images."""
    return f"{address(lab)}/divvy/{name}@{IMAGES[name].digest()}"


def ensure_registry(lab: Lab, patience: float = 20.0) -> None:
    """Start the registry if it does not run and push what it lacks of the lab's own images."""
    if not processes.find(COMPONENT):
        config = STATE / "registry.yml"
        config.write_text(_config(lab))
        processes.start(COMPONENT, ["docker-registry", "serve", config])
    deadline = time.monotonic() + patience
    while not _answers(lab):
        if not processes.find(COMPONENT) or time.monotonic() > deadline:
            raise RegistryFailed("the registry does not answer: see divvy lab logs registry")
        time.sleep(0.05)
    for name, image in IMAGES.items():
        if digest_of(lab, f"divvy/{name}", image.tag) != image.digest():
            push(lab, f"oci:{image.layout}", f"divvy/{name}:{image.tag}")


def load(lab: Lab, image: str) -> str:
    """Push an image from a file, an OCI layout or buildah's storage; return its name by digest."""
    path = Path(image)
    if path.is_dir():
        source, name = f"oci:{path}", path.name
    elif path.is_file():
        source, name = f"{_archive_kind(path)}:{path}", path.name.partition(".")[0]
    else:
        source, name = f"containers-storage:{image}", _without_registry(image)
    repository, _, tag = name.partition(":")
    return push(lab, source, f"{repository}:{tag or 'latest'}")


def push(lab: Lab, source: str, target: str) -> str:
    """Copy an image into the registry; return its name by digest."""
    repository = target.rpartition(":")[0]
    with tempfile.NamedTemporaryFile("r") as digest:
        done = subprocess.run(
            [
                *("skopeo", "--insecure-policy", "copy", "--quiet"),
                *("--dest-tls-verify=false", f"--digestfile={digest.name}"),
                *(source, f"docker://{address(lab)}/{target}"),
            ],
            env=past_proxies(lab),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RegistryFailed(f"{source} cannot be pushed as {target}: {_reason(done.stderr)}")
        return f"{address(lab)}/{repository}@{digest.read().strip()}"


def digest_of(lab: Lab, repository: str, tag: str) -> str | None:
    """Return the digest of an image in the registry, None if it is not there."""
    connection = http.client.HTTPConnection(address(lab), timeout=5)
    try:
        path = f"/v2/{repository}/manifests/{tag}"
        connection.request("HEAD", path, headers={"Accept": ", ".join(_MANIFESTS)})
        response = connection.getresponse()
        return response.getheader("Docker-Content-Digest") if response.status == 200 else None
    finally:
        connection.close()


def _answers(lab: Lab) -> bool:
    try:
        digest_of(lab, "divvy/any", "any")
    except (OSError, http.client.HTTPException):
        return False
    return True


def _config(lab: Lab) -> str:
    storage = cache() / "registry"
    storage.mkdir(parents=True, exist_ok=True)
    return json.dumps(
        {
            "version": 0.1,
            "log": {"level": "warn", "accesslog": {"disabled": True}},
            "storage": {
                "filesystem": {"rootdirectory": str(storage)},
                "delete": {"enabled": True},
            },
            "http": {"addr": address(lab)},
        }
    )


def _archive_kind(path: Path) -> str:
    listed = subprocess.run(["tar", "-tf", path], check=False, capture_output=True, text=True)
    return "oci-archive" if "oci-layout" in listed.stdout.split() else "docker-archive"


def _reason(log: str) -> str:
    """Return what the last line of a log in key=value form says."""
    line = log.strip().rpartition("\n")[2]
    match = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)
    return match[1].replace('\\"', '"') if match else line


def _without_registry(image: str) -> str:
    first, slash, rest = image.partition("/")
    is_registry = slash and (first == "localhost" or "." in first or ":" in first)
    return rest if is_registry else image
