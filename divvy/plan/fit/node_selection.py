"""The nodes that a pod may go to: node name, selector, required affinity and tolerations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.model.problems import printable
from divvy.model.resource_names import VENDOR

_REPELLING = ("NoSchedule", "NoExecute")
PRODUCT = f"{VENDOR}/gpu.product"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


@dataclass(frozen=True)
class Taint:
    """What keeps pods away that do not tolerate it; ``value`` None: not known."""

    key: str
    value: str | None = ""
    effect: str = "NoSchedule"

    @property
    def words(self) -> str:
        """Return it as kubectl writes taints."""
        return printable(f"{self.key}={self.value}" if self.value else self.key)


@dataclass(frozen=True)
class Labels:
    """A node's name and labels; not ``complete`` where a stack file says only some of them.

    ``name`` is None if it is unknown. ``products`` are the names that the node's GPUs may have in
    the label of the product, while no node has reported one.
    """

    known: Mapping[str, str]
    complete: bool = True
    name: str | None = None
    products: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Suitability:
    """Whether a node is one that a pod may go to; ``unless`` is what is not known of it."""

    problem: str = ""
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeSelection:
    """The node that a pod asks for: ``terms`` are alternatives, each a list of expressions."""

    node_name: str | None = None
    selector: Mapping[str, str] | None = None
    terms: Sequence[Mapping[str, Any]] | None = None
    tolerations: Sequence[Mapping[str, Any]] = ()

    def suits(self, labels: Labels) -> Suitability:
        """Return whether a node's name and labels are what the pod wants."""
        unless: list[str] = []
        if self.node_name is not None:
            if labels.name is not None and labels.name != self.node_name:
                return Suitability(printable(f"is not {self.node_name}, which the pod names"))
            if labels.name is None:
                unless.append(f"include {printable(self.node_name)}")
        for key, value in (self.selector or {}).items():
            match = _matches(labels, {"key": key, "operator": "In", "values": [value]})
            if match is False:
                return Suitability(printable(_instead(labels, key, value)))
            if match is None:
                unless.append(printable(f"have the label {key}={value}"))
        if self.terms is not None:
            match = self._affinity(labels)
            if match is False:
                wanted = " or ".join(_term_words(term) for term in self.terms) or "nothing"
                return Suitability(
                    printable(f"is not what the pod's node affinity requires: {wanted}")
                )
            if match is None:
                wanted = " or ".join(_term_words(term) for term in self.terms)
                unless.append(printable(f"suit the pod's node affinity: {wanted}"))
        return Suitability(unless=tuple(unless))

    def untolerated(self, taints: Sequence[Taint]) -> Taint | None:
        """Return the first taint that keeps the pod away."""
        if self.node_name is not None:
            # Who names the node does without the scheduler; the kubelet looks at NoExecute alone.
            taints = [taint for taint in taints if taint.effect == "NoExecute"]
        return next(
            (
                taint
                for taint in taints
                if taint.effect in _REPELLING
                and not any(_tolerates(toleration, taint) for toleration in self.tolerations)
            ),
            None,
        )

    def _affinity(self, labels: Labels) -> bool | None:
        matches = [_term(labels, term) for term in self.terms or ()]
        if True in matches:
            return True
        return None if None in matches else False


def node_selection(spec: Mapping[str, Any]) -> NodeSelection:
    """Return what a pod's spec says of its node."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return NodeSelection(
        spec.get("nodeName") or None,
        spec.get("nodeSelector") or None,
        None if affinity is None else tuple(affinity.get("nodeSelectorTerms") or ()),
        tuple(spec.get("tolerations") or ()),
    )


def taints_of(spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """Return the taints of a node's spec; a cordon is one."""
    taints = [
        Taint(taint["key"], taint.get("value") or "", taint["effect"])
        for taint in spec.get("taints") or ()
    ]
    if spec.get("unschedulable"):
        taints.append(Taint(UNSCHEDULABLE))
    return tuple(taints)


