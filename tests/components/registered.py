"""Print what GpuCluster registers for the lab's stack, and with which Kubernetes providers.

Pulumi's own mocks stand in for an engine; further arguments are providers given to it.

A process of its own: the mocks leave event loops behind.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pulumi
import pulumi_kubernetes

from divvy.components import GpuCluster
from divvy.model import InvalidCluster
from divvy.pulumi_resources import cluster_identity
from tests.render.chart.charts import example

IMAGE = f"registry.example/agent@sha256:{'0' * 64}"


class Recorder(pulumi.runtime.Mocks):
    """Keeps what is registered."""

    def __init__(self) -> None:
        self.registered: list[str] = []
        self.providers: set[str] = set()

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict]:
        self.registered.append(args.name)
        if args.typ.startswith("kubernetes:") and args.provider:
            self.providers.add(args.provider.split("::")[-2])
        return args.name, dict(args.inputs)

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict:
        return {}


def main() -> None:
    recorder = Recorder()
    pulumi.runtime.set_mocks(recorder)
    cluster_identity.cluster_uid = lambda *_: "uid"
    value = {**example("lab"), "plugin": {"image": {"reference": IMAGE}}}
    value |= json.loads(sys.argv[1])
    given = sys.argv[2:]

    @pulumi.runtime.test
    def program() -> Any:
        own = [pulumi_kubernetes.Provider(name) for name in given]
        options = pulumi.ResourceOptions(providers=own)
        return GpuCluster("lab", {"cluster": value}, options).advertised

    try:
        program()
    except (InvalidCluster, pulumi.RunError) as error:
        recorder.registered.append("invalid")
        print(error, file=sys.stderr)
    print(json.dumps([recorder.registered, sorted(recorder.providers)]))


if __name__ == "__main__":
    main()
