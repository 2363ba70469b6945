"""Load, plan and diff a cluster of 5,000 nodes in 50 pools: python -m lab.benchmarks.plan."""

import json
from time import perf_counter

import yaml

from divvy.plan import Plan, diff, plan
from divvy.stack.file import StackFile
from divvy.stack.sections import read_cluster

POOLS = 50
NODES = 5_000
GPUS = 8
BUDGET_S = 1.0
LAYOUTS = (
    {},
    {"timeSlicing": {"replicas": 4}},
    {"mig": {"1g.10gb": 7}},
    {"mig": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}},
    [
        {"devices": [0, 1, 2, 3], "mig": {"3g.40gb": 2}},
        {"devices": [4], "timeSlicing": {"replicas": 4}},
    ],
)


def stack_text(shift: int) -> str:
    """Return a stack file; ``shift`` moves every pool on to the next profile."""
    profiles = {f"p{number}": LAYOUTS[number % len(LAYOUTS)] for number in range(POOLS)}
    pools = {}
    for number in range(POOLS):
        pools[f"pool-{number}"] = {
            "select": {"node.kubernetes.io/instance-type": f"kind-{number}"},
            "hardware": {
                "model": ("A100-SXM4-80GB", "H100-SXM5-80GB")[number % 2],
                "gpus": GPUS,
                "count": NODES // POOLS,
            },
            "profile": f"p{(number + shift) % POOLS}",
            "overrides": {f"node-{number}-{node}": f"p{POOLS - 1}" for node in range(2)}
            if number % len(LAYOUTS) == POOLS % len(LAYOUTS)
            else {},
        }
    return yaml.safe_dump({"config": {"divvy:cluster": {"profiles": profiles, "pools": pools}}})


def load(text: str) -> Plan:
    """Read and plan one stack file."""
    file = StackFile("large.yaml", text, "large")
    return plan(read_cluster(file), file.name)


def main() -> None:
    texts = stack_text(0), stack_text(1)
    started = perf_counter()
    before, after = map(load, texts)
    planned = perf_counter()
    difference = diff(before, after)
    done = perf_counter()
    figures = {
        "nodes": NODES,
        "pools": POOLS,
        "gpus": NODES * GPUS,
        "changes": len(difference.changes),
        "load_and_plan_both_s": round(planned - started, 3),
        "diff_s": round(done - planned, 3),
        "all_s": round(done - started, 3),
        "budget_s": BUDGET_S,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
