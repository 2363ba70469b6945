"""Checks that the objects rendered for the stack file are in the cluster, and run."""

from __future__ import annotations

from conformance.catalogue import check
from conformance.cluster.running_images import rolled_out_to
from conformance.evidence import Evidence
from conformance.fixtures import FreshStatuses
from conformance.observe.installed import Installation, Part
from conformance.promise import NodePromise


@check("INST-01")
def test_the_agents_are_those_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.AGENTS))


@check("INST-02")
def test_the_configuration_is_the_stack_files(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.CONFIGURATION))


@check("INST-03")
def test_the_admission_policies_are_bound(installation: Installation, evidence: Evidence) -> None:
    evidence.require(*installation.judge(Part.POLICIES))


@check("INST-04")
def test_what_claims_need_is_there(installation: Installation, evidence: Evidence) -> None:
    evidence.require(*installation.judge(Part.CLAIMS))


@check("INST-05")
def test_the_node_runtime_is_that_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.NODE_RUNTIME))


@check("INST-06")
def test_the_observability_is_that_of_this_program(
    installation: Installation, evidence: Evidence
) -> None:
    evidence.require(*installation.judge(Part.OBSERVABILITY))


@check("INST-07")
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
