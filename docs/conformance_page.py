"""The pages about conformance: the catalogue, and the faults that the suite's tests inject."""

from collections.abc import Iterator

from conformance.catalogue import CATALOGUE
from conformance.check import EVERY, LIMITED, PARTITIONED, SHARED
from divvy.verify_options import OPTIONS
from tests.conformance.faults import FAULTS

_INTRODUCTION = """\
# Conformance: what `divvy verify` checks

`divvy verify -s <stack>` computes the plan of the stack file, inspects every live node
of its pools, runs small pods on their devices and reports what holds. It removes
its pods and namespaces. A run on simulated GPUs says so everywhere and is at best *partial*.

Without options it takes one device per resource for a few seconds, and disturbs no pod.

"""
_RUN = """\

With another `--target` the same checks run on NVIDIA's ([the field](field.md)).

While it runs there is a line for each check with a sign for each case: `+` passed, `F` failed, `-`
not checked; the report says why.

| exit code | when |
|--:|---|
| 0 | nothing failed: *success*, *partial*, or *warning* without `--strict` |
| 1 | a check failed; with `--strict` a recommendation, too; with `--compare` one that held before |
| 2 | nothing was checked, or Divvy is not deployed in this cluster |
| 3 | with `--require`, a MUST check could not be made; with `--compare`, one that was made before |

The first line is the result. *success*: everything that such a cluster can have was checked on
hardware and holds. *partial*: nothing failed, but a check was skipped, `--select`, `--pool` or
`--sample` left some out, or the GPUs are simulated. *warning*: a recommendation (SHOULD) does not
hold. These exit with 0. *failure*: a MUST failed, or with `--strict` any check: exit code 1.
*nothing checked*: exit code 2. `junit.xml` agrees: what does not fail the run is a skipped case
there that says so, and with `--require` a MUST check that could not be run is an error.

## Why a check was not run

`report.yaml` says which of three reasons (`missed`): an *option* was not given; it is *not
applicable*, since such a cluster cannot have it (no MIG, no systemd, simulated GPUs); or it was
*not made*, since something was in the way: a node that is not Ready, devices that others hold, a
quota, an image that cannot be pulled, a pool without `hardware` in the stack file. MUST checks that
were not made are counted in the first line; with `--require` they end the run with exit code 3.

Without `--exclusive`, one device of each resource on each node is tried, and a share of 1,024 MiB
and 5 % of each GPU that pods claim; with it, every device computes and burns, and on each resource
up to 50 pods in a row come and go.

A check's evidence does not come from what it checks: devices are read from the kubelet, from NVML
in a separate process and from pods, and compared by UUID. The agent's own word counts only for the
agent itself (NODE-01), and only if it is fresh.

## Compare with an earlier run

`--compare` names the checks that newly fail, newly pass and are newly not checked, with the
reasons; nodes that came and went; versions that changed; and speed, where it changed by a tenth or
more, or a check takes half as long again. `comparison.md` has all of it for a pull request.

The command exits with 1 if any check newly fails, also a SHOULD, and with 3 if a MUST check that
was made before could not be made now. What an option left out is counted and changes no exit code.
A simulated report is not compared with one of hardware, nor are reports of two stacks.

**The archive** `conformance.tar.gz` has everything that a run stands on: `report.json`,
`junit.xml`, the stack file, `versions.json` and `SHA256SUMS`. Equal files give equal
bytes; one that is not as its checksums say is refused. To sign one: `ssh-keygen -Y sign` or
`cosign sign-blob`. **The cluster keeps the archive of the last run**, in the ConfigMap
`divvy-conformance` of Divvy's namespace; `--compare last` reads it. A run of a part (`--select`,
`--pool`, `--sample`) does not replace it; one with `--changed` continues it.

## A fleet

`--sample` takes the same nodes for the same `--seed`, those that are Ready first, and others for
another seed, such as the date; NODE-15 asks the agent of every node all the same. `--changed`
leaves out nodes that the earlier report shows as they are: in the same pool and profile, with the
same software, in the same boot, and with no check that failed or was *not made*.

## In the cluster

Without Python on the administrator's machine: `divvy verify -s prod --in-cluster` with any of the
options above writes `verify-job.yaml`, which `kubectl apply` runs. Its images are built where the
stack file has the agent's built, or given (`--runner-image`, `--workload-image`). The Job ends with
the exit code of the run.

The archive of the run is in the ConfigMap:

```sh
kubectl get configmap divvy-conformance -n divvy-system \\
  -o jsonpath='{.binaryData.conformance\\.tar\\.gz}' | base64 -d > conformance.tar.gz
```

Its account may do what is listed in [security](security.md). That includes `pods/exec` in Divvy's
namespace, whose pods are privileged, and creating pods in any: whoever may use it may act as root
on the GPU nodes and, by such a pod, as any ServiceAccount of the cluster and with any Secret.
`kubectl delete -f verify-job.yaml` takes it away after the run. To stop a run, delete its pod,
which then cleans up, and only then the rest: without its rights it cannot
(`kubectl delete pod -n divvy-system -l app.kubernetes.io/name=divvy-verify`).

**As a metric.** If checks of a node passed and none failed that fails the run, the run writes
the time to the node's annotation `divvy.gpu/conformance-success`; with `--select` it writes
nothing. The node's agent serves it as `divvy_conformance_last_success_seconds`. So an alert can
name the nodes that no run has found sound for a week.

## The product file of AI conformance

`--product` writes the rows of the
[CNCF programme's](https://github.com/cncf/k8s-ai-conformance) product file that concern GPUs:
`driver_runtime_management`, `gpu_sharing`, `accelerator_metrics` and `secure_accelerator_access`,
from the checks that name them (`cncf` in `report.yaml`). Each row's notes begin with its state and
say of each check in which cases it passed; its evidence points into `junit.xml`.

| state | status | when |
|---|---|---|
| pass | `Implemented` | on hardware, all checks were made and hold, also one that shows it |
| fail | `Not Implemented` | a check of the row failed |
| unknown | empty | GPUs are simulated, or an option or obstacle left a check out |

What only the vendor knows (platform, vendor, links) is not in the file, nor are rows that Divvy
does not check.

## What a run does to a cluster

* Its pods run in namespaces `divvy-conformance-…`, at the Pod Security level *restricted*; the
  checks of device numbers and mounts at *baseline*; with `--disruptive` one is privileged. They
  have the lowest priority, preempt no pod and terminate after half an hour.
* It never takes a device from others: a check that finds none free is skipped and names the holder.
* With `--disruptive` it changes a profile by the label `divvy.gpu/profile` on the node, cordons the
  node meanwhile, and undoes both, also when it is stopped. **If a run is killed outright, the next
  run of any kind undoes it first, and says so.** By hand:
  `kubectl label node NODE divvy.gpu/profile-; kubectl uncordon NODE`.
* It causes GPU errors only on the simulated driver. Runs do not disturb each other.
* At the end it removes everything but the ConfigMap with its archive.

The workloads are small programs of this project that use the CUDA driver API; `train` trains a
network with tinygrad. They are built for the machine that builds, and pushed to
`plugin.image.registry`, or given with `--workload-image`. `conformance/workloads/manifests` has
pods to apply by hand.

Each check has been seen to fail: [the faults](conformance-faults.md). This page is generated:
python -m docs.generate.

## The checks

What to do when one fails stands beside it in the report.
"""

