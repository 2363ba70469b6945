"""Names of extended resources and labels, and what Kubernetes allows in them."""

import re

from divvy.model.mig_names import resource_part

VENDOR = "nvidia.com"
GPU = f"{VENDOR}/gpu"
SHARED_SUFFIX = ".shared"

# NVIDIA's plugin holds whole names to 63 characters; Kubernetes holds only the last part to it.
MAX_CHARACTERS = 63
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DOMAIN = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
)
_RESERVED = ("kubernetes.io", "k8s.io")


def gpu_resource(shared: bool = False) -> str:
    """Return the name of whole GPUs or of their renamed replicas."""
    return GPU + SHARED_SUFFIX if shared else GPU


def mig_resource(profile: str, shared: bool = False) -> str:
    """Return the name of MIG devices of a profile, or of their renamed replicas."""
    name = f"{VENDOR}/mig-{resource_part(profile)}"
    return name + SHARED_SUFFIX if shared else name


def qualified(name: str) -> str:
    """Return a resource name with the vendor's domain where it has none."""
    return name if "/" in name else f"{VENDOR}/{name}"


def resource_name_error(name: str) -> str | None:
    """Return what Kubernetes would refuse about an extended resource's name, None if nothing."""
    domain, slash, last = name.partition("/")
    if not slash or "/" in last:
        return "an extended resource is named <domain>/<name>"
    if not _DOMAIN.fullmatch(domain):
        return f"{domain!r} is not a valid lowercase DNS domain"
    if any(domain == reserved or domain.endswith("." + reserved) for reserved in _RESERVED):
        return f"the domain {domain} is reserved by Kubernetes"
    if not last or len(last) > MAX_CHARACTERS:
        return f"{last!r} has {len(last)} characters, 1 to {MAX_CHARACTERS} are allowed"
    if not _NAME.fullmatch(last):
        return (
            f"{last!r} may hold letters, digits, '-', '_' and '.', "
            "and begins and ends with a letter or digit"
        )
    return None


def label_key_error(key: str) -> str | None:
    """Return what Kubernetes would refuse about a label's key, None if nothing."""
    domain, slash, last = key.rpartition("/")
    if slash and not _DOMAIN.fullmatch(domain):
        return f"{domain!r} is not a valid lowercase DNS domain"
    if not last or len(last) > MAX_CHARACTERS or not _NAME.fullmatch(last):
        return (
            f"{last!r} has to be 1 to {MAX_CHARACTERS} letters, digits, '-', '_' or '.', "
            "with a letter or digit at both ends"
        )
    return None


def label_value_error(value: str) -> str | None:
    """Return what Kubernetes would refuse about a label's value, None if nothing."""
    if not value or (len(value) <= MAX_CHARACTERS and _NAME.fullmatch(value)):
        return None
    return (
        f"{value!r} has to be at most {MAX_CHARACTERS} letters, digits, '-', '_' or '.', "
        "with a letter or digit at both ends"
    )
