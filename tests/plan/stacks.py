"""Clusters for the tests of plan, views and commands."""

from pathlib import Path

import yaml

from divvy.model import Cluster, parse_cluster
from divvy.plan import Plan, plan

FOLDER = Path(__file__).parents[2] / "stacks"


def example(name: str) -> Cluster:
    """Return the cluster of an example stack."""
    text = (FOLDER / f"Pulumi.{name}.yaml").read_text(encoding="utf-8")
    return parse_cluster(yaml.safe_load(text)["config"]["divvy:cluster"])


def planned(profiles: dict, **pools: dict) -> Plan:
    """Return the plan of pools, each chosen by its name."""
    full = {name: {"select": {"pool": name}, **pool} for name, pool in pools.items()}
    return plan(parse_cluster({"profiles": profiles, "pools": full}), "test")


def pool(
    profile: str, count: int = 1, model: str = "A100-SXM4-40GB", gpus: int = 4, **more
) -> dict:
    """Return a pool with hardware."""
    return {"hardware": {"model": model, "gpus": gpus, "count": count}, "profile": profile, **more}
