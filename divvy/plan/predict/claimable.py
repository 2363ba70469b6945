"""The most that pods can claim of a node, each kind of device alone, with its guarantees."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from divvy.model import GpuModel, NoPlacement, gpu_resource, mig_resource, place
from divvy.model.claim_devices import ClaimDevice, claimable_gpu
from divvy.model.claims import Claims
from divvy.model.sharing import sharing_of_claims
from divvy.model.stack import Names
from divvy.plan.predict.guarantees import MIG, WHOLE, Guarantees, share_guarantees

# Beside the name of a resource: the device plugin advertises none of these.
BY_CLAIMS = " (claims)"


@dataclass(frozen=True)
class Claimable:
    """One kind of device of a node that pods can claim.

    ``at_most``: so many at once where nothing else is claimed, on ``gpus`` that offer it.
    ``words`` say what one is.
    """

    name: str
    at_most: int
    words: str
    guarantees: Guarantees
    gpus: int = 1


def claimable(gpus: Sequence[tuple[GpuModel, Claims]], names: Names) -> tuple[Claimable, ...]:
    """Return what can be claimed of the GPUs of one node, by name."""
    kinds: dict[str, Claimable] = {}
    for model, claims in gpus:
        for kind in _of_gpu(model, claims, names):
            known = kinds.get(kind.name)
            kinds[kind.name] = (
                kind
                if known is None
                else replace(kind, at_most=known.at_most + kind.at_most, gpus=known.gpus + 1)
            )
    return tuple(kinds[name] for name in sorted(kinds))


def size_words(memory_mib: int, sms: int | None) -> str:
    """Return the memory and the SMs that a device reaches, for people."""
    return f"{memory_mib:,} MiB, {'SMs unknown' if sms is None else f'{sms} SMs'}"


def _of_gpu(model: GpuModel, claims: Claims, names: Names) -> list[Claimable]:
    listed: dict[str, Claimable] = {}
    for device in claimable_gpu("gpu", model.memory_mib, model, claims).devices:
        if device.whole:
            name = names.gpu + BY_CLAIMS
            words = f"whole GPU: {size_words(model.memory_mib, model.sms)}"
            listed[name] = Claimable(name, 1, words, WHOLE)
        if device.share is not None:
            share = _share(device, claims)
            listed.setdefault(share.name, share)
        if device.profile is not None:
            name = mig_resource(device.profile.name) + BY_CLAIMS
            size = size_words(device.profile.memory_mib, device.profile.sms)
            words = f"MIG {device.profile.name}: {size}"
            listed.setdefault(
                name, Claimable(name, _instances(model, device.profile.name), words, MIG)
            )
    return list(listed.values())


def _share(device: ClaimDevice, claims: Claims) -> Claimable:
    size, shares = device.share, claims.shares
    assert size is not None
    assert shares is not None
    least, total = size.step_mib, size.memory_mib
    words = f"share of a GPU: {least:,} to {total:,} MiB in steps of {least:,}, 1 to 100 % of time"
    if claims.tenants:
        words += f"; tenants {', '.join(claims.tenants)} never on one GPU"
    promise = share_guarantees(sharing_of_claims(shares), tenants=bool(claims.tenants))
    at_most = min(size.most, total // least)
    return Claimable(gpu_resource(shared=True) + BY_CLAIMS, at_most, words, promise)


def _instances(model: GpuModel, profile: str) -> int:
    """Return how many instances of a profile a GPU holds at once."""
    assert model.mig is not None
    known = model.mig.profile(profile)
    assert known is not None
    for number in range(known.max_count, 0, -1):
        try:
            place(model.mig, {profile: number})
        except NoPlacement:
            continue
        return number
    return 0
