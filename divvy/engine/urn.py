"""URNs: the permanent names of a stack's resources."""

from __future__ import annotations

from divvy.engine.subset import PROVIDER_PREFIX

STACK_TYPE = "pulumi:pulumi:Stack"


def make_urn(stack: str, project: str, parent: str, kind: str, name: str) -> str:
    """Return the URN of a resource; ``parent`` is its parent's URN or ""."""
    chain = qualified_type(parent) if parent else ""
    if chain and chain != STACK_TYPE:
        kind = f"{chain}${kind}"
    return f"urn:pulumi:{stack}::{project}::{kind}::{name}"


def qualified_type(urn: str) -> str:
    """Return the type chain of a URN ("parent$child")."""
    return urn.split("::", 3)[2]


def urn_type(urn: str) -> str:
    """Return the resource's own type."""
    return qualified_type(urn).rsplit("$", 1)[-1]


def urn_name(urn: str) -> str:
    """Return the resource's logical name."""
    return urn.split("::", 3)[3]


def inherited_alias(kind: str, name: str, parent: str, alias: str) -> str:
    """Return the URN that a child had while its parent had the URN ``alias``.

    A child's name that begins with its parent's is taken to have followed it.
    """
    if name.startswith(urn_name(parent)):
        name = urn_name(alias) + name.removeprefix(urn_name(parent))
    head, project, *_ = alias.split("::")
    return make_urn(head.removeprefix("urn:pulumi:"), project, alias, kind, name)


def provider_reference(urn: str, identity: str) -> str:
    """Return the reference by which a resource names its provider."""
    return f"{urn}::{identity}"


def split_provider_reference(reference: str) -> tuple[str, str]:
    """Return URN and id of a provider reference."""
    urn, _, identity = reference.rpartition("::")
    return urn, identity


def is_default_provider(urn: str) -> bool:
    """Tell whether the engine itself registered a provider; its name has the SDK's version."""
    return urn_type(urn).startswith(PROVIDER_PREFIX) and urn_name(urn).startswith("default")
