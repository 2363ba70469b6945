"""What happens to a node on request: restarts, another profile, a broken GPU.

Each function disturbs one node, with pods of ours on its devices, waits until the node
is as planned again, and says what it saw. Pods of others are not touched by any of them;
the profile is not changed while they hold devices.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from conformance.pods import Pod, Workplace
from conformance.promise import DevicePromise, NodePromise, plan_under
from conformance.site import Site
from conformance.tenancy import Tenancy
from conformance.workplaces import PROFILE_LABEL, profile_on
from divvy.plan import NodePlan

# The kubelet tells a changed list within its status period.
_STATUS_PERIOD = 10.0
_TOLD = 2.5 * _STATUS_PERIOD
_BACK = 45.0
_RECUT = 90.0
_PROBE_PERIOD = 10.0
_XIDS = (48, 63, 64, 74, 79, 94, 95)
_CANNOT = 3
# Ends or restarts the kubelet from a pod in the node's process namespace, and waits for the next.
_RESTART_KUBELET = r"""
host() { nsenter --target 1 --mount --uts --ipc --net --pid -- "$@"; }
find_kubelet() {
  for each in /proc/[0-9]*; do
    [ "$(cat "$each/comm" 2>/dev/null)" = kubelet ] && echo "${each#/proc/}" && return
  done
}
old=$(find_kubelet)
if [ -z "$old" ]; then echo "the node has no process called kubelet"; exit 3; fi
if [ -d /proc/1/root/run/systemd/system ]; then
  host systemctl cat kubelet.service >/dev/null 2>&1 ||
    { echo "the kubelet is no systemd service of its own"; exit 3; }
  how="systemctl restart kubelet"
  host systemctl restart kubelet.service || exit 1
else
  [ "$(sed -n 's/^PPid:\t//p' "/proc/$old/status")" = 1 ] ||
    { echo "nothing known would start the kubelet again"; exit 3; }
  how="killed, for the node's first process to start it again"
  kill -9 "$old"
fi
for _ in $(seq 300); do
  new=$(find_kubelet)
  if [ -n "$new" ] && [ "$new" != "$old" ]; then
    echo "kubelet: process $old, $how, process $new"; exit 0
  fi
  sleep 0.1
done
echo "the kubelet did not come back within 30 s"; exit 1
"""


@dataclass
class Seen:
    """What became of a disturbance: whether it holds, in words, and the times it took."""

    words: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)

    def waited(self, what: str, began: float) -> None:
        """Keep how long something took."""
        self.times.append(f"{what} after {time.monotonic() - began:.1f} s")

    def looked_at(self, tenancy: Tenancy) -> None:
        """Say whether the pods compute on, and keep the last words of those that do not."""
        self.words.append(tenancy.undisturbed())
        self.times += tenancy.disturbed


def restart_agent(site: Site, tenancy: Tenancy, node: NodePromise) -> Seen:
    """Delete the agent's pod; its DaemonSet makes another."""
    seen = Seen()
    agent = site.agent(node.name)
    if agent is None:
        return Seen(["no agent on the node"])
    old = agent["metadata"]
    site.client.delete(Pod, old["name"], namespace=old["namespace"], grace_period=1)
    began = time.monotonic()

    def replaced() -> bool:
        new = site.agent(node.name)
        return new is not None and new["metadata"]["uid"] != old["uid"] and _ready(new)

    back = tenancy.pods.until(replaced, _BACK)
    seen.waited("a new agent was ready", began)
    seen.words.append("agent back" if back else "agent not back")
    _expect_plan(site, tenancy.pods, node, seen, began)
    seen.looked_at(tenancy)
    return seen


def restart_kubelet(site: Site, tenancy: Tenancy, node: NodePromise, privileged: Workplace) -> Seen:
    """Restart the kubelet, then have it start a pod on every device kind that has one free."""
    seen = Seen()
    began = time.monotonic()
    breaker = privileged.run(node.name, ["/bin/sh", "-c", _RESTART_KUBELET])
    if breaker.code == _CANNOT:
        pytest.skip(breaker.log.strip())
    seen.times.append(breaker.log.strip())
    seen.words.append("kubelet back" if breaker.code == 0 else f"kubelet not back: {breaker}")
    # The node's status may still be from before: only a pod shows that devices are served.
    for promise in tenancy.promises:
        if promise.count > 1:
            served = _serves(tenancy.pods, node.name, promise.resource)
            seen.waited(f"a new pod with {promise.resource}", began)
            seen.words += [] if served else [f"no new pod gets {promise.resource}"]
    _expect_plan(site, tenancy.pods, node, seen, began)
    seen.looked_at(tenancy)
    return seen


