"""Variables of both policies over pods: requests by size, whether they are right, templates.

One of them writes claims into a pod that has no problem, the other refuses a pod that has one. As
both read the same variables, there is no third kind of pod.
"""

from __future__ import annotations

from divvy.model import Cluster
from divvy.model.api_names import (
    DEVICE_ANNOTATIONS,
    MAX_CLAIMED_DEVICES,
    NO_TYPES,
    OTHER_GPUS,
    PRIORITY,
    TEMPLATE_PREFIX,
    TENANT_LABEL,
    USE_TYPES,
    VGPU_MODE,
)
from divvy.model.claim_names import (
    MAX_TEMPLATE_NAME,
    MAX_TYPES,
    RESERVED_TYPES,
    TYPE_IN_ANNOTATION,
)
from divvy.model.fractions import MEMORY
from divvy.model.resource_names import VENDOR
from divvy.render.objects.claims.cel import first_of, line, shortened, starts_with, text, texts
from divvy.render.objects.claims.claimable import UNKNOWN_LARGEST_MIB, Claimable
from divvy.render.objects.claims.fraction_variables import asks_for_fraction, fraction_variables

# Variables whose values follow from the profiles, and not from the names of resources alone.
DERIVED = ("largest", "types", "tenants", "tenantsOnly")
# What claims of containers and of init containers are called, before the container's number.
CLAIM_PREFIXES = APP_CLAIM, INIT_CLAIM = ("divvy-c", "divvy-i")
_ALL_CONTAINERS = "object.spec.containers + object.spec.?initContainers.orValue([])"
# More MiB than this were meant as bytes: as a number of MiB they would be 64 TiB.
_BYTES = 1 << 26
_WHOLE = "quantity(l[k]).isInteger()"


def asks_by_size(cluster: Cluster) -> str:
    """Return whether a pod may ask for GPUs by size, type or HAMi's other means.

    It is for conditions of policies, and needs no variables, which conditions have none of.
    """
    annotated = " || ".join(
        f"{text(name)} in object.metadata.?annotations.orValue({{}})"
        for name in (USE_TYPES, NO_TYPES, VGPU_MODE, *DEVICE_ANNOTATIONS)
    )
    condition = (
        f"{_sized_by_name(cluster)} || {text(PRIORITY)} in l || "
        f"({text(cluster.names.gpu)} in l && ({annotated}))"
    )
    by_limits = f"({_ALL_CONTAINERS}).exists(c, {_limits(condition)})"
    return f"{by_limits} || {asks_for_fraction(cluster)}"


def pod_variables(cluster: Cluster, offered: Claimable) -> dict[str, str]:
    """Return the variables of the policies over pods; each reads only those before it."""
    return {
        **{name: text(resource) for name, resource in _named(cluster).items()},
        "sizes": "[variables.memory, variables.percentage, variables.cores]",
        "keys": "[variables.gpu] + variables.sizes",
        "largest": str(offered.largest_mib),
        "types": texts(offered.types),
        "tenants": texts(offered.tenants),
        "tenantsOnly": "true" if offered.tenants_only else "false",
        **fraction_variables(cluster, _ALL_CONTAINERS),
        "use": _items(USE_TYPES),
        "no": _items(NO_TYPES),
        "typed": "variables.use.size() + variables.no.size() > 0",
        "bySize": f"variables.containers.exists(c, {_limits(_BY_SIZE)})",
        "sized": f"variables.containers.exists(c, {_limits(_SIZED)})",
        "label": f"namespaceObject.metadata.?labels[?{text(TENANT_LABEL)}].orValue('')",
        "tenant": "variables.tenants.size() == 0 ? '' : variables.label",
        "useTypes": _types("use"),
        "noTypes": _types("no"),
        "wrongSizes": line(f"variables.containers.map(c, {_container_problem()})"),
        "wrongTypes": line(_types_problem()),
        "wrongTenant": line(_tenant_problem()),
        "wrongMeans": line(_means_problem()),
        "wrong": "((variables.sized ? variables.wrongSizes + [variables.wrongTypes, "
        "variables.wrongTenant] : []) + [variables.wrongFraction, variables.wrongMeans])"
        ".filter(p, p != '')",
        "templates": line(f"variables.containers.map(c, {_limits(_sized_or_none(_name()))})"),
        "taken": line(_generated_claim_names()),
        "problems": line(
            f"variables.wrong.size() > 0 ? variables.wrong : "
            f"variables.templates.filter(t, t.size() > {MAX_TEMPLATE_NAME}).map(t, "
            + _sentence("the annotations name too many GPU types: ", "string(t.size())")
            + f" + ' characters with the sizes, {MAX_TEMPLATE_NAME} at most are possible') "
            f"+ variables.taken.map(n, {_sentence('the pod has a claim called ', 'n')} + "
            + text(", which Divvy reserves for containers that request GPUs by size; ")
            + " + 'call it by another name')"
        ),
    }


