"""The agents: their metrics."""

from __future__ import annotations

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.promise import NodePromise
from conformance.site import Site

_URL = "http://127.0.0.1:9410/metrics"
_READ = f"import urllib.request as u; print(u.urlopen('{_URL}').read().decode())"


@check("OBS-01")
@pytest.mark.enters
def test_metrics_name_every_gpu(site: Site, node: NodePromise, evidence: Evidence) -> None:
    text = site.enter(node.name, "python3 -c %s", _READ)
    if text is None:
        evidence.require("an agent", "no agent on the node")
        return
    shown = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{")]
    evidence.add("\n".join(shown))
    evidence.require(f"{len(node.plan.gpus)} GPUs", f"{len(shown)} GPUs")
