"""HAMi's namespace quotas in the words of Kueue and of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from divvy.model.quantities import mib_quantity
from divvy.plan.hami_quota import ImportedQuotas
from divvy.plan.kueue_quota import SHARE_MEMORY
from divvy.render.kueue import CONFIGURATION, kueue_object
from divvy.render.plain_yaml import plain_yaml

_FLAVOR = "all-pools"
_CONFIGURATION_HEAD = (
    "# Merge this into Kueue's own Configuration, beside what `divvy plan -o kueue` writes.\n"
    "# Each pod is counted by itself, as HAMi does; the integration batch/job would hold back Jobs"
    " with\n# nvidia.com/gpumem in their limits. cpu and memory have no quota here.\n"
)
_FLAVOR_HEAD = "# A quota of HAMi holds for all nodes together: a flavor without labels.\n"
_QUEUE_HEAD = (
    "# A pod above the quota waits; HAMi refuses it.\n"
    "# Whole GPUs and MIG devices are not admitted: HAMi charges their memory, Kueue cannot add it"
    " to that\n# of shares. Give them a quota of their own. Nor are pods with"
    " nvidia.com/gpumem-percentage.\n"
)
_COUNTS_HEAD = "# In place of the ResourceQuota of this name.\n"


def hami_quota_objects(quotas: ImportedQuotas) -> str:
    """Return the objects as YAML; comments say what is not kept as it was."""
    head = "".join(f"# differs: {difference}\n" for difference in quotas.differences)
    if quotas.ended:
        head += f"# Delete these ResourceQuotas, which count nothing: {', '.join(quotas.ended)}\n"
    return head + "---\n".join(_documents(quotas))


def _documents(quotas: ImportedQuotas) -> Iterator[str]:
    if quotas.memory:
        yield _CONFIGURATION_HEAD + plain_yaml(_configuration())
        yield _FLAVOR_HEAD + plain_yaml(kueue_object("ResourceFlavor", _FLAVOR, {}))
    for namespace, memory in quotas.memory.items():
        yield _QUEUE_HEAD + plain_yaml(_cluster_queue(namespace, memory))
        # Kueue gives its label to what has none in a namespace with a LocalQueue of this name.
        spec = {"clusterQueue": namespace}
        yield plain_yaml(kueue_object("LocalQueue", "default", spec, namespace=namespace))
    for quota in quotas.counts:
        yield _COUNTS_HEAD + plain_yaml(quota)


def _configuration() -> dict[str, Any]:
    uncounted = ["cpu", "memory", "ephemeral-storage", "hugepages-"]
    return {
        **CONFIGURATION,
        "integrations": {"frameworks": ["pod"]},
        "resources": {"excludeResourcePrefixes": uncounted},
    }


def _cluster_queue(namespace: str, memory: int) -> dict[str, Any]:
    limit = {"name": SHARE_MEMORY, "nominalQuota": mib_quantity(memory) if memory else "0"}
    group = {
        "coveredResources": [SHARE_MEMORY],
        "flavors": [{"name": _FLAVOR, "resources": [limit]}],
    }
    own = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {"namespaceSelector": own, "resourceGroups": [group]}
    return kueue_object("ClusterQueue", namespace, spec)