# Zero cores are none asked for, as HAMi reads them.
_HAS_CORES = "(variables.cores in l && quantity(l[variables.cores]).compareTo(quantity('0')) != 0)"
_BY_SIZE = f"(variables.sizes.exists(k, k != variables.cores && k in l) || {_HAS_CORES})"
# A resource name cannot carry types: whole GPUs of some types become a claim, too.
_SIZED = (
    f"({_BY_SIZE} || (variables.typed && variables.gpu in l && "
    "quantity(l[variables.gpu]).isGreaterThan(quantity('0'))))"
)


def _sized_or_none(expression: str) -> str:
    return f"!{_SIZED} ? '' : {expression}"


def _named(cluster: Cluster) -> dict[str, str]:
    names = cluster.names
    return {
        "gpu": names.gpu,
        "memory": names.memory,
        "percentage": names.memory_percentage,
        "cores": names.cores,
    }


def _sized_by_name(cluster: Cluster) -> str:
    named = [resource for name, resource in _named(cluster).items() if name != "gpu"]
    return " || ".join(f"{text(resource)} in l" for resource in named)


def _generated_claim_names() -> str:
    """Return the names of claims in the pod that claims of its containers are about to have."""
    own = " || ".join(f"n == '{prefix}' + string(i)" for prefix in CLAIM_PREFIXES)
    return (
        "object.spec.?resourceClaims.orValue([]).map(r, r.name)"
        f".filter(n, variables.templates.exists(i, t, t != '' && ({own})))"
    )


def _limits(expression: str) -> str:
    """Return an expression over ``l``, the limits of the container ``c``."""
    return f"[c.?resources.?limits.orValue({{}})].map(l, {expression})[0]"


def _items(annotation: str) -> str:
    return (
        f"object.metadata.?annotations[?{text(annotation)}].orValue('')"
        ".split(',').map(t, t.trim()).filter(t, t != '')"
    )


def _types(listed: str) -> str:
    # As type_of_product writes a product's name; in one order, so that equal requests are equal.
    return (
        f"variables.{listed}.map(t, t.lowerAscii().findAll('[a-z0-9]+').join('-'))"
        ".distinct().sort()"
    )


def _name() -> str:
    """Return the name of the template for ``l``: the grammar of claim_names.template_name."""

    def number(key: str) -> str:
        return f"string(quantity(l[variables.{key}]).asInteger())"

    return line(
        f"{text(TEMPLATE_PREFIX)} + (variables.gpu in l ? {number('gpu')} : '1') + 'x' "
        f"+ (!{_BY_SIZE} ? '1g' : variables.memory in l ? {number('memory')} + 'm' "
        f": (variables.percentage in l ? {number('percentage')} : '100') + 'p') "
        f"+ ({_HAS_CORES} ? '-' + {number('cores')} + 'c' : '') "
        "+ (variables.useTypes.size() == 0 ? '' : '.use.' + variables.useTypes.join('.')) "
        "+ (variables.noTypes.size() == 0 ? '' : '.no.' + variables.noTypes.join('.')) "
        f"+ (variables.tenant == '' || !{_BY_SIZE} ? '' : '.tenant.' + variables.tenant)"
    )


