"""Asks a Prometheus: at a URL, or as a Service of the cluster behind its API server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
import typer

from divvy.errors import fail
from divvy.live.cluster_reader import ClusterReader, Silent
from divvy.model.problems import printable

_T = TypeVar("_T")
_ODD = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_PASSWORD = re.compile(r"//[^/\s]*@")
_SERVICE = re.compile(r"([a-z0-9-]+)/([a-z0-9-]+):([a-z0-9-]+)")


def ask_prometheus(
    reader: ClusterReader, where: str, path: str, seconds: float, read: Callable[[Any], _T]
) -> _T:
    """Return what is read of the data that it answers to a path of its API.

    Each failure is one error, also one of ``read``.

    ``where`` is a URL, or NAMESPACE/SERVICE:PORT.
    """
    try:
        if service := _SERVICE.fullmatch(where):
            namespace, name, port = service.groups()
            proxy = f"/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy"
            text = reader.proxied(proxy + path, seconds)
        elif where.startswith(("http://", "https://")):
            answer = httpx2.get(where.rstrip("/") + path, timeout=seconds)
            text = answer.raise_for_status().text
        else:
            fail(f"--prometheus is {where!r}: a URL or NAMESPACE/SERVICE:PORT is expected")
        document = json.loads(text)
        result, warnings = read(document["data"]), tuple(document.get("warnings") or ())
    except (Silent, httpx2.HTTPError, httpx2.InvalidURL, *_ODD) as error:
        problem = f"{where} gives no answer: {error!r}; is it a Prometheus?"
        fail(_PASSWORD.sub("//…@", problem))
    # Of several stores behind it some may not have answered.
    for warning in warnings:
        typer.echo(f"warning: {_PASSWORD.sub('//…@', where)}: {printable(warning)}", err=True)
    return result
