"""The layout that checks make: on every model with MIG one that fits, with unequal instances."""

from __future__ import annotations

import pytest

from conformance.bare.mig import mixed_layout
from divvy.model import place
from divvy.model.gpu_models import GpuModel, gpu_models

WITH_MIG = [model for model in gpu_models().values() if model.mig and model.mig.profiles]


@pytest.mark.parametrize("model", WITH_MIG, ids=lambda model: model.name)
def test_chooses_a_mixed_layout_that_fits(model: GpuModel) -> None:
    assert model.mig is not None
    layout = mixed_layout(model.mig)
    assert place(model.mig, layout)
    assert sum(layout.values()) >= 2


def test_partitions_an_a100_as_its_users_do() -> None:
    geometry = gpu_models()["A100-SXM4-40GB"].mig
    assert geometry is not None
    assert mixed_layout(geometry) == {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
