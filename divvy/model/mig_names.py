"""MIG profile names: computed as the driver's tools compute them, and read back."""

import re

_NAME = re.compile(
    r"(?:(?P<ci>\d+)c\.)?(?P<gi>\d+)g\.(?P<gb>\d+)gb(?:(?P<sign>[+-])(?P<attributes>[^+\-\s]+))?"
)
_ATTRIBUTE = re.compile(r"[a-z](?:[a-z.]*[a-z])?")


def profile_name(
    compute_slices: int,
    memory_mib: int,
    total_memory_mib: int,
    attributes: tuple[str, ...] = (),
) -> str:
    """Return the name of a GPU instance profile on a card with that much memory.

    The gigabytes are the instance's share in eighths (rounded up) of the card's
    GiB (rounded up), rounded half away from zero: 70.5 is 71, where ``round``
    says 70. An attribute that says what an instance lacks has its minus (``-me``).
    """
    eighths = -(-8 * memory_mib // total_memory_mib)
    gibibytes = -(-total_memory_mib // 1024)
    gigabytes = (2 * eighths * gibibytes + 8) // 16
    suffix = ",".join(attributes)
    if attributes and not suffix.startswith("-"):
        suffix = f"+{suffix}"
    return f"{compute_slices}g.{gigabytes}gb{suffix}"


def is_profile_name(text: str) -> bool:
    """Return whether a text has the form of a MIG profile name."""
    match = _NAME.fullmatch(text)
    if match is None:
        return False
    if match["attributes"] is None:
        return True
    attributes = match["attributes"].split(",")
    return len(set(attributes)) == len(attributes) and all(
        _ATTRIBUTE.fullmatch(attribute) for attribute in attributes
    )


def compute_slices(name: str) -> int:
    """Return the compute slices that a profile name states (the 3 of ``3g.20gb``)."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a MIG profile name; one looks like 1g.5gb or 1g.5gb+me")
    return int(match["gi"])


def resource_part(name: str) -> str:
    """Return a profile's name as it stands in a resource name (``1g.5gb+me`` → ``1g.5gb.me``)."""
    return name.replace("+", ".")
