"""The rules of a profile in canonical form: those that decide alike are equal."""

from collections.abc import Iterable

from divvy.model import DeviceSelector, Rule
from divvy.model.claims import Claims
from divvy.plan.model_globs import can_meet, canonical_glob, lies_within


def canonical_rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules that decide as these do, whatever order and spelling these have.

    Each selects one index, one UUID or one glob, the last one all GPUs; none is without effect,
    and of rules whose order decides nothing the one with the smaller selector comes first.
    """
    return _in_one_order(_with_effect(_reached(_single(rules))))


def meet(one: DeviceSelector, other: DeviceSelector) -> bool:
    """Return whether a GPU may be selected by both, each a selector of a canonical rule."""
    if one.uuids and other.uuids:
        return one.uuids == other.uuids
    if one.indices and other.indices:
        return one.indices == other.indices
    if one.model is not None and other.model is not None:
        return can_meet(one.model, other.model)
    return True


def covers(outer: DeviceSelector, inner: DeviceSelector) -> bool:
    """Return whether a canonical rule's selector certainly selects what another's does."""
    if outer.everything or outer == inner:
        return True
    if outer.model is None or inner.model is None:
        return False
    return lies_within(inner.model, outer.model)


def content(rule: Rule) -> Rule:
    """Return what a rule makes of its GPUs: the rule for all of them."""
    return rule.model_copy(update={"devices": DeviceSelector()})


def outcome(rules: tuple[Rule, ...], selector: DeviceSelector) -> Rule | None:
    """Return what canonical rules make of the GPUs of a selector, None if not the same of all."""
    found: Rule | None = None
    for rule in rules:
        if not meet(rule.devices, selector):
            continue
        if found is not None and content(rule) != found:
            return None
        found = content(rule)
        if covers(rule.devices, selector):
            break
    return found


def order_counts(one: Rule, other: Rule) -> bool:
    """Return whether it matters which of two canonical rules comes first."""
    return meet(one.devices, other.devices) and content(one) != content(other)


def rank(devices: DeviceSelector) -> tuple[int, int, str]:
    """Return the place of a canonical rule's selector among others: UUIDs, indices, globs, all."""
    if devices.uuids:
        return 0, 0, devices.uuids[0]
    if devices.indices:
        return 1, devices.indices[0], ""
    return (3, 0, "") if devices.model is None else (2, 0, devices.model)


def _single(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules with one choice each, closed by what GPUs are that no rule selects."""
    every = [*rules, Rule()]
    if any(rule.claims is not None for rule in every):
        # One rule with claims makes all GPUs of the node claims.
        every = [rule.model_copy(update={"claims": rule.claims or Claims()}) for rule in every]
    return [
        rule.model_copy(update={"devices": selector})
        for rule in every
        for selector in _choices(rule.devices)
    ]


def _choices(devices: DeviceSelector) -> list[DeviceSelector]:
    if devices.model is not None:
        glob = canonical_glob(devices.model)
        return [DeviceSelector() if glob == "*" else DeviceSelector(model=glob)]
    indices = [DeviceSelector(indices=(index,)) for index in devices.indices]
    uuids = [DeviceSelector(uuids=(uuid,)) for uuid in devices.uuids]
    return [*indices, *uuids] or [DeviceSelector()]


def _reached(rules: list[Rule]) -> list[Rule]:
    """Leave out the rules whose GPUs an earlier one takes."""
    reached: list[Rule] = []
    for rule in rules:
        if not any(covers(earlier.devices, rule.devices) for earlier in reached):
            reached.append(rule)
    return reached


def _with_effect(rules: list[Rule]) -> list[Rule]:
    """Leave out the rules whose GPUs the later ones make the same of."""
    kept: list[Rule] = []
    for rule in reversed(rules):
        if not kept or outcome(tuple(kept), rule.devices) != content(rule):
            kept.insert(0, rule)
    return kept


def _in_one_order(rules: list[Rule]) -> tuple[Rule, ...]:
    """Order the rules by their selectors, as far as that changes nothing."""
    waiting = sorted(rules, key=lambda rule: rank(rule.devices))
    before = {
        id(rule): {id(earlier) for earlier in rules[:number] if order_counts(earlier, rule)}
        for number, rule in enumerate(rules)
    }
    ordered: list[Rule] = []
    done: set[int] = set()
    while waiting:
        following = next(rule for rule in waiting if before[id(rule)] <= done)
        waiting.remove(following)
        ordered.append(following)
        done.add(id(following))
    return tuple(ordered)
