"""A real Prometheus scrapes the agents of the lab: every panel of the dashboard has an answer."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.image import build_and_push
from divvy.model import parse_cluster
from divvy.render.objects.dashboard import dashboard_json
from divvy.render.objects.observability import observability_objects
from lab.fakes.ports import free_port
from tests.agent.tenants import pod, run
from tests.deployment import Deployment
from tests.limited_shares import limited_shares
from tests.observability.prometheus import running

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
NODE = "gpu-a100"


def questions() -> dict[str, str]:
    """Return every query of the dashboard by its panel, with Grafana's variables filled in.

    Those about claims need pods that hold some.
    """
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$node", ".+")
        .replace("$__range", "10m")
        for panel in json.loads(dashboard_json())["panels"]
        for target in panel.get("targets", [])
        if "divvy_claims_" not in target["expr"]
    }


def hog(name: str, resource: str, image: str, mib: int, node: str = NODE) -> dict[str, Any]:
    """Return a pod that holds device memory."""
    manifest = pod(name, resource, f"mem-hog --mib {mib} --hold 120", node)
    manifest["spec"]["containers"][0]["image"] = image
    return manifest


def busy(name: str, resource: str, image: str, node: str) -> dict[str, Any]:
    """Return a pod whose kernels take GPU time, and no processor's."""
    manifest = pod(name, resource, "echo 0 1000000000 | time-share --asleep work 1000", node)
    manifest["spec"]["containers"][0]["image"] = image
    return manifest


def test_answers_every_panel_of_the_dashboard(deployed: Deployment, tmp_path: Path) -> None:
    lab = deployed.lab
    cluster = parse_cluster({**deployed.cluster, "observability": {"serviceMonitor": True}})
    monitor = observability_objects(cluster, "")[-1]
    image = build_and_push(deployed.registry, deployed.base_image, insecure=True)
    with (
        limited_shares(deployed, "notebooks"),
        lab.namespace() as namespace,
        running(tmp_path, lab.kubeconfig, monitor, free_port()) as prometheus,
    ):
        began = time.time()
        for manifest in (
            hog("own", "nvidia.com/mig-3g.20gb", image, 4000),
            hog("greedy", "nvidia.com/gpu.shared", image, 7000),
            hog("limited", "nvidia.com/gpu.shared", image, 2000, "gpu-t4"),
            busy("busy", "nvidia.com/gpu.shared", image, "gpu-t4"),
        ):
            run(deployed, namespace, manifest)
        # An idle GPU is reconfigured: it is in transition.
        lab.kubectl("label", "node", "gpu-h100", "divvy.gpu/profile=hopper-mix")
        unanswered = set(questions())

        def answered() -> bool:
            for name in sorted(unanswered):
                if prometheus.series(questions()[name], began, time.time()):
                    unanswered.discard(name)
            return not unanswered

        try:
            deployed.until(answered, 120)
        finally:
            lab.kubectl("label", "node", "gpu-h100", "divvy.gpu/profile-")
            assert not unanswered
        used = prometheus.series("divvy_pod_memory_used_mib", began, time.time())
        mine = [series for series in used if series["metric"]["namespace"] == namespace]
        assert [series["metric"]["pod"] for series in mine] == ["own"]
        assert max(float(value) for _, value in mine[0]["values"]) >= 4000
        over = prometheus.series("divvy_memory_over_limit_mib > 0", began, time.time())
        over = [series for series in over if series["metric"]["namespace"] == namespace]
        assert [series["metric"]["pod"] for series in over] == ["greedy"]
        assert {series["metric"]["node"] for series in mine} == {NODE}
        working = prometheus.series("divvy_container_gpu_utilisation", began, time.time())
        (of_busy,) = [series for series in working if series["metric"]["namespace"] == namespace]
        assert (of_busy["metric"]["pod"], of_busy["metric"]["container"]) == ("busy", "main")
        assert max(float(value) for _, value in of_busy["values"]) > 20