def repelled(selection: NodeSelection, taints: Sequence[Taint]) -> str:
    """Return which taint keeps a pod off a node, "" without one."""
    taint = selection.untolerated(taints)
    if taint is None:
        return ""
    if taint.key == UNSCHEDULABLE:
        return "is cordoned"
    return f"has the taint {taint.words}, which the pod does not tolerate"


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects labels; an empty one selects all, none nothing."""
    if selector is None:
        return False
    known, pairs = Labels(labels), selector.get("matchLabels") or {}
    expressions = [{"key": key, "operator": "In", "values": [pairs[key]]} for key in pairs]
    expressions += selector.get("matchExpressions") or ()
    return all(_matches(known, expression) for expression in expressions)


def _instead(labels: Labels, key: str, value: str) -> str:
    """Return what the nodes have instead of a label that a pod wants."""
    has = labels.known.get(key)
    if has is None and key == PRODUCT and labels.products:
        has = " or ".join(sorted(labels.products))
    if has is None:
        return f"has no label {key}={value}, which the pod requires"
    return f"has {key}={has}, but the pod requires {value}"


def _term(labels: Labels, term: Mapping[str, Any]) -> bool | None:
    """Return whether a node suits all expressions of a term; one without any suits none."""
    expressions = list(term.get("matchExpressions") or ())
    fields = list(term.get("matchFields") or ())
    if not expressions and not fields:
        return False
    matches = [_matches(labels, expression) for expression in expressions]
    matches += [_matches_field(labels, field) for field in fields]
    if False in matches:
        return False
    return None if None in matches else True


def _matches(labels: Labels, expression: Mapping[str, Any]) -> bool | None:
    """Return whether a label is as an expression wants it, None if it is not known."""
    key, values = str(expression.get("key")), expression.get("values") or ()
    has = labels.known.get(key)
    if has is None and not labels.complete:
        impossible = (
            key == PRODUCT
            and expression.get("operator") == "In"
            and labels.products.isdisjoint(map(_product, values))
        )
        return False if impossible else None
    match expression.get("operator"):
        case "In":
            return has is not None and has in values
        case "NotIn":
            return has is None or has not in values
        case "Exists":
            return has is not None
        case "DoesNotExist":
            return has is None
        case "Gt" | "Lt" as operator:
            return _compares(has, values, greater=operator == "Gt")
    return False


def _product(value: object) -> str:
    """Return the product of a label's value, without what is said of sharing."""
    return str(value).partition("-MIG-")[0].removesuffix("-SHARED")


def _compares(has: str | None, values: Sequence[Any], *, greater: bool) -> bool:
    try:
        number, bound = int(has or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if greater else number < bound


def _matches_field(labels: Labels, expression: Mapping[str, Any]) -> bool | None:
    if expression.get("key") != "metadata.name":
        return False
    if labels.name is None:
        return None
    listed = labels.name in (expression.get("values") or ())
    return listed if expression.get("operator") == "In" else not listed


def _term_words(term: Mapping[str, Any]) -> str:
    parts = []
    for expression in (*(term.get("matchExpressions") or ()), *(term.get("matchFields") or ())):
        values = ", ".join(map(str, expression.get("values") or ()))
        parts.append(
            " ".join(filter(None, (str(expression.get("key")), expression.get("operator"), values)))
        )
    return " and ".join(parts) or "nothing"


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key"), toleration.get("operator") or "Equal"
    if not key:
        return bool(operator == "Exists")
    if key != taint.key:
        return False
    # A value that the stack file does not tell may be the one.
    if operator == "Exists" or taint.value is None:
        return True
    value = toleration.get("value") or ""
    if operator in ("Gt", "Lt"):
        return _compares(taint.value, [value], greater=operator == "Gt")
    return bool(operator == "Equal" and taint.value == value)
