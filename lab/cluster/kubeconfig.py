"""Kubeconfig files of the lab's identities, self-contained so that they can be copied."""

import base64
import json
from pathlib import Path


def kubeconfig(server: str, authority: Path, certificate: Path, key: Path) -> str:
    """Return a kubeconfig for one identity (JSON, which is YAML)."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "divvy-lab",
                    "cluster": {"server": server, "certificate-authority-data": _data(authority)},
                }
            ],
            "users": [
                {
                    "name": certificate.stem,
                    "user": {
                        "client-certificate-data": _data(certificate),
                        "client-key-data": _data(key),
                    },
                }
            ],
            "contexts": [
                {
                    "name": "divvy-lab",
                    "context": {"cluster": "divvy-lab", "user": certificate.stem},
                }
            ],
            "current-context": "divvy-lab",
        },
        indent=1,
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only root can read, complete or not at all."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.touch(mode=0o600)
    unfinished.write_text(text)
    unfinished.rename(path)


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
