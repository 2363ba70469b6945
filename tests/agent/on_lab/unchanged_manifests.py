"""Manifests as users of NVIDIA's DRA driver and of KAI write them."""

from __future__ import annotations

from typing import Any

from divvy.model.nvidia_claims import GPU_CLASS, TIME_SLICING


def listing(name: str, image: str, *resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a pod with a container for each of the resources, which lists its GPUs and ends."""
    containers = [
        {
            "name": f"ctr{index}",
            "image": image,
            "command": ["bash", "-c", "nvidia-smi -L; nvidia-smi || true"],
            "resources": requested,
        }
        for index, requested in enumerate(resources)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": more.pop("annotations", {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": containers,
            **more,
        },
    }


def claiming(name: str, image: str, *uses: dict[str, str], **claim: str) -> dict[str, Any]:
    """Return such a pod whose containers use claims; the claims' templates have their names."""
    named = {use["name"]: claim or {"resourceClaimTemplateName": use["name"]} for use in uses}
    resource_claims = [{"name": key, **source} for key, source in named.items()]
    containers = [{"claims": [use]} for use in uses]
    return listing(name, image, *containers, resourceClaims=resource_claims)


def template(name: str, *requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a template, or its claim, as it is written for NVIDIA's driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": list(requests), **more}}},
    }


def request(device_class: str, condition: str = "", name: str = "gpu", **more: Any) -> Any:
    """Return a request with a condition on an attribute of NVIDIA's driver."""
    expression = f"device.attributes['gpu.nvidia.com'].{condition}"
    selectors = {"selectors": [{"cel": {"expression": expression}}]} if condition else {}
    return {"name": name, "exactly": {"deviceClassName": device_class, **selectors, **more}}


def parameters(kind: str = "GpuConfig", **more: Any) -> list[dict[str, Any]]:
    value = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **more}
    return [{"requests": ["gpu"], "opaque": {"driver": GPU_CLASS, "parameters": value}}]


def slicing(**more: Any) -> list[dict[str, Any]]:
    return parameters(sharing={"strategy": TIME_SLICING, **more})
