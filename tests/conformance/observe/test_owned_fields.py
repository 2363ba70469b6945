"""Only what the program writes is compared; what others fill in is theirs."""

from typing import Any

import pytest

from conformance.observe.owned_fields import differences

POD = {
    "containers": [
        {
            "name": "agent",
            "image": "r/divvy/agent@sha256:1",
            "env": [{"name": "A", "value": "1"}],
            "resources": {"limits": {"memory": "1Gi", "cpu": "500m"}},
            "volumeMounts": [
                {"name": "driver", "mountPath": "/a"},
                {"name": "driver", "mountPath": "/b", "readOnly": True},
            ],
        }
    ],
    "hostPID": False,
    "nodeSelector": {},
}
LIVE = {
    "containers": [
        {
            "name": "agent",
            "image": "r/divvy/agent@sha256:1",
            "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
            "resources": {"limits": {"memory": "1024Mi", "cpu": "0.5"}},
            "volumeMounts": [
                {"name": "driver", "mountPath": "/b", "readOnly": True},
                {"name": "driver", "mountPath": "/a"},
            ],
        },
        {"name": "of-a-mesh", "image": "mesh"},
    ],
    "schedulerName": "default-scheduler",
}


def problems(owned: Any, live: Any) -> list[str]:
    return list(differences(owned, live))


def test_ignores_defaults_order_and_what_others_add() -> None:
    assert problems(POD, LIVE) == []


@pytest.mark.parametrize(
    ("owned", "live", "words"),
    [
        ({"replicas": 1}, {"replicas": 0}, "replicas is 0, not 1"),
        ({"replicas": 1}, {}, "replicas is absent, not 1"),
        ({"rules": [{"verbs": ["get"]}]}, {"rules": []}, "rules has 0 entries, not 1"),
        (
            {"rules": [{"verbs": ["get", "list"]}, {"verbs": ["create"]}]},
            {"rules": [{"verbs": ["create"]}, {"verbs": ["get", "patch"]}]},
            "rules[0].verbs[1] is patch, not list",
        ),
        (
            {"containers": [{"name": "a", "image": "x"}]},
            {"containers": [{"name": "a", "image": "y"}]},
            "containers[a].image is y, not x",
        ),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "B"}]}, "env[A] is missing"),
        ({"command": ["a", "b"]}, {"command": ["b", "a"]}, "command[0] is b, not a"),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1G"}}, "limits.memory is 1G"),
        ({"hostPID": True}, {}, "hostPID is absent, not True"),
        ({"expression": "x" * 200}, {"expression": "y"}, "…"),
    ],
)
def test_names_the_field_that_differs_from_what_was_written(
    owned: Any, live: Any, words: str
) -> None:
    assert words in problems(owned, live)[0]


def test_accepts_objects_of_a_list_in_any_order() -> None:
    first, two = {"key": "a"}, {"key": "b"}
    assert problems({"terms": [first, two]}, {"terms": [{**two, "operator": "In"}, first]}) == []
