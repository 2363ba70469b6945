"""The recording rules, tried by promtool: hours are the integral of what was allocated."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest
import yaml

from divvy.model import parse_cluster
from divvy.model.api_names import GPUS_RECORD as GPUS
from divvy.model.api_names import WAITING_RECORD as WAITING
from divvy.render.objects.usage_rules import DEVICES, MEMORY, usage_group
from tests.observability.prometheus import PROMTOOL

pytestmark = pytest.mark.lab
MINUTES = 360
CLUSTER = parse_cluster(
    {
        "profiles": {"p": {"timeSlicing": {"replicas": 2, "resourceName": "example.com/turn"}}},
        "pools": {"all": {"profile": "p"}},
    }
)
PODS = ("a/one", "a/two", "b/one")


def allocated(random: Random) -> list[tuple[int, int, int]]:
    """Return devices, MiB and cores of a pod for every minute; it holds nothing at times."""
    minutes: list[tuple[int, int, int]] = []
    while len(minutes) < MINUTES:
        part = random.choice(((0, 0, 0), (1, 40960, 100), (2, 9000, 35), (1, 4864, 14)))
        minutes += [part] * random.randrange(1, 90)
    return minutes[:MINUTES]


def test_counts_hours_as_the_integral_of_what_was_allocated(tmp_path: Path) -> None:
    random = Random(3)
    series, expected = [], []
    queries = {
        GPUS: (2, 100),
        DEVICES: (0, 1),
        MEMORY: (1, 1),
    }
    names = ("devices", "memory_mib", "cores")
    for pod in PODS:
        namespace, name = pod.split("/")
        minutes = allocated(random)
        for place, metric in enumerate(names):
            labels = f'namespace="{namespace}",pod="{name}",kind="share",uuid="GPU-1",node="n"'
            # A scrape without the series of a pod that holds nothing ends it.
            values = " ".join(str(minute[place]) if minute[0] else "stale" for minute in minutes)
            series.append({"series": f"divvy_allocated_{metric}{{{labels}}}", "values": values})
        for record, (place, unit) in queries.items():
            integral = sum(minute[place] for minute in minutes) / unit / 60
            selector = f'{{namespace="{namespace}",pod="{name}"}}'
            expected.append((record, selector, integral))
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f"round(sum_over_time({record}{selector}[{MINUTES}m]) / 60, 1e-6)",
                        "eval_time": f"{MINUTES - 1}m",
                        "exp_samples": [
                            {
                                "labels": selector.replace("}", ',kind="share"}'),
                                "value": round(integral, 6),
                            }
                        ],
                    }
                    for record, selector, integral in expected
                ],
            }
        ],
    }
    assert run_promtool(tmp_path, test) == ""


@pytest.mark.parametrize("resource", ["nvidia_com_gpu", "example_com_turn"])
def test_records_pods_that_wait_for_a_gpu(resource: str, tmp_path: Path) -> None:
    requests = 'kube_pod_container_resource_requests{namespace="a",pod="p",resource="%s"}'
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {
                        "series": 'kube_pod_status_unschedulable{namespace="a",pod="p"}',
                        "values": "1x29 0x30",
                    },
                    {"series": requests % resource, "values": "1x59"},
                    {
                        "series": 'kube_pod_status_unschedulable{namespace="a",pod="web"}',
                        "values": "1x59",
                    },
                ],
                "promql_expr_test": [
                    {
                        "expr": f"sum_over_time({WAITING}[1h]) / 60",
                        "eval_time": "59m",
                        "exp_samples": [{"labels": '{namespace="a",pod="p"}', "value": 0.5}],
                    }
                ],
            }
        ],
    }
    assert run_promtool(tmp_path, test) == ""


def run_promtool(folder: Path, test: dict[str, object]) -> str:
    """Return promtool's complaint about the rules or a test of them."""
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [usage_group(CLUSTER)]}))
    (folder / "test.yml").write_text(yaml.safe_dump(test))
    for arguments in (["check", "rules", "--lint=all", "rules.yml"], ["test", "rules", "test.yml"]):
        completed = subprocess.run(
            [PROMTOOL, *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        if completed.returncode:
            return completed.stdout + completed.stderr
    return ""
