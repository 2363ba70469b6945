"""What `divvy top --since` asks Prometheus, tried by promtool on made-up series."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from divvy.live.usage_over_time import device_hours_query, memory_query
from tests.observability.prometheus import PROMTOOL

pytestmark = pytest.mark.lab
HELD = 'divvy_allocated_devices{namespace="%s",pod="%s",resource="nvidia.com/gpu",uuid="%s"}'
USED = 'divvy_pod_memory_used_mib{namespace="a",pod="p",resource="nvidia.com/gpu",device="0"}'
SHARE = 'divvy_share_memory_used_mib{namespace="a",pod="q",container="c",uuid="GPU-1"}'


def test_counts_the_hours_in_which_devices_were_held(tmp_path: Path) -> None:
    series = {
        HELD % ("a", "p", "0"): "1x120 stale",  # two hours, and gone
        HELD % ("a", "q", "1"): "1x240",
        HELD % ("b", "r", "2"): "_x180 1x60",
        USED: "2048x240",
        SHARE: "1024x240",
    }
    expected = [
        (device_hours_query("4h"), '{namespace="a",resource="nvidia.com/gpu"}', 6.0),
        (device_hours_query("4h"), '{namespace="b",resource="nvidia.com/gpu"}', 1.0),
        (memory_query("4h"), '{namespace="a"}', 12.0),
    ]
    for query, labels, value in expected:
        test = {
            "rule_files": [],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [
                        {"series": metric, "values": values} for metric, values in series.items()
                    ],
                    "promql_expr_test": [
                        {
                            "expr": f"round(({query}), 0.5) == {value}",
                            "eval_time": "4h",
                            "exp_samples": [{"labels": labels, "value": value}],
                        }
                    ],
                }
            ],
        }
        file = tmp_path / "test.yml"
        file.write_text(yaml.safe_dump(test))
        done = subprocess.run(
            [PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
