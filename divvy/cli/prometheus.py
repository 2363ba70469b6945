"""Asks a Prometheus: at a URL, or as a Service of the cluster behind its API server."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import httpx2

from divvy.cli.cluster_reader import ClusterReader, Silent
from divvy.cli.errors import fail

_SERVICE = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+):([a-z0-9-]+)")
_SECONDS = 60.0


def ask_prometheus(reader: ClusterReader, where: str, query: str) -> list[dict[str, Any]]:
    """Return the samples of an instant query, each failure as one error.

    ``where`` is a URL, or NAMESPACE/SERVICE:PORT.
    """
    path = f"/api/v1/query?query={quote(query)}"
    try:
        if service := _SERVICE.fullmatch(where):
            namespace, name, port = service.groups()
            proxy = f"/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy"
            text = reader.proxied(proxy + path, _SECONDS)
        elif where.startswith(("http://", "https://")):
            answer = httpx2.get(where.rstrip("/") + path, timeout=_SECONDS)
            text = answer.raise_for_status().text
        else:
            fail(f"--prometheus is {where!r}: a URL or NAMESPACE/SERVICE:PORT is expected")
        result: list[dict[str, Any]] = json.loads(text)["data"]["result"]
    except (Silent, httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
        fail(f"Prometheus at {where} gives no answer: {error}")
    return result
