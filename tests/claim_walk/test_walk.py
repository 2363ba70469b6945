"""Ten sequences of the walk; ``python -m tests.claim_walk SEED SEQUENCES`` takes more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.claim_walk.cluster import walk_cluster
from tests.claim_walk.hardware import A100, Gpu
from tests.claim_walk.oracle import Broken, Oracle
from tests.claim_walk.walk import walk
from tests.thoroughness import at_length

_SEED, _SEQUENCES = 20, at_length(3, 10)


@pytest.mark.lab
def test_gives_nothing_out_twice() -> None:
    with walk_cluster() as cluster:
        count = walk(cluster, _SEED, _SEQUENCES)
    assert count.ran > 0


def device(kind: str, name: str, **attributes: str | int) -> dict[str, Any]:
    typed_attributes: dict[str, Any] = {"kind": {"string": kind}, "uuid": {"string": "GPU-A"}}
    for key, value in attributes.items():
        typed_attributes[key] = {"int" if isinstance(value, int) else "string": value}
    return {"name": name, "attributes": typed_attributes}


def oracle(profile: str) -> Oracle:
    devices = [
        device("gpu", "whole"),
        device("share", "share"),
        device("share", "share-prod", tenant="prod"),
        device("share", "share-dev", tenant="dev"),
        device("mig", "low", profile="3g.20gb", start=0),
        device("mig", "high", profile="3g.20gb", start=4),
        device("mig", "within", profile="1g.5gb", start=3),
        device("mig", "nowhere", profile="2g.10gb", start=1),
    ]
    spec = {"pool": {"name": "n/divvy"}, "devices": devices}
    return Oracle([Gpu("GPU-A", 0, "n", A100, profile)], [{"spec": spec}])


def claim(what: str, memory: str = "1Gi", cores: str = "10", namespace: str = "walk") -> Any:
    result = {"driver": "divvy.gpu", "pool": "n/divvy", "device": what}
    consumed = {"consumedCapacity": {"memory": memory, "cores": cores}}
    return {
        "metadata": {"namespace": namespace, "name": what},
        "status": {
            "allocation": {"devices": {"results": [result | (consumed if "share" in what else {})]}}
        },
    }


@pytest.mark.parametrize(
    ("profile", "claims", "message"),
    [
        ("by-size", [claim("share"), claim("share", "39Gi")], ""),
        ("by-size", [claim("share"), claim("share", "40Gi")], "too much memory"),
        ("by-size", [claim("share"), claim("share", cores="91")], "too much time"),
        ("by-size", [claim("share", "40Gi", "100"), claim("share", "1Mi", "0")], "not alone"),
        ("few", [claim("share")] * 4, "too many shares"),
        ("few", [claim("share", "1000Mi")], "not in steps"),
        ("cut", [claim("share")], "without any"),
        ("on-demand", [claim("whole"), claim("low")], "not alone"),
        ("on-demand", [claim("share"), claim("low")], "shares beside MIG"),
        ("on-demand", [claim("low"), claim("high")], ""),
        ("on-demand", [claim("low"), claim("within")], "overlap"),
        ("on-demand", [claim("nowhere")], "no placement"),
        ("on-demand", [claim("unknown")], "no slice offers"),
        ("apart", [claim("share-prod", namespace="walk-prod")], ""),
        ("apart", [claim("share-prod", namespace="walk-dev")], "another tenant's"),
        (
            "apart",
            [
                claim("share-prod", namespace="walk-prod"),
                claim("share-dev", namespace="walk-dev"),
            ],
            "tenants on one GPU",
        ),
        ("apart", [claim("share")], "without a tenant"),
    ],
)
def test_recognises_broken_promises(profile: str, claims: list[Any], message: str) -> None:
    if not message:
        oracle(profile).check(claims)
        return
    with pytest.raises(Broken, match=message):
        oracle(profile).check(claims)