_FAULTS = """\
# Faults that the checks have named

Each check of [`divvy verify`](conformance.md) has been seen to fail. This page is generated:
python -m docs.generate.

Tests inject each of these faults on the lab, run `divvy verify` with the checks beside it, and
require that each of them fails.

| fault | checks that fail |
|---|---|
"""

_MODES = {
    EVERY: "all",
    SHARED: "every kind of replica",
    LIMITED: "replicas with limits",
    PARTITIONED: "MIG, shared or not",
}
_INVENTED = "nvidia-smi lists a MIG device that is not there (test_bare_on_lab.py)"
_BROKEN = (
    "a kit without hook and simulated driver, programs that fail, an nvidia-smi that makes things "
    "up (lab/tests/kit/test_rehearsal.py, no lab)"
)
_SLOWED = "figures of a MIG device that neighbours slow down (load/test_neighbours.py, no lab)"
_ELSEWHERE = {
    "WORK-04": "an image that fails (tests/conformance/test_options_on_lab.py)",
    "WORK-05": "an image that prints FAULTY and ends with 0 (test_options_on_lab.py)",
    "DISR-07": "pods that stop computing after a reload of systemd (test_restarts.py, no lab)",
    "HW-01": _SLOWED,
    "HW-02": _SLOWED,
    "ISO-10": "the driver's own libraries in place of the limiter's (test_limits_on_lab.py)",
    "ISO-11": "the driver's own libraries in place of the limiter's (test_limits_on_lab.py)",
    "WORK-06": "the driver's own libraries in place of the limiter's, and bad arithmetic "
    "(test_limits_on_lab.py)",
    "ISO-15": "shares of another size than the stack file says (test_mps_on_lab.py)",
    "ISO-16": "shares of another size than the stack file says (test_mps_on_lab.py)",
    "ISO-12": "agents that do not see the host's processes (test_limits_on_lab.py)",
    "HW-05": "a share that is halted, with hardware checks forced (test_limits_on_lab.py)",
    "CLM-01": "a stack file with one GPU more than the node has (test_claims_on_lab.py)",
    "CLM-02": "the driver's own libraries in place of the limiter's (test_claims_on_lab.py)",
    "CLM-03": "the driver's own libraries in place of the limiter's (test_claims_on_lab.py)",
    "CLM-04": "an admission policy that refuses nothing (test_claims_on_lab.py)",
    "INST-04": "a DeviceClass that was deleted (test_claims_on_lab.py)",
    "CLM-10": "a GPU that computes wrongly (test_claims_on_lab.py)",
    "CLM-11": "claims that get another GPU's UUID (load/test_claim_probes.py, no lab)",
    "CLM-12": "the driver's own libraries in place of the limiter's (test_claims_on_lab.py)",
    "CLM-13": "a device that opens by number (checks/test_verdicts.py, no lab)",
    "CLM-14": "a policy that gives the claim to every container (test_claims_on_lab.py)",
    "CLM-05": "claims whose containers get no driver (test_claims_on_lab.py)",
    "CLM-07": "claims whose containers get no driver (test_claims_on_lab.py)",
    "CLM-09": "a kubelet that syncs once a minute (test_claims_on_lab.py)",
    "CLM-06": "shares that add up to more than a GPU (load/test_claims.py, no lab)",
    "CLM-08": "two tenants on one GPU (load/test_claims.py, no lab)",
    "HW-03": "bad arithmetic beside it, with hardware checks forced (test_options_on_lab.py)",
    "HW-04": "a replica that is halted, with hardware checks forced (test_options_on_lab.py)",
    "BARE-01": "a libcuda of another version (test_bare_on_lab.py)",
    "BARE-02": _INVENTED,
    **dict.fromkeys((f"BARE-{number:02}" for number in range(7, 22)), _BROKEN),
    "BARE-03": _INVENTED,
    "BARE-04": _INVENTED,
    "BARE-06": _INVENTED,
    "BARE-05": "GPUs that compute wrongly (test_bare_on_lab.py)",
}
_BY_HAND = """\

Some checks cannot be made to fail on the lab by a fault of their own. Its nodes run no systemd,
so DISR-07 finds nothing to reload. The lab's scheduler cannot be made to allocate too much, so
CLM-06 and CLM-08 judge made-up allocations. And simulated GPUs share one processor, so HW-01 and
HW-02 fail there without any fault (tried by hand: a MIG device kept 11 % of its bandwidth beside
seven others). A HW check that passes on simulated GPUs counts as skipped. The lab's GPUs are joined
without switches, so NODE-08 applies there only with its fault; it passes on eight simulated GPUs in
test_fabric.py.
"""


