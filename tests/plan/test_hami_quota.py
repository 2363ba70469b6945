"""What HAMi's namespace quotas become; the cases are those of its page and of its own tests."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import InvalidValue
from divvy.plan.hami_quota import ImportedQuotas, import_quotas

MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
WHOLE, SHARES = "requests.nvidia.com/gpu", "divvy-share.deviceclass.resource.k8s.io/devices"


def quota(hard: dict[str, Any], namespace: str = "team", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": "gpu-quota", "namespace": namespace},
        "spec": {"hard": hard, **spec},
    }


def imported(*quotas: dict[str, Any]) -> ImportedQuotas:
    return import_quotas(("q.yaml: document 1", value) for value in quotas)


def hard(result: ImportedQuotas) -> list[Any]:
    return [counted["spec"]["hard"] for counted in result.counts]


@pytest.mark.parametrize(
    ("given", "mib"),
    [(2000, 2000), ("2000", 2000), ("3k", 3000), ("1Ki", 1024), (0, 0), (2**31 - 1, 2**31 - 1)],
)
def test_reads_memory_as_a_number_of_mib(given: Any, mib: int) -> None:
    result = imported(quota({MEMORY: given}))
    assert result.memory == {"team": mib}
    assert (result.counts, result.ended, result.differences) == ((), ("team/gpu-quota",), ())


@pytest.mark.parametrize(
    ("given", "reason"),
    [("8Gi", "limits nothing"), (2**31, "limits nothing"), ("1500m", "HAMi ignores it")],
)
def test_gives_no_quota_for_what_limits_nothing_in_hami(given: Any, reason: str) -> None:
    result = imported(quota({MEMORY: given}))
    assert result.memory == {}
    (difference,) = result.differences
    assert reason in difference


def test_limits_whole_gpus_and_shares_by_number() -> None:
    # The example of HAMi's page.
    result = imported(quota({"limits.nvidia.com/gpu": 2, MEMORY: 2000}))
    assert result.memory == {"team": 2000}
    assert hard(result) == [{WHOLE: "2", SHARES: "2"}]
    assert len(result.differences) == 2
    assert "nothing has counted it so far" in result.differences[0]
    result = imported(quota({WHOLE: "4", "limits.nvidia.com/gpu": "3"}))
    assert hard(result) == [{WHOLE: "3", SHARES: "3"}]


def test_keeps_the_other_limits_of_a_quota() -> None:
    result = imported(quota({MEMORY: 2000, "requests.cpu": "4", "pods": 10}))
    assert hard(result) == [{"requests.cpu": "4", "pods": "10"}]
    assert result.ended == ()


@pytest.mark.parametrize(
    "other",
    [
        quota({"requests.cpu": "4"}),
        {"metadata": {"name": "gpu-quota"}, "spec": {"hard": {"pods": "4"}}},
        {"metadata": {"name": "gpu-quota", "namespace": "team"}, "spec": {}},
        {"metadata": {"name": "gpu-quota", "namespace": "team"}, "spec": {"hard": None}},
        {"metadata": {"name": "gpu-quota", "namespace": "team"}},
    ],
)
def test_leaves_other_quotas_alone(other: dict[str, Any]) -> None:
    assert imported(other) == ImportedQuotas({}, (), (), ())


def test_applies_a_quota_with_scopes_as_hami_does() -> None:
    result = imported(quota({MEMORY: 2000, WHOLE: 2}, scopes=["NotTerminating"]))
    assert result.memory == {"team": 2000}
    (counted,) = result.counts
    assert counted["spec"] == {"hard": {WHOLE: "2"}, "scopes": ["NotTerminating"]}
    assert "a quota with scopes counts no shares" in result.differences[0]


@pytest.mark.parametrize(
    "nothing",
    [{"scopes": []}, {"scopes": None}, {"scopeSelector": {}}, {"scopeSelector": None},
     {"scopeSelector": {"matchExpressions": []}}, {"scopeSelector": {"matchExpressions": None}}],
)  # fmt: skip
def test_counts_shares_by_a_quota_whose_scopes_are_empty(nothing: dict[str, Any]) -> None:
    assert hard(imported(quota({WHOLE: 2}, **nothing))) == [{WHOLE: "2", SHARES: "2"}]
    selector = {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Exists"}]}
    scoped = {**nothing, "scopes": ["NotTerminating"], "scopeSelector": selector}
    assert hard(imported(quota({WHOLE: 2}, **scoped))) == [{WHOLE: "2"}]


def test_keeps_to_the_smaller_of_two_quotas() -> None:
    result = imported(quota({MEMORY: 3000}), quota({MEMORY: 2000}), quota({MEMORY: 1}, "other"))
    assert result.memory == {"team": 2000, "other": 1}
    (difference,) = result.differences
    assert "second quota" in difference


@pytest.mark.parametrize(
    "name",
    [CORES, "requests.nvidia.com/gpumem", "requests.nvidia.com/gpucores",
     "limits.nvidia.com/gpumem-percentage"],
)  # fmt: skip
def test_says_in_one_line_what_nothing_counts(name: str) -> None:
    result = imported(quota({name: 100, MEMORY: 2000}))
    (difference,) = result.differences
    assert difference.startswith(f"team/gpu-quota: {name}: ")


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ({**quota({MEMORY: 1}), "metadata": {"name": "q"}}, "metadata.namespace: is missing"),
        ({**quota({MEMORY: 1}), "spec": {"hard": [1]}}, "spec.hard: is a list"),
        ({**quota({MEMORY: 1}), "spec": "hard"}, "spec: is 'hard'"),
        (quota({MEMORY: "-1"}), f"spec.hard.{MEMORY}: is '-1'; 0 or more is expected"),
        (quota({WHOLE: -1}), f"spec.hard.{WHOLE}: is '-1'; 0 or more is expected"),
        (quota({MEMORY: 1}, "team\nkind: Secret"), "metadata.namespace: is 'team\\nkind: Secret'"),
        (
            {**quota({MEMORY: 1}), "metadata": {"name": "q\x1b[2J", "namespace": "team"}},
            "metadata.name: is 'q\\x1b[2J'",
        ),
        (quota({MEMORY: "2000 MiB"}), "a quantity such as 3000Mi is expected"),
        (quota({MEMORY: None}), "text is expected"),
    ],
)
def test_refuses_what_is_no_quota(manifest: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue) as invalid:
        imported(manifest, quota({MEMORY: 1}))
    assert problem in str(invalid.value)
    assert str(invalid.value).startswith("q.yaml: document 1: ")
