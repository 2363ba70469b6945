"""What of a cluster could not be read, and what that leaves unknown of a pod's result."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from divvy.model.api_names import CLASS_RESOURCE
from divvy.model.phrases import some
from divvy.plan.fit.pods import PodToFit


@dataclass(frozen=True)
class Unread:
    """Objects of which nothing but the name could be read, by their sort.

    A place may be taken by such a pod, refused by such a quota, tainted by such a rule, or be of
    an earlier time than such a slice. What finds no place may find one on such a node, in such a
    slice, or in what such a claim does not hold. ``devices`` are sentences on what of slices,
    claims and rules was left out. ``uncounted`` are sentences on what is free and not counted, by
    the DeviceClass or the extended resource that it may be of.
    """

    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    taint_rules: tuple[str, ...] = ()
    quotas: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    uncounted: Mapping[str, str] = field(default_factory=dict)

    def narrow(self, pod: PodToFit, by_claims: Collection[str]) -> PodToFit:
        """Return a pod with what makes its places unknown; claims can serve ``by_claims``."""
        return replace(pod, unchecked=(*pod.unchecked, *self._in_the_way(pod, by_claims)))

    def elsewhere(self, pod: PodToFit, by_claims: Collection[str]) -> tuple[str, ...]:
        """Return what may take a pod that found no place, in words."""
        words = [f"node {some(self.nodes)}"] if self.nodes else []
        if _may_claim(pod, by_claims):
            words += [f"ResourceSlice {some(self.slices)}"] if self.slices else []
            words += [f"ResourceClaim {some(self.claims)}"] if self.claims else []
        words = [f"{text} cannot be read, and may leave room for it" for text in words]
        asked = {name.removeprefix(CLASS_RESOURCE) for name in pod.requests}
        asked |= {claim.device_class for claim in pod.claims}
        words += [self.uncounted[name] for name in sorted(asked & self.uncounted.keys())]
        return (*words, *(self.devices if _may_claim(pod, by_claims) else ()))

    def _in_the_way(self, pod: PodToFit, by_claims: Collection[str]) -> Iterator[str]:
        others = [name for name in self.pods if name != pod.full_name]
        if others:
            yield f"pod {some(others)} cannot be read, and may hold what it would get"
        if not _may_claim(pod, by_claims):
            return
        yield from self.devices
        quotas = [name for name in self.quotas if name.startswith(f"{pod.namespace}/")]
        if quotas:
            yield f"ResourceQuota {some(quotas)} cannot be read, and may refuse its claim"
        if self.taint_rules:
            yield f"DeviceTaintRule {some(self.taint_rules)} cannot be read, and may keep it off"
        if self.classes:
            yield f"DeviceClass {some(self.classes)} cannot be read, and may serve it otherwise"
        if self.slices:
            yield f"ResourceSlice {some(self.slices)} cannot be read, and may replace another"


def _may_claim(pod: PodToFit, by_claims: Collection[str]) -> bool:
    return bool(pod.claims) or any(resource in by_claims for resource in pod.by_claim)
