"""Objects of Divvy's that are gone from the cluster, or not rolled out; `divvy up` repairs them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.conformance.faults.fault import H100, Options
from tests.conformance.scene import Scene
from tests.deployment import NAMESPACE


def without(kind: str, name: str) -> Callable[[Scene], AbstractContextManager[Options]]:
    """Delete an object of Divvy's."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        offered = scene.deployed.offered(H100)
        scene.deployed.lab.kubectl("delete", kind, name, f"-n={NAMESPACE}")
        try:
            yield {}
        finally:
            scene.deployed.up()
            scene.deployed.until(lambda: scene.deployed.offered(H100) == offered, 60)

    return inflict


@contextmanager
def not_rolled_out(scene: Scene) -> Iterator[Options]:
    """Name another image in the agents' template, and replace no pod."""
    path = "/spec/template/spec/containers/0/image"
    agents = scene.deployed.lab.get("daemonset/divvy-agent", f"-n={NAMESPACE}")
    image = agents["spec"]["template"]["spec"]["containers"][0]["image"]
    strategy = agents["spec"]["updateStrategy"]
    other = f"{image[:-4]}{'0000' if not image.endswith('0000') else '1111'}"
    scene.patch_agents(
        "json",
        [
            {"op": "replace", "path": "/spec/updateStrategy", "value": {"type": "OnDelete"}},
            {"op": "replace", "path": path, "value": other},
        ],
    )
    try:
        yield {}
    finally:
        scene.patch_agents(
            "json",
            [
                {"op": "replace", "path": path, "value": image},
                {"op": "replace", "path": "/spec/updateStrategy", "value": strategy},
            ],
        )
