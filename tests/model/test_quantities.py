"""Sizes as stack files write them, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import InvalidCluster, parse_cluster

REST = {"pools": {"all": {"profile": "p"}}}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        (
            {"claims": {"shares": {"default": "auto"}}},
            "is 'auto'; a size such as 6Gi or 512Mi, or all, is expected",
        ),
        (
            {"claims": {"shares": {"memory": {"step": "1Mx"}}}},
            "is '1Mx'; a size such as 6Gi or 512Mi is expected",
        ),
        (
            {"timeSlicing": {"replicas": 2, "memoryLimit": "all"}},
            "is 'all'; a size such as 6Gi or 512Mi, or auto, is expected",
        ),
    ],
)
def test_names_the_word_that_the_key_takes_instead_of_a_size(
    profile: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidCluster) as refused:
        parse_cluster({"profiles": {"p": profile}, **REST})
    assert expected in str(refused.value)