def _container_problem() -> str:
    """Return the first thing that is wrong with a container's sizes, '' if nothing is."""

    def value(key: str) -> str:
        return f"quantity(l[variables.{key}]).asInteger()"

    def outside(key: str, least: int, most: int) -> str:
        return f"variables.{key} in l && ({value(key)} < {least} || {value(key)} > {most})"

    def problem_text(key: str, *parts: str) -> str:
        here = f"'container ' + c.name + ': ' + variables.{key}"
        return " + ".join([here, text(" is "), f"string({value(key)})", *parts])

    requests = "c.?resources.?requests.orValue({})"
    fractions = f"variables.keys.filter(k, k in l && !{_WHOLE})"
    unequal = (
        f"variables.keys.filter(k, k in {requests} && (!(k in l) || "
        f"quantity({requests}[k]).compareTo(quantity(l[k])) != 0))"
    )
    others = f"l.filter(k, !(k in variables.keys) && ({starts_with('k', OTHER_GPUS)}))"
    here = "'container ' + c.name + "
    mib = f"string({value('memory')} / 1048576)"
    of_time = text("; 1 to 100 per cent of a GPU's time are expected")
    cases = [
        (f"!{_SIZED}", text("")),
        (
            f"{fractions}.size() > 0",
            f"{here}': ' + {fractions}[0] + ' is ' + l[{fractions}[0]] + "
            + text("; a whole number such as 3000 is expected"),
        ),
        (
            f"{unequal}.size() > 0",
            f"{here}': ' + {unequal}[0] + "
            + text(" differs between requests and limits; leave it out of requests"),
        ),
        (
            f"{_BY_SIZE} && {others}.size() > 0",
            f"{here}' has ' + {others}[0] + ' together with ' + {_SIZE_NAMED} + "
            + text("; request GPUs in only one way"),
        ),
        (
            "variables.memory in l && variables.percentage in l",
            f"{here}' has both ' + variables.memory + ' and ' + variables.percentage + "
            + text("; leave one of them out"),
        ),
        (
            f"variables.gpu in l && ({value('gpu')} < 1 || {value('gpu')} > {MAX_CLAIMED_DEVICES})",
            problem_text(
                "gpu", f"'; 1 to {MAX_CLAIMED_DEVICES} are expected with ' + {_SIZE_NAMED}"
            ),
        ),
        (
            f"variables.memory in l && {value('memory')} < 1",
            problem_text(
                "memory", text("; 1 or more MiB are expected, or leave it out for all memory")
            ),
        ),
        (
            "variables.memory in l && (l[variables.memory].endsWith('i') || "
            f"{value('memory')} >= {_BYTES})",
            f"{here}': ' + variables.memory + ' is ' + l[variables.memory] + "
            + f"', but counts MiB; write ' + ({value('memory')} < 1048576 ? '1' : {mib})",
        ),
        (
            # The memory that a driver reports may differ from the data sheet's by so much.
            f"variables.memory in l && {value('memory')} > variables.largest * 27 / 25",
            f"{here}': ' + (variables.fractional ? {text(MEMORY)} : variables.memory) + ' is ' + "
            f"string({value('memory')}) + ' (MiB); 1 to ' + string(variables.largest) + "
            + _largest(),
        ),
        (
            outside("percentage", 1, 100),
            problem_text("percentage", text("; 1 to 100 per cent of a GPU's memory are expected")),
        ),
        (outside("cores", 0, 100), problem_text("cores", of_time)),
    ]
    return _limits(first_of(cases, text("")))


# The first of the sizes that a container names.
_SIZE_NAMED = "(variables.sizes.filter(k, k in l) + ['GPU types'])[0]"


def _largest() -> str:
    return (
        f"(variables.largest == {UNKNOWN_LARGEST_MIB} ? {text(' are possible')} : "
        f"{text(', as much as the largest GPU of the cluster has, are possible')})"
    )


