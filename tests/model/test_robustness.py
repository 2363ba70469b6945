"""Whatever a stack file holds, the answer is a cluster or a list of problems."""

import copy
import datetime
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.model import InvalidCluster, canonical_json, parse_canonical, parse_cluster
from divvy.model.canonical import DEPLOYMENT_KEYS
from tests.model.test_wrong_stacks import JARGON

FULL = {
    "kubeconfig": "~/.kube/config",
    "namespace": "divvy-system",
    "profiles": {
        "whole": {},
        "seven": {"mig": {"1g.5gb": 7}},
        "single": {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}},
        "split": [
            {"devices": [0, 1], "mig": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}},
            {"devices": [2], "timeSlicing": {"replicas": 6, "memoryLimit": "auto"}},
            {"devices": "A100*", "timeSlicing": {"replicas": 2, "resourceName": "half"}},
        ],
    },
    "pools": {
        "notebooks": {
            "select": {"kind": "a100"},
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 12, "os": "ubuntu22.04"},
            "profile": "split",
            "overrides": {"gpu-node-7": "seven"},
            "runtime": {"name": "containerd", "configure": True},
            "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "rest": {"profile": "whole"},
    },
    "driver": {"version": "550.163.01", "minVersion": "535.104", "root": "/"},
    "health": {"ignoreXids": [13, 31], "recoverAfter": "60s"},
    "change": {"policy": "wait", "deadline": "10m"},
    "placement": {"replicas": "spread"},
    "devices": [{"resource": "rdma/hca", "paths": ["/dev/infiniband/uverbs*"], "count": 8}],
    "plugin": {"image": {"registry": "localhost:5000", "base": "x"}},
    "imagePullSecrets": ["pull"],
    "observability": {"serviceMonitor": False, "dashboard": True},
}

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 99),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    st.text(max_size=6),
    st.just([]),
    st.just({}),
    st.lists(st.integers(-1, 9), max_size=2),
    st.dictionaries(st.sampled_from(["mig", "replicas", "layout", "x"]), st.integers(), max_size=2),
)


def places(value, here=()):
    """Return the path of everything below a value."""
    paths = [here] if here else []
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, below in items:
        paths += places(below, (*here, key))
    return paths


PLACES = places(FULL)


def as_sent(cluster):
    """Return a cluster without what only a deployment reads."""
    fields = type(cluster).model_fields
    absent = {key: fields[key].get_default(call_default_factory=True) for key in DEPLOYMENT_KEYS}
    return cluster.model_copy(update=absent)


def test_accepts_the_whole_schema():
    cluster = parse_cluster(FULL)
    assert cluster.pools["notebooks"].runtime.configure
    assert cluster.driver.min_version == "535.104"
    assert (cluster.change.deadline, cluster.health.recover_after) == (600.0, 60.0)
    assert parse_canonical(canonical_json(FULL)) == as_sent(cluster)


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3))
def test_reports_junk_anywhere_in_plain_words(changes):
    value = copy.deepcopy(FULL)
    for path, junk in changes:
        holder = value
        try:
            for key in path[:-1]:
                holder = holder[key]
            # A copy: hypothesis hands out one empty list for all, which would come to hold itself.
            holder[path[-1]] = copy.deepcopy(junk)
        except (KeyError, IndexError, TypeError):
            continue
    before = copy.deepcopy(value)
    try:
        cluster = parse_cluster(value)
    except InvalidCluster as invalid:
        message = str(invalid)
    else:
        message = ""
        assert parse_canonical(canonical_json(value)) == as_sent(cluster)
    assert not JARGON.search(message)
    assert value == before


def deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


def laughs(levels):
    value = ["ha"] * 10
    for _ in range(levels):
        value = [value] * 10
    return value


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"namespace": datetime.date(2024, 1, 2)}, "namespace: is a date; put it in quotes"),
        ({"profiles": {None: {}}}, "profiles: has nothing (YAML reads null and ~ so) as a key"),
        ({"profiles": {True: {}}}, "profiles: has true as a key"),
        ({"imagePullSecrets": {"a"}}, "imagePullSecrets: is a set"),
        ({"namespace": b"p"}, "namespace: is binary data"),
        ({"health": {"recoverAfter": math.inf}}, "health.recoverAfter: is not a finite number"),
        ({"health": {"ignoreXids": [10**5000]}}, "health.ignoreXids[0]: is a number of more than"),
        ({"namespace": "x" * 5000}, "namespace: has 5,000 characters"),
        ({"devices": deep(900)}, "is nested too deeply; 20 levels are the most"),
        ({"devices": laughs(7)}, "has more than 100,000 values; are YAML aliases repeated?"),
        ({"driver": {"version": 550.120}}, "driver.version: is the number 550.12, in which YAML k"),
        ({"driver": {"version": "9" * 4000, "minVersion": "535.104"}}, "driver.version: is '999"),
    ],
)
def test_reports_yaml_beyond_a_stack_file_in_one_short_error(change, says):
    with pytest.raises(InvalidCluster) as refusal:
        parse_cluster({**FULL, **change})
    message = str(refusal.value)
    assert says in message
    assert len(message) < 600


def test_refuses_a_value_that_contains_itself():
    loop = []
    loop.append(loop)
    with pytest.raises(InvalidCluster, match="nested too deeply"):
        parse_cluster({**FULL, "devices": loop})


@pytest.mark.parametrize(
    ("path", "number"),
    [(("devices", 0, "count"), 1001), (("pools", "notebooks", "hardware", "count"), 10**9)],
)
def test_bounds_counts(path, number):
    value = copy.deepcopy(FULL)
    at = value
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = number
    with pytest.raises(InvalidCluster, match="or less is expected"):
        parse_cluster(value)
