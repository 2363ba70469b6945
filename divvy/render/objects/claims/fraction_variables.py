"""KAI's and Run:ai's annotations in the policies over pods: limits that say the same.

The container that gets the part of a GPU is seen by all other variables as if its limits said so.
"""

from __future__ import annotations

from divvy.model import Cluster
from divvy.model.api_names import FRACTION_BEFORE, OTHER_GPUS
from divvy.model.fractions import (
    CONTAINER,
    CORES,
    COUNTED_INSTEAD,
    DEVICES,
    FORMATS,
    INSTEAD_OF_CORES,
    INSTEAD_OF_LIMIT,
    INSTEAD_OF_PER_CONTAINER,
    KAI_FRACTION,
    KUEUE_JOB,
    LIMIT_SUFFIX,
    MEMORY,
    NOT_COUNTED,
    PER_CONTAINER,
    TIME,
)
from divvy.render.objects.claims.cel import (
    BOTH_LISTS,
    first_of,
    line,
    shortened,
    starts_with,
    text,
    texts,
)

_ANNOTATIONS = "object.metadata.?annotations.orValue({})"
_HERE = "variables.annotations"


def asks_for_fraction(cluster: Cluster) -> str:
    """Return whether a pod asks for a part of a GPU, or tries to; it needs no variables."""
    name = text(cluster.names.fraction or "")
    return (
        f"({name} != '' && {_ANNOTATIONS}.exists(k, k in {texts(_asking(cluster))} || "
        f"{starts_with('k', PER_CONTAINER)}))"
    )


def fraction_variables(cluster: Cluster, containers: str) -> dict[str, str]:
    """Return the variables, the last of them the containers as all others see them."""
    return {
        "fraction": text(cluster.names.fraction or ""),
        "annotations": _ANNOTATIONS,
        "plain": containers,
        "fractional": asks_for_fraction(cluster),
        "notFollowed": f"{_HERE}.filter(k, k in {texts(_not_followed(cluster))} || "
        f"{starts_with('k', PER_CONTAINER)}).sort()",
        "asked": f"[variables.fraction, {text(MEMORY)}].filter(k, k in {_HERE})",
        "wrongFraction": line(_problem()),
        "fractionContainer": line(
            f"variables.fractional ? {_HERE}[?{text(CONTAINER)}]"
            ".orValue(object.spec.containers[0].name) : ''"
        ),
        "fractionLimits": line(_limits()),
        "containers": line(
            "variables.fractional && variables.wrongFraction == '' ? "
            "variables.plain.map(c, c.name == variables.fractionContainer "
            "? dyn({'name': dyn(c.name), 'resources': dyn({'limits': variables.fractionLimits})}) "
            ": dyn(c)) "
            ": variables.plain.map(c, dyn(c))"
        ),
    }


def without_fraction(cluster: Cluster) -> str:
    """Return the patches that remove the annotations, and keep in one what they were."""
    kept = f"'/metadata/annotations/' + jsonpatch.escapeKey({text(FRACTION_BEFORE)})"
    present = f"{texts(_asking(cluster))}.filter(k, k in {_HERE})"
    return f"""(variables.fractional
        ? [JSONPatch{{op: 'add', path: {kept},
            value: {present}.map(k, k + '=' + {_HERE}[k]).join(' ')}}]
          + {present}.map(k,
            JSONPatch{{op: 'remove', path: '/metadata/annotations/' + jsonpatch.escapeKey(k)}})
        : [])"""


def _asking(cluster: Cluster) -> tuple[str, ...]:
    """Return the annotations of whole pods; in a chart, the first may be ''."""
    name = cluster.names.fraction or ""
    return (name, MEMORY, DEVICES, CONTAINER, TIME, *_not_followed(cluster))


def _not_followed(cluster: Cluster) -> tuple[str, ...]:
    name = cluster.names.fraction or ""
    return (f"{name}{LIMIT_SUFFIX}", f"{MEMORY}{LIMIT_SUFFIX}", CORES)


def _limits() -> str:
    digits = f"{_HERE}[variables.fraction].split('.')[1] + '0'"
    # A part of a per cent is left out: three thirds fit on a GPU.
    percentage = f"string(int(({digits}).substring(0, 2)))"
    by_part = f"variables.fraction in {_HERE}"
    size = (
        f"variables.gpu: string({_HERE}[?{text(DEVICES)}].orValue('1')), "
        f"({by_part} ? variables.percentage : variables.memory): "
        f"string({by_part} ? {percentage} : {_HERE}[{text(MEMORY)}])"
    )
    # Optional entries of a map end the API server's request with a panic (Kubernetes 1.37.2).
    time = text(TIME)
    return f"{time} in {_HERE} ? {{{size}, variables.cores: string({_HERE}[{time}])}} : {{{size}}}"


def _problem() -> str:
    """Return the first thing that is wrong with the annotations, '' if nothing is."""
    first = "variables.notFollowed[0]"
    by_name = f"k in variables.keys || {starts_with('k', OTHER_GPUS)}"
    named = f"{BOTH_LISTS}.map(l, l.filter(k, {by_name})).flatten().sort()"
    both = f"variables.plain.filter(c, {named}.size() > 0)"
    labels = "object.metadata.?labels.orValue({})"
    cases = [
        ("!variables.fractional", text("")),
        (
            "variables.notFollowed.size() > 0",
            f"'the annotation ' + {first} + {text(' is not supported; ')} + "
            f"({first} == {text(CORES)} ? {text(INSTEAD_OF_CORES)} "
            f": {starts_with(first, PER_CONTAINER)} ? {text(INSTEAD_OF_PER_CONTAINER)} "
            f": {text(INSTEAD_OF_LIMIT)})",
        ),
        (
            "variables.asked.size() > 1",
            "'the pod has both ' + variables.fraction + "
            + text(f" and {MEMORY}; leave one of them out"),
        ),
        (
            "variables.asked.size() == 0",
            "'the pod has neither ' + variables.fraction + "
            + text(f" nor {MEMORY}, without which the others mean nothing"),
        ),
        (
            f"{text(KUEUE_JOB)} in {labels}",
            f"{text(NOT_COUNTED)} + variables.asked[0] + {text(COUNTED_INSTEAD)}",
        ),
        *(_odd_value(name) for name in FORMATS),
        (
            f"{text(CONTAINER)} in {_HERE} && "
            f"!variables.plain.exists(c, c.name == {_HERE}[{text(CONTAINER)}])",
            f"'the annotation {CONTAINER} names ' + {shortened(f'{_HERE}[{text(CONTAINER)}]')} + "
            + text(", and the pod has no such container"),
        ),
        (
            f"{both}.size() > 0",
            f"{both}.map(c, 'container ' + c.name + ' has ' + {named}[0])[0] + "
            f"' together with the annotation ' + variables.asked[0] + "
            + text("; request GPUs in only one way"),
        ),
    ]
    return first_of(cases, text(""))


def _odd_value(name: str) -> tuple[str, str]:
    pattern, expected = FORMATS[name]
    key = "variables.fraction" if name == KAI_FRACTION else text(name)
    return (
        f"{key} in {_HERE} && !{_HERE}[{key}].matches({text(pattern)})",
        f"'the annotation ' + {key} + ' is ' + {shortened(f'{_HERE}[{key}]')} + "
        + text(f"; {expected}"),
    )
