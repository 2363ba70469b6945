"""Charts for tests: written to a folder, and rendered by the real helm."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from hypothesis import assume
from hypothesis import strategies as st

from divvy.model import InvalidCluster, parse_cluster, parse_document
from divvy.render.chart import Chart, chart_files
from lab.cluster.tools import HELM

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"))
IMAGE = "registry.example/divvy/agent@sha256:" + "0" * 64
WORKLOADS = "registry.example/divvy/workloads@sha256:" + "1" * 64
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def stack_value(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load(path.read_text())["config"]["divvy:cluster"]
    return value


def example(name: str) -> dict[str, Any]:
    return stack_value(STACKS[0].parent / f"Pulumi.{name}.yaml")


def files_of(value: Mapping[str, Any], workloads: str | None = None) -> dict[str, str]:
    return chart_files(parse_document(value), Chart("test", "0.1.0", "0.1.0", IMAGE, workloads))


def write_chart(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def helm(*arguments: object, expect: int = 0) -> str:
    """Run helm without a cluster; return what it printed, its errors where one is expected."""
    done = subprocess.run(
        [str(HELM.bin / "helm"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "KUBECONFIG": "/nonexistent"},
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stderr if expect else done.stdout


def template(chart: Path, namespace: str, *options: object) -> list[dict[str, Any]]:
    """Return the objects that helm makes of a chart, test hooks left out."""
    return [document for document in documents(chart, namespace, *options) if not is_test(document)]


def documents(chart: Path, namespace: str, *options: object) -> list[dict[str, Any]]:
    text = helm("template", "divvy", chart, "--namespace", namespace, *options)
    return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]


def is_test(obj: Mapping[str, Any]) -> bool:
    return "helm.sh/hook" in (obj["metadata"].get("annotations") or {})


def by_name(objects: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return objects by kind and name, without the labels that only a chart has."""
    named = {}
    for obj in objects:
        labels = obj["metadata"].get("labels") or {}
        for key in ("helm.sh/chart", "app.kubernetes.io/managed-by"):
            labels.pop(key, None)
        named[(obj["kind"], obj["metadata"]["name"])] = obj
    assert len(named) == len(objects)
    return named