def _types_problem() -> str:
    """Return the first thing that is wrong with the annotations, '' if nothing is."""
    both = ((USE_TYPES, "use"), (NO_TYPES, "no"))
    cases = []
    for annotation, listed in both:
        odd = f"variables.{listed}.filter(t, !t.matches({text(TYPE_IN_ANNOTATION)}))"
        reserved = f"variables.{listed}Types.filter(t, t in {texts(RESERVED_TYPES)})"
        odd_type = shortened(f"{odd}[0]")
        cases += [
            (
                f"variables.{listed}.size() > {MAX_TYPES}",
                _sentence(f"the annotation {annotation} has ", f"string(variables.{listed}.size())")
                + f" + ' GPU types; {MAX_TYPES} at most are possible'",
            ),
            (
                f"{odd}.size() > 0",
                _sentence(f"the annotation {annotation} has ", odd_type)
                + " + "
                + text("; GPU types such as A100 or H100-PCIe, separated by commas, are expected"),
            ),
            (
                f"{reserved}.size() > 0",
                _sentence(f"the annotation {annotation} has ", f"{reserved}[0]")
                + " + "
                + text(", which is not a GPU type"),
            ),
        ]
    cases += [
        (
            "variables.useTypes.exists(t, t in variables.noTypes)",
            _sentence(
                "the annotations name ",
                shortened("variables.useTypes.filter(t, t in variables.noTypes)[0]"),
            )
            + " + "
            + text(f" in {USE_TYPES} and in {NO_TYPES}; name it in one of them"),
        ),
        (
            "variables.types.size() > 0 && variables.useTypes.size() > 0 && "
            "!variables.useTypes.exists(t, variables.types.exists(n, "
            "('-' + n + '-').contains('-' + t + '-')))",
            _sentence(
                f"the annotation {USE_TYPES} has ", shortened("variables.useTypes.join(', ')", 160)
            )
            + " + '; this cluster has ' + variables.types.join(', ')",
        ),
    ]
    return first_of(cases, text(""))


def _means_problem() -> str:
    """Return which of HAMi's annotations a pod with GPUs has that cannot be followed, '' if none.

    Each of them restricts what the pod may get: to ignore it would give it something else.
    """
    annotations = "object.metadata.?annotations.orValue({})"
    uuids = f"{texts(DEVICE_ANNOTATIONS)}.filter(k, k in {annotations})"
    asks = f"variables.containers.exists(c, {_limits('variables.keys.exists(k, k in l)')})"
    cases = [
        (f"!{asks}", text("")),
        (
            f"{annotations}[?{text(VGPU_MODE)}].orValue('') == 'mig'",
            text(
                f"the annotation {VGPU_MODE} is mig; request a MIG device by its resource name "
                f"instead, such as {VENDOR}/mig-1g.5gb"
            ),
        ),
        (
            f"{uuids}.size() > 0",
            f"'the annotation ' + {uuids}[0] + "
            + text(
                " is not supported; select the GPU in a ResourceClaim by its attribute uuid, or "
                f"by its model with {USE_TYPES}"
            ),
        ),
    ]
    return first_of(cases, text(""))


def _tenant_problem() -> str:
    """Return why the namespace cannot have GPUs by size, '' if it can."""
    label = text(f" has the label {TENANT_LABEL}: ")
    cases = [
        ("!variables.bySize", text("")),  # whole GPUs are for everybody
        (
            "variables.tenant != '' && !(variables.tenant in variables.tenants)",
            f"'the namespace ' + namespaceObject.metadata.name + {label} + variables.tenant + "
            "'; the tenants of this cluster are ' + variables.tenants.join(', ')",
        ),
        (
            "variables.tenant == '' && variables.tenants.size() > 0 && variables.tenantsOnly",
            "'the namespace ' + namespaceObject.metadata.name + "
            + text(f" has no label {TENANT_LABEL}, and GPUs by size are for the tenants ")
            + " + variables.tenants.join(', ')",
        ),
    ]
    return first_of(cases, text(""))


def _sentence(start: str, expression: str) -> str:
    return f"{text(start)} + {expression}"
