"""``import_quotas``: HAMi's namespace quotas as Kueue and Kubernetes can keep them.

HAMi 2.7 to 2.10 (pkg/device/quota.go) reads two keys of a ResourceQuota as whole numbers: MiB and
per cent, which it sums over the GPUs of all pods of the namespace, whatever scopes the quota has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from divvy.model import InvalidValue
from divvy.model.claim_names import share_class
from divvy.model.contract import CLASS_QUOTA
from divvy.model.problems import Problem, printable, value_text
from divvy.model.quantities import parse_quantity
from divvy.model.reading import Matches, read
from divvy.model.resource_names import VENDOR

_GPU = f"{VENDOR}/gpu"
_SIZES = (f"{VENDOR}/gpumem", f"{VENDOR}/gpucores", f"{VENDOR}/gpumem-percentage")
_MEMORY, _CORES = (f"limits.{name}" for name in _SIZES[:2])
_COUNTS = (f"requests.{_GPU}", f"limits.{_GPU}")
_SHARES = f"{share_class(None)}{CLASS_QUOTA}"
_KEYS = {*_COUNTS, *(f"{prefix}.{name}" for prefix in ("requests", "limits") for name in _SIZES)}
# HAMi refuses a request that is larger.
_MAX_MIB = 2**31 - 1


def _number_text(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(value) if is_number else value


class _Metadata(BaseModel):
    # The names end up in comments: a line break would end those.
    name: Annotated[str, Matches(r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$", "a quota's name")]
    namespace: Annotated[
        str, Matches(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "a namespace's name")
    ]


class _Spec(BaseModel, extra="allow"):
    hard: dict[str, Annotated[str, BeforeValidator(_number_text)]]


class _ResourceQuota(BaseModel):
    metadata: _Metadata
    spec: _Spec


@dataclass(frozen=True)
class ImportedQuotas:
    """What quotas of HAMi become.

    ``memory`` is the MiB of shares by namespace; ``counts`` are ResourceQuotas in place of those
    of the same name; ``ended`` are the names (namespace/name) of those that limit nothing now;
    ``differences`` are sentences on what is not kept as it was.
    """

    memory: Mapping[str, int]
    counts: tuple[Mapping[str, Any], ...]
    ended: tuple[str, ...]
    differences: tuple[str, ...]


def import_quotas(manifests: Iterable[tuple[str, object]]) -> ImportedQuotas:
    """Read ResourceQuotas, each with the place that errors name; others' quotas are left alone.

    Raises InvalidValue with every problem.
    """
    memory: dict[str, int] = {}
    counts, ended, differences = [], [], []
    for quota in _quotas(manifests):
        meta, hard = quota.metadata, quota.spec.hard
        name = f"{meta.namespace}/{meta.name}"
        differences += [f"{name}: {difference}" for difference in _differences(quota)]
        limit = _whole(hard.get(_MEMORY))
        if limit is not None and limit <= _MAX_MIB:
            if meta.namespace in memory:
                differences.append(
                    f"{name}: is a second quota of memory; HAMi keeps to the one that it read "
                    "last, Kueue to the smaller one"
                )
            memory[meta.namespace] = min(limit, memory.get(meta.namespace, limit))
        rest = {key: value for key, value in hard.items() if key not in _KEYS} | _counted(quota)
        if rest:
            spec = {**(quota.spec.model_extra or {}), "hard": rest}
            counts.append(
                {
                    "apiVersion": "v1",
                    "kind": "ResourceQuota",
                    "metadata": {"name": meta.name, "namespace": meta.namespace},
                    "spec": spec,
                }
            )
        else:
            ended.append(name)
    return ImportedQuotas(memory, tuple(counts), tuple(ended), tuple(differences))


def _quotas(manifests: Iterable[tuple[str, object]]) -> list[_ResourceQuota]:
    quotas, problems = [], []
    for place, value in manifests:
        if _is_of_others(value):
            continue
        try:
            quota = read(_ResourceQuota, value, "the ResourceQuota")
        except InvalidValue as invalid:
            problems += [
                Problem(f"{place}: {problem.path}", problem.reason, problem.remedy)
                for problem in invalid.problems
            ]
            continue
        for key in quota.spec.hard.keys() & _KEYS:
            try:
                _limit(quota.spec.hard[key])
            except ValueError as error:
                reason, _, remedy = str(error).partition("; ")
                problems.append(Problem(f"{place}: spec.hard.{key}", reason, remedy))
        quotas.append(quota)
    if problems:
        raise InvalidValue(problems)
    return quotas


def _is_of_others(value: object) -> bool:
    """Return whether a quota limits nothing of HAMi's, whatever else it is."""
    spec = value.get("spec", {}) if isinstance(value, Mapping) else None
    hard = spec.get("hard") or {} if isinstance(spec, Mapping) else None
    return isinstance(hard, Mapping) and _KEYS.isdisjoint(hard)


def _limit(text: str) -> Fraction:
    limit = parse_quantity(text)
    if limit < 0:
        raise ValueError(f"is {value_text(text)}; 0 or more is expected")
    return limit


def _counted(quota: _ResourceQuota) -> dict[str, str]:
    """Return the numbers of GPUs and shares of a quota, by their names in a ResourceQuota."""
    hard = quota.spec.hard
    given = [hard[key] for key in _COUNTS if key in hard]
    if not given:
        return {}
    least = min(given, key=parse_quantity)
    shares = {} if _scoped(quota) else {_SHARES: least}
    return {_COUNTS[0]: least, **shares}


def _differences(quota: _ResourceQuota) -> Iterator[str]:
    hard = quota.spec.hard
    for key in sorted(hard.keys() & _KEYS):
        if key == _CORES:
            yield f"{key}: Kueue counts shares by their memory, and not by cores as well"
        elif key == _MEMORY and _whole(hard[key]) is None:
            yield f"{key} {printable(hard[key])} is not a whole number, and HAMi ignores it"
        elif key == _MEMORY and (_whole(hard[key]) or 0) > _MAX_MIB:
            yield f"{key} {printable(hard[key])} limits nothing: it is a number of MiB, no size"
        elif key == _COUNTS[1]:
            yield f"{key}: nothing has counted it so far; it is a limit from now on"
        elif key not in (_MEMORY, *_COUNTS):
            yield f"{key}: HAMi reads {_MEMORY} alone, and nothing here counts it"
    if hard.keys() & {*_COUNTS} and _scoped(quota):
        yield f"{_COUNTS[0]}: counts whole GPUs alone; a quota with scopes counts no shares"
    elif hard.keys() & {*_COUNTS}:
        yield (
            f"{_COUNTS[0]}: counts whole GPUs, and {_SHARES} shares, each up to its number; HAMi's "
            "pods had both under one"
        )


def _scoped(quota: _ResourceQuota) -> bool:
    """Return whether a quota is for some of the pods alone: empty scopes are none."""
    more = quota.spec.model_extra or {}
    selector = more.get("scopeSelector")
    terms = selector.get("matchExpressions") if isinstance(selector, Mapping) else selector
    return bool(more.get("scopes") or terms)


def _whole(value: str | None) -> int | None:
    if value is None:
        return None
    number = parse_quantity(value)
    return int(number) if number.denominator == 1 else None
