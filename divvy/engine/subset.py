"""What the embedded engine does. The rest is left to the official CLI, which uses the same state.

``docs/pulumi.md`` has these tables. A program is checked as a whole before anything is changed;
what it registers later, inside an ``apply``, is checked before that resource is touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LEADS_ON = "is not supported by the embedded engine; run `pulumi up`: it uses the same state"
PROVIDER_PREFIX = "pulumi:providers:"
DYNAMIC = "pulumi-python"
_ACCEPTED = "the API server has accepted it"


@dataclass(frozen=True)
class Kind:
    """A kind of Kubernetes objects, in any version of its group; ``ready`` ends the waiting."""

    group: str
    name: str
    ready: str = _ACCEPTED


KINDS = (
    Kind("core", "Namespace", "its phase is Active; deleted when all its objects are"),
    Kind("core", "ConfigMap"),
    Kind("core", "Secret"),
    Kind("core", "Service", "of type LoadBalancer: it has an address; else accepted"),
    Kind("core", "ServiceAccount"),
    Kind("core", "LimitRange"),
    Kind("core", "ResourceQuota"),
    Kind(
        "apps",
        "DaemonSet",
        "every scheduled pod is of the present revision and has stayed ready; deleted when its "
        "pods are",
    ),
    Kind(
        "apps",
        "Deployment",
        "every replica is of the present revision and has stayed ready, and no older one is left; "
        "deleted when its pods are",
    ),
    Kind("rbac.authorization.k8s.io", "ClusterRole"),
    Kind("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    Kind("rbac.authorization.k8s.io", "Role"),
    Kind("rbac.authorization.k8s.io", "RoleBinding"),
    Kind("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    Kind("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    Kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    Kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    Kind("coordination.k8s.io", "Lease"),
    Kind("networking.k8s.io", "NetworkPolicy"),
    Kind("node.k8s.io", "RuntimeClass"),
    Kind("policy", "PodDisruptionBudget"),
    Kind("resource.k8s.io", "DeviceClass"),
    Kind("resource.k8s.io", "ResourceClaimTemplate"),
    Kind("scheduling.k8s.io", "PriorityClass"),
    Kind("monitoring.coreos.com", "PrometheusRule"),
    Kind("monitoring.coreos.com", "ServiceMonitor"),
)
# By the SDK's names.
OPTIONS = (
    "additional_secret_outputs",
    "aliases",
    "custom_timeouts",
    "delete_before_replace",
    "depends_on",
    "ignore_changes",
    "parent",
    "protect",
    "provider",
    "providers",
    "transformations",
    "version",
)
REFUSED_OPTIONS = {
    "deleted_with": "deleted_with",
    "env_var_mappings": "env_var_mappings",
    "hide_diffs": "hide_diffs",
    "hooks": "hooks",
    "id": "id (`.get()`)",
    "import_": "import_",
    "plugin_download_url": "plugin_download_url",
    "remote": "remote components",
    "replace_on_changes": "replace_on_changes",
    "replace_with": "replace_with",
    "replacement_trigger": "replacement_trigger",
    "retain_on_delete": "retain_on_delete",
    "state_migrations": "state_migrations",
    "transforms": "transforms",
    "urn": "urn",
}
PROVIDER_OPTIONS = (
    "context",
    "enableConfigMapMutable",
    "enableSecretMutable",
    "enableServerSideApply",
    "kubeconfig",
    "namespace",
    "suppressDeprecationWarnings",
    "suppressHelmHookWarnings",
)
ANNOTATIONS = (
    "pulumi.com/deletionPropagationPolicy",
    "pulumi.com/patchForce",
    "pulumi.com/skipAwait",
    "pulumi.com/timeoutSeconds",
)
REFUSED_ANNOTATIONS = (
    "pulumi.com/patchFieldManager",
    "pulumi.com/replaceUnready",
    "pulumi.com/waitFor",
)
COMMANDS = (
    "preview",
    "up",
    "refresh",
    "destroy",
    "cancel",
    "stack ls",
    "stack init",
    "stack rm",
    "stack output",
    "stack export",
    "stack import",
    "config",
)
# The SDK's own, which no program writes.
_SDK_PROVIDER_OPTIONS = {"version", "pluginDownloadURL", "__internal"}
_SUPPORTED = {(kind.group, kind.name) for kind in KINDS}


@dataclass(frozen=True)
class Declaration:
    """What a program declares of one resource: names only, no values.

    ``options`` are those that it sets, ``inputs`` its top-level inputs, ``metadata`` the keys of
    an object's metadata, ``annotations`` those of its annotations, as far as they are known.
    ``aliases`` are texts that two aliases share which mean one resource.
    """

    type: str
    name: str
    options: frozenset[str] = frozenset()
    inputs: frozenset[str] = frozenset()
    metadata: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    component: bool = False

    def refusals(self) -> Iterator[str]:
        """Yield a sentence for everything that the engine does not do."""
        # The components of pulumi_kubernetes (charts, YAML files) need its functions.
        if not self.component or self.type.startswith("kubernetes:"):
            problem = _type_problem(self.type)
            if problem:
                yield f"{problem} {LEADS_ON}"
        # Also what a later SDK has.
        for option in sorted(self.options - set(OPTIONS)):
            yield f"the option {REFUSED_OPTIONS.get(option, option)} {LEADS_ON}"
        for annotation in sorted(self.annotations & set(REFUSED_ANNOTATIONS)):
            yield f"the annotation {annotation} {LEADS_ON}"
        if "generateName" in self.metadata:
            yield (
                "metadata.generateName is not supported: leave out the name, and the engine "
                "generates one"
            )
        if self.type == f"{PROVIDER_PREFIX}kubernetes":
            known = {*PROVIDER_OPTIONS, *_SDK_PROVIDER_OPTIONS}
            for option in sorted(self.inputs - known):
                yield f"the provider option {option} {LEADS_ON}"


def declaration_from(raw: Mapping[str, Any]) -> Declaration:
    """Read what the program's process sends of a resource: a field of Declaration each.

    The SDK translates Python's names of inputs (``enable_config_map_mutable``) only later.
    """
    sets = {key: frozenset(value) for key, value in raw.items() if isinstance(value, list)}
    for key in ("inputs", "metadata"):
        sets[key] = frozenset(map(_camel_case, sets[key]))
    return Declaration(raw["type"], raw["name"], component=raw["component"], **sets)


def refusals(declarations: Iterable[Declaration]) -> dict[str, str]:
    """Return why a program is refused as a whole: resource → one sentence or more."""
    problems: dict[str, str] = {}
    owners: dict[str, str] = {}
    for declaration in declarations:
        sentences = list(declaration.refusals())
        for alias in sorted(declaration.aliases):
            owner = owners.setdefault(alias, declaration.name)
            if owner != declaration.name:
                sentences.append(
                    f"{declaration.name} and {owner} have the same alias {alias}: only one of "
                    "them can be that resource"
                )
        if sentences:
            problems[declaration.name] = "; ".join(sentences)
    return problems


def refused_record(kind: str) -> str | None:
    """Return why a recorded resource of a type cannot be deleted or changed, None if it can.

    Whole Kubernetes objects of any kind can: an earlier release, or the official engine, has
    created them. To delete a Patch would delete an object that it has only patched.
    """
    package = kind.removeprefix(PROVIDER_PREFIX).partition(":")[0]
    if package not in ("kubernetes", DYNAMIC, "pulumi"):
        return f"the provider {package} {LEADS_ON}"
    if package == "kubernetes" and kind.endswith("Patch"):
        return f"the kind {kind.rpartition(':')[2]} {LEADS_ON}"
    return None


def _camel_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])_([a-z])", lambda match: match[1].upper(), name)


def _type_problem(kind: str) -> str | None:
    package, _, rest = kind.partition(":")
    if kind.startswith(PROVIDER_PREFIX):
        package = kind.removeprefix(PROVIDER_PREFIX)
        return None if package in ("kubernetes", DYNAMIC) else f"the provider {package}"
    if package == DYNAMIC:
        return None
    if package == "pulumi":
        return f"the resource {rest.rpartition(':')[2]}"
    if package != "kubernetes":
        return f"the provider {package}"
    versioned, _, name = rest.partition(":")
    group = versioned.rpartition("/")[0]
    return None if (group, name) in _SUPPORTED else f"the kind {name} ({versioned})"
