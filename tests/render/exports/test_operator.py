"""The GPU Operator's configuration: the seed's YAML as values, refusals by name, and back again."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from divvy.model import InvalidCluster, parse_cluster
from divvy.model.nvidia import read_operator
from divvy.model.profile import TimeSlicing
from divvy.plan import plan
from divvy.render.exports.operator.files import (
    Site,
    mig_configs,
    node_labels,
    operator_files,
    operator_values,
    time_slicing_data,
)
from divvy.render.exports.operator.translation import Translation, translate
from tests.render.chart.charts import STACKS, example, stack_value

# The YAML of CERN's article "Efficient Access to Shared GPU Resources: Part 2".
ARTICLE_VALUES = yaml.safe_load("""
operator:
  defaultRuntime: containerd
mig:
  strategy: mixed
driver:
  repository: yourregistry/yourproject
  image: driver
  version: "510.47.03-fedora35-5.16.13-200.fc35.x86_64"
  imagePullPolicy: Always
migManager:
  config:
    name: nvidia-mig-config
devicePlugin:
  config:
    name: nvidia-time-slicing-config
""")
ARTICLE_TIME_SLICING = yaml.safe_load("""
apiVersion: v1
kind: ConfigMap
metadata:
  name: nvidia-time-slicing-config
  namespace: kube-system
data:
  slice-4: |-
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - name: nvidia.com/gpu
          replicas: 4
  slice-10: |-
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - name: nvidia.com/gpu
          replicas: 10
""")
ARTICLE_MIG = yaml.safe_load("""
apiVersion: v1
kind: ConfigMap
metadata:
  name: nvidia-mig-config
  namespace: kube-system
data:
  config.yaml: |
    version: v1
    mig-configs:
      disabled:
      - devices: all
        mig-enabled: false

      # A100-40GB
      2x2g.10gb-3x1g.5gb:
      - devices: all
        mig-enabled: true
        mig-devices:
          "1g.5gb": 3
          "2g.10gb": 2
