"""What is wrong with objects of manifests: what Kubernetes would refuse, each with its place."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from divvy.model import Problem
from divvy.model.problems import Keys, problem, value_text
from divvy.model.quantities import parse_quantity
from divvy.plan.fit.manifest_kinds import (
    CLAIMS,
    FLAT_VERSION,
    MAKERS,
    Document,
    claim_version,
    is_claim,
    is_class,
    is_maker,
    is_to_render,
    value_at,
)
from divvy.plan.fit.manifest_schema import (
    CLAIM_SPECS,
    CLASS,
    META,
    POD_META,
    POD_SPEC,
    shape_problems,
)
from divvy.plan.fit.pod_requests import quantities
from divvy.plan.fit.workloads import FoundPod, group_of, makes_no_pods, pod_at

_ROOT = "the document"
_CLOSE = 0.8
_OWN_RESOURCES = re.compile(r"cpu|memory|ephemeral-storage|hugepages-.+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*", re.ASCII)
_GROUPS = frozenset(version.rpartition("/")[0] for version, _ in MAKERS.values())


def object_problems(document: Document) -> Iterator[Problem]:
    """Yield what is wrong with an object, each path beginning with its document's source."""
    value = document.value
    problems: list[Problem] = []
    if not isinstance(value, Mapping):
        problems.append(
            problem((), f"is {value_text(value)}; a Kubernetes object is expected", root=_ROOT)
        )
    elif not isinstance(value.get("kind"), str):
        reason = f"is {value_text(value.get('kind'))}; a kind such as Pod or Deployment is expected"
        problems.append(problem(("kind",), reason))
    elif is_maker(value):
        version = MAKERS[value["kind"]][0]
        if value.get("apiVersion") not in (None, version):
            reason = f"is {value_text(value['apiVersion'])}; {version} is expected"
            problems.append(problem(("apiVersion",), reason))
        problems += _maker_problems(value)
    else:
        close = get_close_matches(value["kind"], MAKERS, n=1, cutoff=_CLOSE)
        if close and group_of(value) in _GROUPS and not makes_no_pods(value):
            reason = f"is {value_text(value['kind'])}"
            problems.append(problem(("kind",), reason, f"did you mean {close[0]}?"))
        problems += shape_problems(("metadata",), value.get("metadata"), META)
        if is_class(value):
            problems += shape_problems((), value, CLASS)
        if is_claim(value) and claim_version(value) in CLAIM_SPECS:
            problems += claim_problems(value)
    for object_problem in problems:
        yield Problem(
            f"{document.source}: {object_problem.path}",
            object_problem.reason,
            object_problem.remedy,
            object_problem.keys,
        )


def _maker_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    keys = MAKERS[value["kind"]][1]
    yield from shape_problems(("metadata",), value.get("metadata"), POD_META)
    spec, at = value_at(value, keys)
    if not isinstance(spec, Mapping):
        yield problem(at, f"is {value_text(spec)}; a mapping with `containers` is expected")
        return
    if not spec.get("containers"):
        reason = f"is {value_text(spec.get('containers'))}; one container or more are expected"
        yield problem((*keys, "containers"), reason)
        return
    yield from pod_problems(pod_at(value, keys))


def pod_problems(pod: FoundPod) -> Iterator[Problem]:
    """Yield what Kubernetes would refuse of a pod, wherever it is."""
    spec, at = pod.spec, pod.keys
    problems = [problem(keys, reason) for keys, reason in pod.problems]
    problems += shape_problems((*at[:-1], "metadata"), pod.meta, POD_META)
    problems += shape_problems(at, spec, POD_SPEC)
    yield from problems
    if problems:
        return
    claims = {entry.get("name") for entry in spec.get("resourceClaims") or ()}
    for key in ("containers", "initContainers"):
        for number, container in enumerate(spec.get(key) or ()):
            place = (*at, key, number, "resources")
            resources = container.get("resources") or {}
            yield from _resources_problems(place, resources)
            for count, claim in enumerate(resources.get("claims") or ()):
                if claim.get("name") not in claims:
                    reason = f"is {value_text(claim.get('name'))}, which is not in resourceClaims"
                    yield problem((*place, "claims", count, "name"), reason)
    yield from _resources_problems((*at, "resources"), spec.get("resources"))
    for side, named in (spec.get("resources") or {}).items():
        for name in named if side in ("limits", "requests") and named else ():
            if "/" in name:
                reason = "is a device, and stands at the pod; a container is expected to have it"
                yield problem((*at, "resources", side, name), reason)
    yield from _quantities_problems((*at, "overhead"), spec.get("overhead"))


