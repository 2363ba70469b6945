"""Two pools, in Python."""

import pulumi

from divvy.components import GpuCluster

gpus = GpuCluster(
    "prod",
    {
        "cluster": {
            "profiles": {
                "quarters": {
                    "timeSlicing": {
                        "replicas": 4,
                        "memoryLimit": {"limit": "auto", "action": "prevent"},
                    }
                },
                "mixed": [{"devices": [0], "mig": {"3g.20gb": 1, "2g.10gb": 2}}, {}],
            },
            "pools": {
                "notebooks": {
                    "select": {"pool": "notebooks"},
                    "hardware": {"model": "T4", "gpus": 2, "count": 3},
                    "profile": "quarters",
                },
                "training": {
                    "select": {"pool": "training"},
                    "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 2},
                    "profile": "mixed",
                },
            },
            "plugin": {"image": {"reference": f"registry.example/divvy/agent@sha256:{'0' * 64}"}},
        }
    },
)
pulumi.export("advertised", gpus.advertised)
