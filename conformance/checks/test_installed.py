"""Checks that the objects rendered for the stack file are in the cluster, and run."""

from __future__ import annotations

from conformance.check import EVERY, UP, check
from conformance.cluster.running_images import rolled_out_to
from conformance.evidence import Evidence
from conformance.fixtures import FreshStatuses
from conformance.observe.installed import Installation, Part
from conformance.promise import NodePromise


@check(
    "INST-01",
    "the agents' objects are this program's, and rolled out",
    "MUST",
    EVERY,
    UP,
    cncf=("driver_runtime_management",),
)
def test_the_agents_are_those_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.AGENTS))


@check(
    "INST-02",
    "the configuration in the cluster is the stack file's",
    "MUST",
    EVERY,
    UP,
)
def test_the_configuration_is_the_stack_files(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.CONFIGURATION))


@check(
    "INST-03",
    "Divvy's admission policies are there and bound",
    "MUST",
    EVERY,
    UP,
    cncf=("secure_accelerator_access",),
)
def test_the_admission_policies_are_bound(installation: Installation, evidence: Evidence) -> None:
    evidence.require(*installation.judge(Part.POLICIES))


@check(
    "INST-04",
    "what claims need is there: classes, template maker, rights",
    "MUST",
    EVERY,
    UP,
    cncf=("dra_support",),
)
def test_what_claims_need_is_there(installation: Installation, evidence: Evidence) -> None:
    evidence.require(*installation.judge(Part.CLAIMS))


@check(
    "INST-05",
    "what prepares the nodes' runtime is there, and rolled out",
    "MUST",
    EVERY,
    UP,
)
def test_the_node_runtime_is_that_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.NODE_RUNTIME))


@check(
    "INST-06",
    "dashboard, monitors and alerts are this program's",
    "MUST",
    EVERY,
    UP,
)
def test_the_observability_is_that_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.OBSERVABILITY))


@check(
    "INST-07",
    "the node's pods run the image that is rolled out, of this program",
    "MUST",
    EVERY,
    f"{UP}; `kubectl rollout status` shows what waits",
    cncf=("driver_runtime_management",),
)
def test_the_nodes_pods_run_the_image_that_is_rolled_out(
    installation: Installation,
    statuses: FreshStatuses,
    node: NodePromise,
    evidence: Evidence,
) -> None:
    images = installation.images.get(node.name, {})
    for component, (named, digest) in images.items():
        evidence.add(f"{component}: {named}, runs {digest or 'an unknown digest'}")
    image, _ = installation.image
    build = str(statuses[node].status.get("build", ""))
    evidence.require(*rolled_out_to(images, image, build, installation.sources))