def conformance_page() -> str:
    """Return what users need, with the catalogue."""
    return "\n".join([_INTRODUCTION + "\n".join(_options()), _RUN, *_catalogue()]) + "\n"


def faults_page() -> str:
    """Return the table of faults, and which checks have failed for each."""
    text = _FAULTS
    text += "".join(f"| {fault.title} | {', '.join(fault.checks)} |\n" for fault in FAULTS)
    for why in dict.fromkeys(_ELSEWHERE.values()):
        own = ", ".join(key for key, value in _ELSEWHERE.items() if value == why)
        text += f"| {why} | {own} |\n"
    return text + _BY_HAND


def unseen() -> list[str]:
    """List the checks without a fault in the tables here; a check that cannot fail is none."""
    seen = {identity for fault in FAULTS for identity in fault.checks} | set(_ELSEWHERE)
    return [identity for identity in CATALOGUE if identity not in seen]


def _options() -> Iterator[str]:
    yield "| option | does |"
    yield "|---|---|"
    for option in OPTIONS:
        typed = f"--{option.name}" if option.is_flag else f"--{option.name}=…"
        yield f"| `{typed}` | {option.help} |"


def _catalogue() -> Iterator[str]:
    yield "| id | proves that | level | modes |"
    yield "|---|---|---|---|"
    for check in CATALOGUE.values():
        modes = _MODES.get(check.modes) or ", ".join(check.modes)
        level = f"{check.level}, hardware only" if check.needs_hardware else check.level
        yield f"| {check.id} | {check.title} | {level} | {modes} |"