""")
ARTICLE_SITE = Site(
    "cern",
    namespace="kube-system",
    driver_repository="yourregistry/yourproject",
    driver_version="510.47.03-fedora35-5.16.13-200.fc35.x86_64",
)
ARTICLE_POOLS = ("whole", "slice-4", "slice-10", "mixed-layout")


def translated(value: dict[str, Any], *pools: str) -> Translation:
    return translate(parse_cluster(value), pools)


def stack(profile: Any, model: str = "A100-SXM4-40GB", **more: Any) -> dict[str, Any]:
    """Return a stack of one pool with four GPUs a node."""
    pool = {
        "select": {"pool": "only"},
        "hardware": {"model": model, "gpus": 4, "count": 2},
        "profile": "it",
        **more.pop("pool", {}),
    }
    return {"profiles": {"it": profile}, "pools": {"only": pool}, **more}


def contained(part: Any, whole: Any) -> bool:
    """Return whether every value of a part is in the whole."""
    if isinstance(part, dict):
        return all(key in whole and contained(value, whole[key]) for key, value in part.items())
    return bool(part == whole)


def data(text: str) -> dict[str, Any]:
    """Return a ConfigMap with its texts read."""
    config_map = yaml.safe_load(text)
    read = {key: yaml.safe_load(value) for key, value in config_map["data"].items()}
    return {**config_map, "data": read}


def test_writes_the_articles_yaml_for_the_articles_profiles() -> None:
    value = example("cern")
    files = operator_files(parse_cluster(value), translated(value, *ARTICLE_POOLS), ARTICLE_SITE)
    assert contained(ARTICLE_VALUES, yaml.safe_load(files["values.yaml"]))
    assert data(files["nvidia-time-slicing-config.yaml"]) == data(
        yaml.safe_dump(ARTICLE_TIME_SLICING)
    )
    assert data(files["nvidia-mig-config.yaml"]) == data(yaml.safe_dump(ARTICLE_MIG))


def test_writes_the_articles_labels_for_the_articles_nodes() -> None:
    labels = {
        node_label["pool"]: node_label["labels"]
        for node_label in node_labels(translated(example("cern"), *ARTICLE_POOLS))
    }
    assert labels == {
        "whole": {"nvidia.com/mig.config": "disabled"},
        "slice-4": {
            "nvidia.com/device-plugin.config": "slice-4",
            "nvidia.com/mig.config": "disabled",
        },
        "slice-10": {
            "nvidia.com/device-plugin.config": "slice-10",
            "nvidia.com/mig.config": "disabled",
        },
        "mixed-layout": {"nvidia.com/mig.config": "2x2g.10gb-3x1g.5gb"},
    }


def test_includes_mig_managers_fallback_among_its_configurations() -> None:
    for path in STACKS:
        translation = translated(stack_value(path))
        values = operator_values(parse_cluster(stack_value(path)), translation, Site("x"))
        if "migManager" in values:
            default = values["migManager"]["config"]["default"]
            assert default in mig_configs(translation)["mig-configs"]


SLICE = {"timeSlicing": {"replicas": 4}}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            stack([{"devices": [2], "timeSlicing": {"replicas": 6}}, {"devices": [3]}]),
            "GPU 2 shared by 6, GPU 3 unshared: NVIDIA's plugin treats all nvidia.com/gpu",
        ),
        (
            stack(
                [{"devices": [0], **SLICE}, {"timeSlicing": {"replicas": 2, "resourceName": "a/b"}}]
            ),
            "timeSlicing.resourceName: a/b: NVIDIA's plugin only adds .shared",
        ),
        (stack({"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}}), "timeSlicing.memoryLimit"),
        (stack({"mps": {"replicas": 4}}), "mps: NVIDIA's plugin has one daemon for all GPUs"),
        (
            stack(
                {
                    "timeSlicing": {
                        "replicas": 4,
                        "memoryLimit": {"limit": "auto", "action": "prevent"},
                        "compute": "cap",
                    }
                }
            ),
            "timeSlicing.compute: NVIDIA's plugin does not divide the GPU's time",
        ),
        (
            stack(
                [{"devices": ["GPU-0aba7cb2-1234-5678-9abc-def012345678"], "mig": {"1g.5gb": 7}}]
            ),
            "a GPU by its UUID",
        ),
        (
            stack([{"devices": [0], "mig": {"1g.5gb": 7}}, {}], pool={"hardware": None}),
            "the pool has no hardware",
        ),
        (
            stack(
                [
                    {"devices": [0], **SLICE, "mig": {"1g.5gb": 7}},
                    {"timeSlicing": {"replicas": 4, "failRequestsGreaterThanOne": False}},
                ]
            ),
            "failRequestsGreaterThanOne differ",
        ),
        (stack({"mig": {"1g.5gb": 7}}, change={"policy": "evict"}), "change: policy evict"),
        (stack({"mig": {"1g.5gb": 7}}, change={"policy": "never"}), "change: policy never"),
        (stack({}, health={"recoverAfter": "1m"}), "health.recoverAfter"),
        (stack({}, devices=[{"resource": "rdma/hca", "paths": ["/dev/x"]}]), "devices: rdma/hca"),
    ],
)
def test_refuses_by_name_what_the_operator_cannot_express(
    value: dict[str, Any], words: str
) -> None:
    refusals = [str(refusal) for refusal in translated(value).refusals]
    assert any(words in refusal for refusal in refusals), refusals


def test_writes_or_refuses_every_field_of_time_slicing() -> None:
    """A field that the export does not know would be lost in silence."""
    written = {"replicas", "rename_by_default", "fail_requests_greater_than_one"}
    refused = {"resource_name", "memory_limit", "compute"}
    assert set(TimeSlicing.model_fields) == written | refused


def test_refuses_two_mig_strategies() -> None:
    (refusal,) = translated(example("cern")).refusals
    assert str(refusal) == (
        "pools: mig.strategy: mixed in mixed-layout, seven-mixed and single in seven-single: "
        "the operator has one for the cluster"
    )


def test_refuses_a_name_with_two_meanings() -> None:
    value = stack([{"devices": [0], "mig": {"1g.5gb": 7}}])
    smaller = {**value["pools"]["only"], "select": {"pool": "other"}}
    value["pools"]["other"] = {**smaller, "hardware": {**smaller["hardware"], "gpus": 2}}
    (refusal,) = translated(value).refusals
    assert "profile it: means something else than in pool only" in str(refusal)


def two_pools(profile: Any, *sizes: int) -> dict[str, Any]:
    """Return a stack whose profile is used by pools with as many GPUs a node."""
    value = stack(profile)
    hardware = value["pools"].pop("only")["hardware"]
    for gpus in sizes:
        pool = {"select": {"gpus": str(gpus)}, "hardware": {**hardware, "gpus": gpus}}
        value["pools"][f"of-{gpus}"] = {**pool, "profile": "it"}
    return value


@pytest.mark.parametrize("sizes", [(1, 4), (4, 1)])
def test_refuses_what_a_profile_cannot_say_in_one_of_its_pools(sizes: tuple[int, int]) -> None:
    refusals = translated(two_pools([{"devices": [0], **SLICE}], *sizes)).refusals
    assert "pool of-4, profile it: timeSlicing: GPU 0 shared by 4, GPU 1, 2, 3 unshared" in str(
        refusals[0]
    )


def test_refuses_the_same_whatever_the_order_of_the_pools() -> None:
    forward, backward = (
        sorted(map(str, translated(two_pools([{"devices": [0], **SLICE}], *sizes)).refusals))
        for sizes in ((1, 4), (4, 1))
    )
    assert forward == backward
    assert len(forward) == 1


def test_names_a_refusal_of_a_profile_once_and_its_second_meaning_beside_it() -> None:
    limited = {"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}}
    (refusal,) = translated(two_pools(limited, 4, 2)).refusals
    assert "timeSlicing.memoryLimit" in str(refusal)
    cut = [{"devices": [0], "mig": {"1g.5gb": 7}}, limited]
    dropped, other = translated(two_pools(cut, 4, 2)).refusals
    assert dropped.droppable
    assert "pool of-2: profile it: means something else than in pool of-4" in str(other)


@pytest.mark.parametrize(
    "value",
    [
        stack({}),
        stack(SLICE),
        stack({"mig": {"1g.5gb": 7}, **SLICE}),
        stack([{"devices": [0, 1], "mig": {"3g.20gb": 2}}, SLICE]),
        stack([{"devices": "A100*", "mig": {"1g.5gb": 7}}, {}]),
        stack({}, change={"policy": "never"}),
        stack({"timeSlicing": {"replicas": 4, "resourceName": "nvidia.com/gpu.shared"}}),
    ],
)
def test_accepts_what_the_operator_can_express(value: dict[str, Any]) -> None:
    assert translated(value).refusals == ()


def test_labels_every_other_node_beside_a_default_pool_that_shares() -> None:
    value = stack(SLICE, pool={"select": None})
    value["profiles"]["whole"] = {}
    value["pools"]["some"] = {"select": {"a": "b"}, "profile": "whole"}
    translation = translated(value)
    values = operator_values(parse_cluster(value), translation, Site("x"))
    assert values["devicePlugin"]["config"]["default"] == "it"
    assert yaml.safe_load(time_slicing_data(translation)["whole"]) == {"version": "v1"}
    (labels,) = [
        node_label["labels"]
        for node_label in node_labels(translation)
        if node_label["pool"] == "some"
    ]
    assert labels["nvidia.com/device-plugin.config"] == "whole"


def test_translates_the_other_settings() -> None:
    value = stack(
        SLICE,
        pool={"tolerations": [{"key": "gpu", "operator": "Exists"}], "runtime": {"name": "cri-o"}},
        driver={"version": "550.163.01", "root": "/run/nvidia/driver"},
        health={"ignoreXids": [13, 31, 43, 45, 68, 94]},
        placement={"replicas": "pack"},
        observability={"serviceMonitor": True},
    )
    values = operator_values(parse_cluster(value), translated(value), Site("x"))
    assert values == {
        "operator": {"defaultRuntime": "crio"},
        "mig": {"strategy": "none"},
        "driver": {"repository": "nvcr.io/nvidia", "image": "driver", "version": "550.163.01"},
        "toolkit": {"enabled": True},
        "devicePlugin": {
            "config": {"name": "nvidia-time-slicing-config"},
            "env": [
                {"name": "DP_DISABLE_HEALTHCHECKS", "value": "94"},
                {"name": "DP_ENABLE_HEALTHCHECKS", "value": "109"},
                {"name": "SHARED_DEVICES_ALLOCATION_POLICY", "value": "packed"},
            ],
        },
        "dcgmExporter": {"enabled": True, "serviceMonitor": {"enabled": True}},
        "daemonsets": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
    }


def imported(value: dict[str, Any], translation: Translation) -> dict[str, Any]:
    """Return the stack again with its profiles read from the generated ConfigMaps."""
    plugin = {name: yaml.safe_load(text) for name, text in time_slicing_data(translation).items()}
    read = read_operator(plugin, mig_configs(translation), translation.strategy)
    assert read.left_out == ()
    profiles = {name: read.profiles.get(name, {}) for name in value["profiles"]}
    return {**value, "profiles": profiles}


def topology(value: dict[str, Any]) -> list[Any]:
    pools = plan(parse_cluster(value), "x").pools
    return [[gpu.shape for gpu in pool.node.gpus] for pool in pools if pool.node]


@pytest.mark.parametrize("name", ["cern", "h200"])
def test_imports_the_examples_profiles_from_what_it_generated(name: str) -> None:
    value = example(name)
    value["pools"].pop("seven-single", None)
    value["profiles"].pop("7x1g.5gb-single", None)
    again = imported(value, translated(value))
    before, after = (parse_cluster(document).profiles for document in (value, again))
    assert before == after


_SHARING = st.fixed_dictionaries(
    {"replicas": st.sampled_from([2, 4])},
    optional={"failRequestsGreaterThanOne": st.booleans(), "renameByDefault": st.just(True)},
)
_LAYOUTS = st.sampled_from([{"1g.5gb": 7}, {"3g.20gb": 2}, {"2g.10gb": 2, "1g.5gb": 3}])
_MIG = _LAYOUTS | st.just({"layout": {"1g.5gb": 7}, "strategy": "single"})
_RULES = st.fixed_dictionaries({}, optional={"mig": _MIG, "timeSlicing": _SHARING})


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), _RULES), max_size=3), _RULES)
def test_imports_the_same_topology_from_what_it_generated(
    first: list[Any], last: dict[str, Any]
) -> None:
    value = stack([*({"devices": sorted(gpus), **rule} for gpus, rule in first), last])
    try:
        translation = translated(value)
    except InvalidCluster:
        assume(False)
    assume(not translation.refusals)
    assert topology(imported(value, translation)) == topology(value)


def by_claims(*claims: Any, **more: Any) -> dict[str, Any]:
    """Return a cluster with a pool for each of these claims."""
    pools = {
        f"p{at}": {
            "select": {"pool": str(at)},
            "profile": f"p{at}",
            "hardware": {"model": "H100-80GB", "gpus": 8, "count": 2},
        }
        for at in range(len(claims))
    }
    profiles = {f"p{at}": {"claims": value} for at, value in enumerate(claims)}
    return {"profiles": profiles, "pools": pools, **more}


def claimed(value: dict[str, Any]) -> tuple[set[tuple[str, bool]], dict[str, Any]]:
    """Return what is refused, and whether it can be left out, with the operator's values."""
    cluster = parse_cluster(value)
    translation = translate(cluster)
    files = operator_files(cluster, translation, Site("lab"))
    assert list(files) == ["values.yaml"]
    refused = {(refusal.key, refusal.droppable) for refusal in translation.refusals}
    return refused, yaml.safe_load(files["values.yaml"])


