"""The moves use what docs/coming-from.md says."""

from __future__ import annotations

import pytest

from lab.interop.move import ORIGINS


@pytest.mark.parametrize("name", ORIGINS)
def test_keeps_nvidias_program_off_labelled_nodes_by_every_term(name: str) -> None:
    values = ORIGINS[name].off_labelled
    (affinity,) = (values.get("kubeletPlugin") or values).values()
    (terms,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].values()
    off = {"key": "gpu-sharing", "operator": "NotIn", "values": ["divvy"]}
    assert all(off in term["matchExpressions"] for term in terms)