_MIG_A100 = ({"1g.5gb": 7}, {"3g.20gb": 2}, {"2g.10gb": 2, "1g.5gb": 3}, {"1g.5gb+me": 1})
_TIME_SLICING = st.fixed_dictionaries(
    {"replicas": st.integers(2, 12)},
    optional={
        "renameByDefault": st.just(True),
        "failRequestsGreaterThanOne": st.booleans(),
        "memoryLimit": st.sampled_from(["auto", "2Gi", "512Mi"]),
    },
)
_NAMED = _TIME_SLICING.map(lambda sharing: {**sharing, "resourceName": "nvidia.com/gpu.named"})
_MIG = st.sampled_from(_MIG_A100) | st.fixed_dictionaries(
    {"layout": st.sampled_from(_MIG_A100)}, optional={"strategy": st.just("mixed")}
)
_SHARES = st.fixed_dictionaries(
    {},
    optional={
        "memory": st.fixed_dictionaries(
            {}, optional={"step": st.just("256Mi"), "oversubscribe": st.sampled_from([1, 1.1, 1.5])}
        ),
        "default": st.sampled_from(["all", "8Gi"]),
        "max": st.integers(1, 64),
    },
)
_TENANTS = st.lists(st.sampled_from(["prod", "dev", "a-1", "7"]), unique=True, max_size=3)
_PROFILES = st.lists(st.sampled_from(["1g.5gb", "1g.5gb+me", "3g.20gb"]), unique=True)
_CLAIMS = st.fixed_dictionaries({}, optional={"mig": _PROFILES}) | st.fixed_dictionaries(
    {"shares": _SHARES}, optional={"tenants": _TENANTS, "mig": _PROFILES}
)
_MPS = st.fixed_dictionaries(
    {"replicas": st.integers(2, 12)},
    optional={
        "renameByDefault": st.booleans(),
        "resourceName": st.sampled_from(["together", "example.com/together"]),
    },
)
_RULE = st.fixed_dictionaries(
    {}, optional={"mig": _MIG, "timeSlicing": _TIME_SLICING | _NAMED}
) | st.fixed_dictionaries({"mps": _MPS})
_SINGLE = st.just({"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}})
_TOLERATION = st.sampled_from(
    [
        {"operator": "Exists"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "team", "value": "yes"},
        {"key": "down", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]
)


@st.composite
def _profile(draw: st.DrawFn) -> Any:
    if draw(st.booleans()):
        return draw(_RULE | _SINGLE | st.fixed_dictionaries({"claims": _CLAIMS}))
    cuts = sorted(draw(st.sets(st.integers(1, 4), max_size=3)))
    starts = [0, *cuts]
    rules = [
        {
            "devices": list(range(first, last)),
            **draw(_RULE | st.fixed_dictionaries({"claims": _CLAIMS})),
        }
        for first, last in zip(starts, cuts, strict=False)
    ]
    return rules or [{"devices": "A100*", **draw(_RULE)}]


@st.composite
def cluster_values(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid cluster value with every key of the stack file in play."""
    # Text that YAML could take for something else has to arrive as text.
    names = ["whole", "a.b", "1e3", "Yes", "0x1", "12"]
    profiles = draw(st.dictionaries(st.sampled_from(names), _profile(), min_size=1, max_size=4))
    pools: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 3))
        pool: dict[str, Any] = {
            "profile": draw(st.sampled_from(sorted(profiles))),
            **draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "tolerations": st.lists(_TOLERATION, max_size=2),
                        "runtime": st.sampled_from(
                            [{"configure": True}, {"name": "cri-o"}, {"configure": False}]
                        ),
                    },
                )
            ),
        }
        if number or draw(st.booleans()):
            pool["select"] = {"example.com/pool": str(number), "on": draw(st.sampled_from("xy"))}
        if draw(st.booleans()):
            model = draw(st.sampled_from(["A100-SXM4-40GB", "A100-SXM4-40GB", "t4"]))
            pool["hardware"] = {"model": model, "gpus": 4, "count": count}
            nodes = st.dictionaries(
                st.sampled_from([f"node-{number}", f"n.{number}"]),
                st.sampled_from(sorted(profiles)),
                max_size=count,
            )
            pool["overrides"] = draw(nodes)
        pools[draw(st.sampled_from(["p", "1", "no"])) + str(number)] = pool
    value = {
        "profiles": profiles,
        "pools": pools,
        **draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "kubeconfig": st.just("~/.kube/config"),
                    "namespace": st.sampled_from(["divvy-system", "gpu", "123"]),
                    "driver": st.sampled_from(
                        [{}, {"root": "/run/nvidia/driver/"}, {"version": "535.10"}, {"root": "/"}]
                    ),
                    "health": st.sampled_from([{}, {"ignoreXids": []}, {"recoverAfter": "1m30s"}]),
                    "change": st.fixed_dictionaries(
                        {"policy": st.sampled_from(["wait", "evict", "never"])}
                    ),
                    "placement": st.just({"replicas": "pack"}),
                    "names": st.fixed_dictionaries(
                        {},
                        optional={
                            "gpu": st.just("example.com/vgpu"),
                            "memory": st.just("example.com/vgpu-memory"),
                            "cores": st.just("nvidia.com/cores"),
                        },
                    ),
                    "devices": st.lists(
                        st.just(
                            {
                                "resource": "rdma/hca",
                                "paths": ["/dev/a<b>&c*", "/dev/ü"],
                                "count": 3,
                            }
                        ),
                        max_size=1,
                    ),
                    "imagePullSecrets": st.lists(st.sampled_from(["a", "1", "y"]), unique=True),
                    "observability": st.fixed_dictionaries(
                        {},
                        optional={
                            "networkPolicy": st.just({"a": "x"}),
                            **{
                                key: st.booleans()
                                for key in ("serviceMonitor", "dashboard", "alerts")
                            },
                        },
                    ),
                },
            )
        ),
    }
    try:
        parse_cluster(value)
    except InvalidCluster:
        assume(False)
    return value
