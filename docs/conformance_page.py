"""The pages about conformance: the catalogue, and the faults that the suite's tests inject."""

from collections.abc import Iterator

from conformance.catalogue import CATALOGUE
from conformance.check import EVERY
from tests.conformance.faults import FAULTS

_INTRODUCTION = """\
# Conformance: what `divvy verify` checks

`divvy verify -s <stack>` computes the plan of the stack file, inspects every live node
of its pools, runs small pods on their devices and reports what holds. It removes
its pods and namespaces. A run on simulated GPUs says so everywhere and is at best *partial*.

| option | does |
|---|---|
| (none) | takes one device per resource for a few seconds; disturbs no pod |
| `--exclusive` | fills nodes, burns GPUs, requests too much memory: needs idle GPUs |
| `--disruptive` | restarts agents and kubelets, changes profiles and back, breaks simulated GPUs |
| `--select PLUG,ISO-02`, `--pool P` | only these checks, only this pool |
| `--target nvidia-device-plugin` or `nvidia-dra` | NVIDIA's, not Divvy ([field.md](field.md)) |
| `--sample 5%`, `--sample N` | a part, or N, of the nodes of each pool; `--seed` says which |
| `--changed` | only nodes that changed since the report that `--compare` names |
| `--time-limit MINUTES` | starts no check after this many minutes; the rest is *not made* |
| `--strict` | exits with 1 if a SHOULD check failed, too: for CI and after an upgrade |
| `--require` | exits with 3 if a MUST check could not be run: for CI |
| `--no-exec` | runs no command in the agents' pods; checks that need it are skipped by name |
| `--bare` | checks this host, without Kubernetes or stack: driver, discovery, workloads |
| `--host ssh://user@name` | with `--bare`: another host |
| `--driver-root FOLDER` | with `--bare`: the driver root, if it is not the host itself |
| `--workloads FOLDER` | with `--bare`: the compiled workloads, for a host without a compiler |
| `--mig` | with `--bare`: partitions an idle GPU by MIG, and makes it whole again; needs root |
| `--workload-image I` | the image of the workloads, instead of building and pushing it |
| `--vector-add-image I`, `--gpu-burn-image I` | runs well-known images, reads their output |
| `--compare OLD` | compares with an earlier `report.yaml`, archive, or `last`: see below |
| `--product` | writes `PRODUCT.yaml`: rows of the CNCF's AI conformance product file |
| `--in-cluster` | runs nothing: writes a Job that runs it in the cluster |
| `--runner-image I` | with `--in-cluster`, the image of the suite, instead of building it |
| `--out FOLDER` | folder for reports (HTML, YAML, JUnit, CTRF) and the archive of the run |

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

INST checks compare the objects that this program renders for the stack file with the cluster's,
field by field as far as the program sets them, and look whether they are rolled out, to which
image, and from which sources it was built. So an upgrade that did not happen fails, and `divvy up`
repairs it. `report.yaml` says what was tested: versions of Divvy, the stack file, Kubernetes and
every node's software, the agents' images, and the options of the run.

There are three reasons why a check is not run, and `report.yaml` says which (`missed`): an *option*
was not given; it is *not applicable*, since such a cluster cannot have it (no MIG, no systemd,
simulated GPUs); or it was *not made*, since something was in the way: a node that is not Ready or
left the cluster meanwhile, devices that others hold, a quota, a rule of the cluster or a node's
limit of pods, an image that cannot be pulled, a pool without `hardware` in the stack file. MUST
checks that were not made are counted in the first line; with `--require` they end the run with exit
code 3.

A check's evidence does not come from what it checks. What a node advertises is read from the
kubelet and tried with pods, the driver's devices are read from NVML in a separate process, what a
pod was allocated from the kubelet's socket, and where a GPU is in the machine from its bus. Devices
are compared by UUID. A pod asks the driver whether GPUs are simulated. The agent's own word counts
only for the agent itself (NODE-01), and only if it is fresh: the run writes the annotation
`divvy.gpu/verify` on the node, and the agent has to repeat it in its status within a minute.

A bare host is looked at by the agent's own code, where it is this one. What also needs hook,
limiter, stand-ins for a kubelet or the simulated driver is in the [hardware kit](hardware.md), and
is an *option* without it. Each check of a bare host has a limit of time, and ends when the run is
stopped; what it changed is restored, and the report says what was not checked.

A sample is of what runs in pods: NODE-15 asks the agent of every node of the pools
for an answer. NODE-12 to NODE-14 read NVML when the check is made, so that a GPU that is slowed
down under load alone is seen by HW-01 to HW-05. Flit errors of NVLinks are shown and do not
count: sound links have some.

Without `--exclusive`, one device of each resource on each node is tried, and a share of 1,024 MiB
and 5 % of each GPU that pods claim (the whole GPU where it has no shares and is idle); with it,
each such GPU is claimed whole, every device
computes and burns, and on each resource 50 pods in a row come and go, or as many as fit in 75
seconds (20 seconds if GPUs are simulated), but at least 10.

## Compare with an earlier run

`--compare` names the checks that newly fail, newly pass and are newly not checked, with the
reasons; nodes that came and went; versions that changed (Divvy, the stack file, Kubernetes, and
of nodes the driver, kernel, kubelet, container runtime and agent), each with its nodes; and
speed. Speed is what checks measure on hardware (`figures` in `report.yaml`: Gflop/s of full nodes
and of MIG devices alone, GB/s), where it changed by a tenth or more, and the seconds of a check
that takes half as long again, and ten seconds longer, than before. `comparison.md` has all of it
for a pull request.

The command exits with 1 if any check newly fails, also a SHOULD, and with 3 if a MUST check that
was made before could not be made now. What an option left out is counted and changes no exit code.
A simulated report is not compared with one of hardware, nor are reports of two stacks.

Two tests play upgrades on the lab, below pods that hold devices: Kubernetes 1.36 to 1.37
(`test_kubernetes_upgrade_on_lab.py`); containerd 2.3 to 2.4, the driver 550 to 580 to 615, and the
agent (`test_upgrades_on_lab.py`). A Fabric Manager that was not upgraded and an agent that gives a
host's folder writable are the only faults there, and the comparison names nothing else.

**The archive** `conformance.tar.gz` has everything that a run stands on: `report.json`,
`junit.xml`, `ctrf.json`, the stack file, `versions.json` and `SHA256SUMS`.
Equal files give equal bytes. An archive that is not as its checksums say is
refused. To sign one: `ssh-keygen -Y sign` or `cosign sign-blob`.

**The cluster keeps the archive of the last run**, in the ConfigMap `divvy-conformance` of Divvy's
namespace; `--compare last` reads it. A run of a part (`--select`, `--pool`, `--sample`) does not
replace it; one with `--changed` continues it: nodes that it leaves out are as they were, unless the
stack file is another one, and those that are gone are left out. What is larger than a ConfigMap may
be is kept without the evidence of its checks.

## A fleet

`--sample` takes the nodes whose names come first in the order of a hash of `--seed` and the name,
those that are Ready first: the same nodes for the same seed, whichever others come and go, and
others for another seed, such as the date. `--changed` leaves out nodes that the earlier report
shows as they are: in the same pool and profile, with the same software, in the same boot, and
with no check that failed or was *not made*. Another stack file changes every node.

## In the cluster

Without Python on the administrator's machine: `divvy verify -s prod --in-cluster` with any of the
options above writes `verify-job.yaml`, which `kubectl apply` runs. The image of the suite and that
of the workloads are built where
the stack file has the agent's built, which needs `kubectl` here, or are given (`--runner-image`,
`--workload-image`). The pod gets the stack file without `kubeconfig` and `context`, in a variable:
one of 128 KiB or more is refused. The Job ends with the exit code of the run.

The archive of the run is in the ConfigMap as ever:

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

* Its pods run in namespaces `divvy-conformance-…`: at the Pod Security level *restricted*; the
  checks of device numbers and mounts at *baseline* (root, the runtime's usual capabilities); and
  with `--disruptive` one privileged pod in the node's process namespace, which restarts what the
  check names. They have the lowest priority, preempt no pod and terminate after half an hour.
* Before anything is timed, each node pulls the image once, with the Secrets in `imagePullSecrets`
  and a limit of ten minutes. An image that cannot be pulled is reported as *not made*, and so is
  one for another architecture, with the node's. The image that a run builds is for the machine that
  it is built on: if nodes have other architectures, give `--workload-image` one for all of them.
* It never takes a device from others. A check that finds no free device, or needs an idle GPU and
  finds it in use, is skipped and names the holder. Replicas are used only if no other pod holds
  one, because there is no way to tell which GPU backs them.
* It changes a profile with the label `divvy.gpu/profile` on the node, cordons the node meanwhile,
  and writes the annotations `divvy.gpu/conformance-profile` and `divvy.gpu/conformance-cordon`
  beside it; never where others hold devices. It undoes all of that at the end, and when it is
  stopped by Ctrl-C, SIGTERM or the loss of its terminal. **If a run is killed outright, the next
  run of any kind undoes it first, and says so.** By hand:
  `kubectl label node NODE divvy.gpu/profile-; kubectl uncordon NODE`.
* Runs do not disturb each other: each renews a Lease in its namespace, and what a live run has
  changed is left alone. It takes half a minute to tell whether a run is alive.
* It restarts the kubelet and containerd through systemd. Without systemd it kills them if the
  node's first process started them; otherwise the check is skipped. It causes GPU errors only on
  the simulated driver.
* At the end it removes everything but the ConfigMap with its archive, including the namespaces of
  killed runs.

The workloads are small programs of this project that use the CUDA driver API, the same for
hardware and simulation: `cuda-vector-add`, `gpu-burn` (the well-known tool's options and
output; it exits with 1 if a GPU is faulty), `mem-hog`, `mem-bandwidth`, `bad-access`,
`open-devices` and `http-get`. `train` stands for a framework: it trains a small network with
tinygrad, twice with the same result. They are built and pushed to `plugin.image.registry`, or
given with `--workload-image`. `conformance/workloads/manifests` has pods to apply by hand.

Each check has been seen to fail: [the faults](conformance-faults.md). This page is generated:
python -m docs.generate.

## The checks
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
    **dict.fromkeys((f"BARE-{number:02}" for number in range(7, 21)), _BROKEN),
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
    return "\n".join([_INTRODUCTION, *_catalogue()]) + "\n"


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


def _catalogue() -> Iterator[str]:
    yield "| id | proves that | level | modes | when it fails |"
    yield "|---|---|---|---|---|"
    for check in CATALOGUE.values():
        modes = "all" if check.modes == EVERY else ", ".join(check.modes)
        level = f"{check.level}, hardware only" if check.needs_hardware else check.level
        remedy = check.remedy.replace("|", "\\|")
        yield f"| {check.id} | {check.title} | {level} | {modes} | {remedy} |"
