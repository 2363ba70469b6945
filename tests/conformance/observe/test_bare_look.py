"""Pods without a request, in each runtime class that leads to NVIDIA's container runtime."""

from typing import Any

from conformance.observe.bare_look import classes_of, nvidia_runtime_classes

_LABEL = "katacontainers.io/kata-runtime"


class Classes:
    """An API server with some runtime classes."""

    def find_known(self, _kind: Any) -> list[dict[str, Any]]:
        return [
            {"metadata": {"name": "nvidia"}, "handler": "nvidia"},
            {"metadata": {"name": "gpus"}, "handler": "nvidia-legacy", "scheduling": {}},
            {"metadata": {"name": "gvisor"}, "handler": "runsc"},
            {
                "metadata": {"name": "kata-qemu-nvidia-gpu"},
                "handler": "kata-qemu-nvidia-gpu",
                "scheduling": {"nodeSelector": {_LABEL: "true"}},
            },
        ]


def test_tries_the_classes_whose_pods_can_run_on_a_node() -> None:
    """The pods of others stay Pending there, which says nothing of its GPUs."""
    classes = nvidia_runtime_classes(Classes())  # type: ignore[arg-type]
    assert classes_of(classes, {"kubernetes.io/os": "linux"}) == ("nvidia", "gpus")
    assert classes_of(classes, {_LABEL: "true"}) == ("nvidia", "gpus", "kata-qemu-nvidia-gpu")
