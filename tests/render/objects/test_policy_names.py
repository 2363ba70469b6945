"""Every validating policy of a stack has one of the names that a deployment looks for."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import parse_document
from divvy.render.objects.cluster import objects
from divvy.render.objects.policy_names import policy_names

SHARES = {"claims": {"shares": {}}}


@pytest.mark.parametrize(
    "stack",
    [
        {"profiles": {"p": {}}},
        {"profiles": {"p": SHARES}},
        {
            "profiles": {"p": SHARES},
            "quota": {"shares": "required"},
            "names": {"classes": "nvidia"},
        },
    ],
)
def test_names_every_validating_policy(stack: dict[str, Any]) -> None:
    document = parse_document({"namespace": "n", "pools": {"a": {"profile": "p"}}, **stack})
    names = {
        obj["metadata"]["name"]
        for obj in objects(document, "i")
        if obj["kind"].startswith("ValidatingAdmissionPolicy")
    }
    assert names <= set(policy_names("n"))