def claim_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what Kubernetes would refuse of a claim whose version is read."""
    keys: Keys = CLAIMS[value["kind"]]
    spec = value_at(value, keys)[0]
    if not isinstance(spec, Mapping):
        yield problem(keys, f"is {value_text(spec)}; a mapping with `devices` is expected")
        return
    problems = list(shape_problems(keys, spec, CLAIM_SPECS[claim_version(value)]))
    yield from problems
    requests = () if problems else (spec.get("devices") or {}).get("requests") or ()
    for number, request in enumerate(requests):
        at: Keys = (*keys, "devices", "requests", number)
        if request.get("exactly"):
            yield from _device_problems((*at, "exactly"), request["exactly"])
        elif claim_version(value) == FLAT_VERSION and not request.get("firstAvailable"):
            yield from _device_problems(at, request)
        for place, other in enumerate(request.get("firstAvailable") or ()):
            yield from _device_problems((*at, "firstAvailable", place), other)


def _device_problems(keys: Keys, request: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield what is wrong with a request of a claim; its shape is right."""
    if not request.get("deviceClassName"):
        yield problem((*keys, "deviceClassName"), "is empty; a class such as divvy-gpu is expected")
    if (request.get("count") or 1) < 1:
        yield problem((*keys, "count"), f"is {request['count']}; 1 or more is expected")
    sizes = (request.get("capacity") or {}).get("requests")
    yield from _quantities_problems((*keys, "capacity", "requests"), sizes, any_name=True)
    for number, selector in enumerate(request.get("selectors") or ()):
        if "cel" in selector and not (selector["cel"] or {}).get("expression"):
            place = (*keys, "selectors", number, "cel", "expression")
            yield problem(place, "is empty; an expression is expected")


def _resources_problems(keys: Keys, resources: Mapping[str, Any] | None) -> Iterator[Problem]:
    sides = {side: (resources or {}).get(side) or {} for side in ("limits", "requests")}
    problems = [
        quantity_problem
        for side, named in sides.items()
        for quantity_problem in _quantities_problems((*keys, side), named)
    ]
    yield from problems
    if problems:
        return
    limits, requests = quantities(sides["limits"]), quantities(sides["requests"])
    for name, number in requests.items():
        if "/" in name and limits.get(name) != number:
            reason = "is not what the limit says; Kubernetes requires them to be equal"
            remedy = "leave it out of requests, and write the limit alone"
            yield problem((*keys, "requests", name), reason, remedy)


def _quantities_problems(
    keys: Keys, named: Mapping[Any, Any] | None, *, any_name: bool = False
) -> Iterator[Problem]:
    for name, quantity in (named or {}).items():
        place = (*keys, str(name))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield problem(place, "is not a resource name; one such as nvidia.com/gpu is expected")
            continue
        if not any_name and "/" not in name and not _OWN_RESOURCES.fullmatch(name):
            reason = "is no resource of Kubernetes; devices have names such as nvidia.com/gpu"
            yield problem(place, reason)
            continue
        try:
            number = parse_quantity(quantity)
        except ValueError as error:
            remedy = "it is a template: render it first" if is_to_render(quantity) else ""
            yield problem(place, str(error), remedy)
            continue
        if number < 0:
            yield problem(place, f"is {value_text(quantity)}; 0 or more is expected")
        elif "/" in name and number.denominator != 1:
            reason = (
                f"is {value_text(quantity)}; a whole number is expected: devices are not divided"
            )
            yield problem(place, reason)
