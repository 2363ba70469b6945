"""What is waited for."""

from __future__ import annotations

import json
import time

from tests.engine.scenario import scenario
from tests.engine.trial import Trial


@scenario("A failed Job", "fails with the condition's message", "equal")
def test_a_failed_job_is_a_failure(trial: Trial) -> None:
    trial.write(
        'k8s.batch.v1.Job("j", metadata={"name": "j"}, spec={"template": {"spec": {'
        '"restart_policy": "Never", "containers": [{"name": "c", "image": "i"}]}}})\n'
    )
    process = trial.start("up", "--yes")
    place = f"--namespace={trial.namespace}"
    while not trial.names("jobs"):
        time.sleep(0.1)
    now = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "message": "hit the limit", "reason": "Backoff",
         "lastTransitionTime": now, "lastProbeTime": now}
        for kind in ("FailureTarget", "Failed")
    ]  # fmt: skip
    status = json.dumps({"status": {"startTime": now, "conditions": conditions}})
    trial.cluster.kubectl("patch", "job", "j", place, "--subresource=status", f"--patch={status}")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the job failed: hit the limit" in output


@scenario("A claim that binds with its first consumer", "not awaited", "equal")
def test_a_claim_that_binds_late_is_not_awaited(trial: Trial) -> None:
    trial.write(
        'k8s.storage.v1.StorageClass("s", metadata={"name": E("NS")}, provisioner="x/y",'
        ' volume_binding_mode="WaitForFirstConsumer")\n'
        'k8s.core.v1.PersistentVolumeClaim("c", metadata={"name": "c"}, spec={"storage_class_name":'
        ' E("NS"), "access_modes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"'
        "}}}, opts=R(custom_timeouts=CustomTimeouts(create='2s')))\n"
    )
    trial.up(NS=trial.namespace)


@scenario("The annotation `pulumi.com/waitFor`", "waited for", "refused")
def test_wait_for_is_refused(trial: Trial) -> None:
    trial.write(
        'W = {"pulumi.com/waitFor": "jsonpath={.data}"}\n'
        'cm("a", metadata={"name": "a", "annotations": W})\n'
    )
    assert "pulumi.com/waitFor is not supported" in trial.up(expect=1)
    assert trial.names() == set()