def change_profile(site: Site, tenancy: Tenancy, node: NodePromise) -> Seen:
    """Let the node follow another profile of the stack file for a while, and go back."""
    seen = Seen()
    if PROFILE_LABEL in (site.live(node.name)["metadata"].get("labels") or {}):
        pytest.skip(f"{node.name} has a label {PROFILE_LABEL} already")
    other = _other_profile(site, node)
    if other is None:
        pytest.skip(f"no other profile of the stack file fits {node.name}")
    wanted = dict(other.per_node)
    with profile_on(site.client, node.name, other.profile):
        began = time.monotonic()
        told = tenancy.pods.until(
            lambda: site.status(node.name).get("profile") == other.profile, _TOLD
        )
        seen.waited(f"the agent told of profile {other.profile}", began)
        seen.words.append("followed" if told else "not followed")
        # What the pods hold stays as it is; the agent waits for them.
        seen.looked_at(tenancy)
        tenancy.pods.until(lambda: _is_settled(site.status(node.name)), _PROBE_PERIOD)
        state = site.status(node.name)
        seen.times.append(f"with a pod on it: {state.get('state')}, {state.get('reason') or '-'}")
        tenancy.end()
        began = time.monotonic()
        tenancy.pods.until(lambda: site.offered(node.name) == wanted, _RECUT)
        seen.waited(f"allocatable of {other.profile}, from when its devices were free", began)
        seen.words.append(f"offered {_counts(site.offered(node.name))}")
    _expect_plan(site, tenancy.pods, node, seen, time.monotonic(), _RECUT)
    return seen


def most_changed(site: Site, node: NodePromise, promises: Sequence[DevicePromise]) -> DevicePromise:
    """Return the kind of device that another profile would take away, else the first."""
    other = _other_profile(site, node)
    kept = {} if other is None else other.per_node
    return next((one for one in promises if one.resource not in kept), promises[0])


def expected_of_change(site: Site, node: NodePromise, undisturbed: str) -> str:
    """Return in words what ``change_profile`` has to see."""
    other = _other_profile(site, node)
    offered = _counts(other.per_node) if other else ""
    return f"followed, {undisturbed}, offered {offered}, allocatable as planned"


def break_gpu(site: Site, tenancy: Tenancy, node: NodePromise) -> tuple[str, Seen]:
    """Make the simulated driver report an error of the GPU under a pod; return what must be seen.

    The first is what is expected, the second what was seen.
    """
    status = site.status(node.name)
    if not status.get("simulated"):
        pytest.skip("an error of a GPU can only be brought about on the simulated driver")
    number = next((one for one in _XIDS if one not in site.cluster.health.ignore_xids), None)
    if number is None:
        pytest.skip(f"the stack file ignores all of XID {', '.join(map(str, _XIDS))}")
    if site.cluster.health.recover_after < _STATUS_PERIOD:
        pytest.skip(f"with a health.recoverAfter below {_STATUS_PERIOD:g} s nobody is told of it")
    uuid = tenancy.gpu()
    index = next((gpu["index"] for gpu in status["gpus"] if gpu["uuid"] == uuid), None)
    if index is None:
        pytest.skip(f"the status annotation does not name the pod's GPU {uuid}")
    fewer = _without(node, index)
    began = time.monotonic()
    site.enter(node.name, f"/driver-root/usr/bin/divvy-sim fault xid {uuid} {number}")
    seen = Seen()
    tenancy.pods.until(lambda: site.offered(node.name) == fewer, _TOLD)
    seen.waited(f"allocatable without GPU {index} ({uuid}, XID {number})", began)
    seen.words.append(f"offered {_counts(site.offered(node.name))}")
    seen.looked_at(tenancy)
    patience = site.cluster.health.recover_after + _PROBE_PERIOD + _TOLD
    _expect_plan(site, tenancy.pods, node, seen, began, patience)
    expected = f"offered {_counts(fewer)}, {tenancy.expected}, allocatable as planned"
    return expected, seen


def _is_settled(status: Mapping[str, Any]) -> bool:
    return status.get("state") == "Ready" or "held by" in str(status.get("reason"))


def _without(node: NodePromise, index: int) -> dict[str, int]:
    left = dict(node.plan.per_node)
    for device in node.plan.gpus[index].devices:
        left[device.resource] -= 1
    return {name: count for name, count in left.items() if count}


def _other_profile(site: Site, node: NodePromise) -> NodePlan | None:
    """Return what the node would offer under the first profile that fits and differs."""
    for name in site.cluster.profiles:
        if name != node.profile:
            found = plan_under(site.cluster, node.plan, name)
            if not found.notes and dict(found.per_node) != dict(node.plan.per_node):
                return found
    return None


def _expect_plan(
    site: Site,
    pods: Workplace,
    node: NodePromise,
    seen: Seen,
    began: float,
    patience: float = _BACK,
) -> None:
    wanted = dict(node.plan.per_node)
    if pods.until(lambda: site.offered(node.name) == wanted, patience):
        seen.words.append("allocatable as planned")
    else:
        seen.words.append(f"allocatable {_counts(site.offered(node.name))}")
    seen.waited("allocatable as planned", began)


def _serves(pods: Workplace, node: str, resource: str) -> bool:
    """Try until a pod gets a device: the kubelet refuses it until the agent is back with it."""
    deadline = time.monotonic() + _BACK
    while time.monotonic() < deadline:
        outcome = pods.run(node, ["cuda-vector-add"], resource, _TOLD)
        if outcome.code == 0:
            return True
        if not re.search(r"OutOf|UnexpectedAdmission", outcome.reason):
            return False
    return False


def _ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _counts(counts: Mapping[str, int]) -> str:
    named = (f"{count} {name.removeprefix('nvidia.com/')}" for name, count in counts.items())
    return ", ".join(sorted(named)) or "nothing"
