"""Opens the cluster under test: reads the stack, computes its plan, connects."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from conformance.cluster.api import SECONDS, Api
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.namespaces import clear_leftovers
from conformance.cluster.node_life import not_ready
from conformance.cluster.running_images import images_by_node
from conformance.image import build_as
from conformance.implementation import IMPLEMENTATIONS, Implementation
from conformance.promise import node_promises
from conformance.sample import changed, parse_sample, sampled
from conformance.tested_versions import (
    node_versions,
    program_versions,
    server_version,
)
from divvy.image.build import BuildFailed
from divvy.kube.client import Client
from divvy.kube.errors import ApiError, KubeconfigError, Unreachable
from divvy.kube.kind import NODE, POD
from divvy.kube.kubeconfig import cluster_config
from divvy.live.live_diff import LiveNode, live_node, node_status, unread_node
from divvy.model import PluginImage
from divvy.model.api_names import Component
from divvy.model.problems import printable
from divvy.plan import plan
from divvy.stack.errors import StackError
from divvy.stack.file import read_stack
from divvy.stack.sections import read_document
from divvy.version_info import git_revision

_NO_IMAGE = "no workload image: give --workload-image, or plugin.image.registry"


@cache
def _note(text: str) -> None:
    """Tell, once, of an object that cannot be read."""
    print(f"warning: not read: {printable(text)}", file=sys.stderr)


def open_cluster(config: pytest.Config) -> ClusterUnderTest:
    """Read the stack, compute its plan, connect to its cluster."""
    file = config.getoption("--divvy-file")
    name = config.getoption("--divvy-stack")
    try:
        source = read_stack(None if file else name, Path(file) if file else None)
        document = read_document(source)
    except StackError as problem:
        raise pytest.UsageError(str(problem)) from None
    cluster = document.cluster
    implementation = _implementation(config.getoption("--divvy-target"))
    kubeconfig = str(Path(cluster.kubeconfig).expanduser()) if cluster.kubeconfig else None
    server = ""
    try:
        client = Client(
            cluster_config(kubeconfig, cluster.context), SECONDS, is_patient=False, note=_note
        )
        server = client.server
        api = Api(client)
        clear_leftovers(api)
        live, unread = api.find_whole(NODE)
        images = images_by_node(api.find_known(POD, namespace=cluster.namespace))
    except KubeconfigError as problem:
        raise pytest.UsageError(f"no usable kubeconfig: {problem}") from None
    except ApiError as problem:
        raise pytest.UsageError(f"the cluster refuses: {problem}") from None
    except Unreachable as problem:
        raise pytest.UsageError(f"the cluster cannot be reached: {server}: {problem}") from None
    nodes, unready = read_nodes(live)
    pool = config.getoption("--divvy-pool")
    if pool is not None and pool not in cluster.pools:
        known = ", ".join(cluster.pools)
        raise pytest.UsageError(f"the stack file has no pool {pool}; it has: {known}")
    pool_nodes = node_promises(cluster, plan(cluster, name), nodes, pool, unready)
    size, seed = config.getoption("--divvy-sample"), config.getoption("--divvy-seed")
    try:
        sample = None if size is None else parse_sample(size, seed or "")
    except ValueError as problem:
        raise pytest.UsageError(str(problem)) from None
    promises = sampled(pool_nodes, sample)
    reported = {
        node["metadata"]["name"]: node_status(node["metadata"].get("annotations") or {})
        for node in live
        # What an agent has left behind says nothing of another implementation.
        if implementation.is_divvy
    }
    image, no_image = _workload_image(config.getoption("--workload-image"), cluster.plugin.image)
    versions = {
        "divvy": program_versions(),
        "kubernetes": server_version(kubeconfig, cluster.context),
    }
    of_nodes = {
        node["metadata"]["name"]: {
            **node_versions(node),
            **_agent_of(images, reported, node["metadata"]["name"]),
        }
        for node in live
    }
    under_test = ClusterUnderTest(
        name,
        document,
        api,
        promises,
        all_nodes=[*nodes, *map(unread_node, unread)],
        unready=unready,
        reported=reported,
        pool=pool,
        image=image,
        no_image=no_image,
        kubeconfig=kubeconfig,
        revision=git_revision(Path(source.source).resolve()),
        versions=versions,
        node_versions=of_nodes,
        pool_nodes=pool_nodes,
        implementation=implementation,
    )
    if since := config.getoption("--divvy-changed-since"):
        earlier = json.loads(Path(since).read_text())
        under_test.limit_to(changed(promises, under_test.entry, earlier, under_test.generation))
    return under_test


def _implementation(name: str) -> Implementation:
    if name not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise pytest.UsageError(f"--target={name} is not known; known are {known}")
    return IMPLEMENTATIONS[name]


def _agent_of(
    images: Mapping[str, Mapping[str, tuple[str, str]]],
    reported: Mapping[str, Mapping[str, Any]],
    node: str,
) -> dict[str, str]:
    """Return which image the agent of a node runs, and from which sources it was built."""
    named, digest = images.get(node, {}).get(Component.AGENT, ("", ""))
    agent = {"agentImage": named, "agentDigest": digest}
    agent["agentBuild"] = str(reported.get(node, {}).get("build") or "")
    return {name: text for name, text in agent.items() if text}


def _workload_image(given: str | None, agents: PluginImage | None) -> tuple[str | None, str]:
    """Return the image with the workloads, or None and why it is missing: other checks go on."""
    if given == "":
        raise pytest.UsageError("--workload-image is empty: leave it out, and an image is built")
    if given:
        return given, ""
    try:
        return build_as(agents), _NO_IMAGE
    except BuildFailed as problem:
        print(problem, file=sys.stderr)
        return None, str(problem)


def read_nodes(live: Iterable[Mapping[str, Any]]) -> tuple[list[LiveNode], dict[str, str]]:
    """Return the nodes, and of those on which no pod can run, why."""
    nodes, unready = [], {}
    for node in live:
        metadata, status = node["metadata"], node.get("status") or {}
        name = str(metadata["name"])
        nodes.append(
            live_node(
                name,
                metadata.get("labels") or {},
                metadata.get("annotations") or {},
                status.get("allocatable") or {},
            )
        )
        if why := not_ready(node):
            unready[name] = why
    return nodes, unready
