"""The bill of materials as CycloneDX: the packages that are pinned, with the hashes of their files.

https://cyclonedx.org/docs/1.6/json/
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pinned(requirements: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the packages of a requirements file: name and version → SHA-256 of their files."""
    packages: dict[tuple[str, str], tuple[str, ...]] = {}
    for line in requirements.replace("\\\n", " ").splitlines():
        if pin := _PIN.match(line.strip()):
            name = re.sub(r"[-_.]+", "-", pin[1]).lower()
            packages[name, pin[2]] = tuple(sorted(_HASH.findall(line)))
    return packages


def sbom(
    name: str, version: str, files: Mapping[str, str], epoch: int, base: str | None = None
) -> str:
    """Return the document; ``files`` are requirements files by path, ``epoch`` when it was made.

    ``base`` is the image, by digest, that the agent's is built on. The same input gives the same
    bytes.
    """
    users: dict[tuple[str, str], list[str]] = {}
    hashes: dict[tuple[str, str], tuple[str, ...]] = {}
    for path in sorted(files):
        for package, digests in pinned(files[path]).items():
            users.setdefault(package, []).append(path)
            hashes[package] = digests
    components = [
        _component(*package, hashes[package], users[package]) for package in sorted(users)
    ]
    if base is not None:
        image, _, digest = base.partition("@")
        container = {"type": "container", "bom-ref": base, "name": image, "version": digest}
        components.append(container)
    subject = {"type": "application", **_identity(name, version)}
    content = json.dumps([subject, components], sort_keys=True)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content)}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": subject,
        },
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _component(
    name: str, version: str, digests: tuple[str, ...], users: list[str]
) -> dict[str, Any]:
    return {
        "type": "library",
        **_identity(name, version),
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in digests],
        "properties": [{"name": "divvy:pinned-in", "value": path} for path in users],
    }


def _identity(name: str, version: str) -> dict[str, str]:
    purl = f"pkg:pypi/{name}@{version}"
    return {"bom-ref": purl, "name": name, "version": version, "purl": purl}
