"""MPS daemons in a real container: what a crash of the agent means for their clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from divvy.model.api_names import STATUS_ANNOTATION
from tests.agent.tenants import SHARED, kill_agent, phase, pod, run
from tests.deployment import Deployment
from tests.limited_shares import followed

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600), pytest.mark.usefixtures("original")]
NODE, POOL = "gpu-t4", "notebooks"
RPC_FAILURE = 806
CLIENT = """exec python3 -c '
import ctypes as c, time
cuda, pointer, context = c.CDLL("libcuda.so.1"), c.c_uint64(), c.c_void_p()
cuda.cuInit(0)
cuda.cuCtxCreate_v2(c.byref(context), 0, 0)
while True:
    print(cuda.cuMemAlloc_v2(c.byref(pointer), c.c_size_t(1 << 20)), flush=True)
    cuda.cuMemFree_v2(pointer)
    time.sleep(0.5)
'"""


def test_serves_again_after_a_crash_once_the_clients_before_it_have_ended(
    deployed: Deployment,
) -> None:
    lab = deployed.lab
    with followed(deployed, {"mps": {"replicas": 4}}, POOL), lab.namespace() as namespace:

        def last_code(name: str) -> str:
            log = lab.try_kubectl("logs", name, f"-n={namespace}", "--tail=1")
            return log.stdout.strip()

        def status() -> dict[str, Any]:
            annotations = lab.get("node", NODE)["metadata"]["annotations"]
            return dict(json.loads(annotations[STATUS_ANNOTATION]))

        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 8}, 120)
        run(deployed, namespace, pod("client", SHARED, CLIENT, NODE))
        lab.until(lambda: last_code("client") == "0", 120)
        kill_agent(deployed, NODE)
        lab.until(lambda: last_code("client") == str(RPC_FAILURE), 60)
        lab.until(lambda: "its MPS server does not start" in status().get("reason", ""), 60)
        # The other GPU had no client.
        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 4}, 60)
        assert phase(deployed, namespace, "client") == "Running"
        lab.kubectl("delete", "pod", "client", f"-n={namespace}")
        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 8}, 120)
        for name in ("first", "second", "third"):
            run(deployed, namespace, pod(name, SHARED, CLIENT, NODE))
        lab.until(lambda: all(last_code(name) == "0" for name in ("first", "second", "third")), 120)