def test_writes_the_second_stack_of_the_operator_for_claims() -> None:
    refused, values = claimed(by_claims({}))
    assert refused == set()
    assert values["gpuCluster"] == {"deployCR": True}
    assert values["clusterPolicy"] == {"deployCR": False}
    assert values["draDriver"] == {"featureGates": {}}
    assert values["driver"] == {"enabled": False}
    assert values.keys().isdisjoint({"devicePlugin", "migManager", "mig", "toolkit"})


def test_names_what_the_operators_dra_driver_does_not_do() -> None:
    refused, values = claimed(by_claims({"mig": ["1g.10gb"], "shares": {}}))
    assert refused == {("claims.mig", True), ("claims.shares", True), ("names", True)}
    assert values["draDriver"] == {
        "featureGates": {"DynamicMIG": True, "ConsumableShares": True},
        "gpus": {"kubeletPlugin": {"env": [{"name": "CONSUMABLE_SHARES", "value": "memory"}]}},
    }
    tenants = {"shares": {}, "tenants": ["prod"]}
    assert ("claims.tenants", False) in claimed(by_claims(tenants))[0]
    assert ("names.gpu", False) in claimed(by_claims({}, names={"gpu": "example.com/gpu"}))[0]
    required = {"quota": {"shares": "required"}}
    assert ("quota.shares", True) in claimed(by_claims({"shares": {}}, **required))[0]
    assert claimed(by_claims({}, **required))[0] == set()


def test_refuses_two_configurations_of_the_one_dra_driver() -> None:
    translation = translate(parse_cluster(by_claims({}, {"mig": ["1g.10gb"]})))
    (refusal,) = (refusal for refusal in translation.refusals if refusal.key == "claims")
    assert (refusal.where, refusal.droppable) == ("pool p0, pool p1", False)


def test_refuses_claims_beside_pools_without_claims() -> None:
    value = by_claims({})
    value["profiles"]["plain"] = {}
    value["pools"]["q"] = {"select": {"pool": "q"}, "profile": "plain"}
    translation = translate(parse_cluster(value))
    assert translation.claims is None
    assert [refusal.key for refusal in translation.refusals] == ["claims"]


def test_has_a_driver_in_a_container_installed_as_the_second_stack_wants_it() -> None:
    _, values = claimed(by_claims({}, driver={"root": "/run/nvidia/driver"}))
    assert values["driver"]["nvidiaDriverCRD"] == {"enabled": True}
