"""The last report as the cluster keeps it: a ConfigMap with the archive of the run."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from divvy.errors import fail
from divvy.kube.client import Client
from divvy.kube.errors import KubeError
from divvy.kube.kubeconfig import cluster_config
from divvy.kube.media_types import APPLY
from divvy.live.cluster_reader import reading
from divvy.model import Cluster
from divvy.model.api_names import CONFORMANCE_LABEL, KEPT_REPORT
from divvy.reports.archive import REPORT, DamagedArchive, condensed, report_archive, unpack
from divvy.reports.shape import is_report

KEY = "conformance.tar.gz"
# The API server takes 1 MiB of data in a ConfigMap.
_MOST_BYTES = 1 << 20
_FIELD_MANAGER = "divvy-verify"


def kept_report(cluster: Cluster) -> dict[str, Any] | None:
    """Return the last report that the cluster keeps, None if it keeps none."""
    path = _path(cluster)
    try:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            config_map = reader.find(path)
        if config_map is None:
            return None
        archive = base64.b64decode((config_map.get("binaryData") or {})[KEY])
        document = json.loads(unpack(archive)[REPORT])
    except (DamagedArchive, KeyError, ValueError) as problem:
        fail(f"ConfigMap {_name(cluster)} has an unreadable report: {problem}")
    except RecursionError:
        fail(f"ConfigMap {_name(cluster)} has an unreadable report: it is nested too deeply")
    if not is_report(document):
        fail(f"ConfigMap {_name(cluster)} has no report of a run")
    return dict(document)


def keep_report(cluster: Cluster, archive: bytes, document: Mapping[str, Any]) -> str:
    """Keep the archive of a run in the cluster; return what came of it, in one line.

    If it is too large, the report is kept without its evidence. A run that may not write, or
    a cluster without Divvy's namespace, loses nothing else.
    """
    less = ""
    if len(archive) > _MOST_BYTES:
        archive = report_archive(condensed(document))
        less = ", without its evidence: the archive is too large"
    if len(archive) > _MOST_BYTES:
        return "not kept in the cluster: the report is too large for a ConfigMap"
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": KEPT_REPORT, "labels": {CONFORMANCE_LABEL: "report"}},
        "binaryData": {KEY: base64.b64encode(archive).decode()},
    }
    try:
        with Client(cluster_config(cluster.kubeconfig, cluster.context)) as client:
            query = {"fieldManager": _FIELD_MANAGER, "force": "true"}
            client.request("PATCH", _path(cluster), body, kind=APPLY, query=query)
    except KubeError as problem:
        return f"not kept in the cluster: {problem}"
    return f"kept in the cluster: ConfigMap {_name(cluster)}{less}"


def _path(cluster: Cluster) -> str:
    return f"/api/v1/namespaces/{cluster.namespace}/configmaps/{KEPT_REPORT}"


def _name(cluster: Cluster) -> str:
    return f"{cluster.namespace}/{KEPT_REPORT}"
