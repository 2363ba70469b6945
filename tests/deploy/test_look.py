"""What a look at a release leaves unknown is never "nothing to do", nor "no claims"."""

from __future__ import annotations

import pytest

from divvy.cli.deploy import may_have_claims
from divvy.deploy.agent_image import AgentImage
from divvy.deploy.changes import Release
from divvy.deploy.deployment import Look
from divvy.deploy.live_objects import Preview
from divvy.deploy.records import Record
from divvy.model import Cluster, parse_cluster

DEPLOYED = Record("divvy", 1, "deployed", "divvy")


def cluster(profile: object) -> Cluster:
    return parse_cluster({"profiles": {"p": profile}, "pools": {"a": {"profile": "p"}}})


def look(preview: Preview, newest: Record = DEPLOYED) -> Look:
    return Look(Release("divvy", "n"), DEPLOYED, newest, None, AgentImage("i"), preview)


def test_is_current_only_where_every_object_could_be_compared() -> None:
    assert look(Preview(unchanged=3)).is_current
    assert not look(Preview(unchanged=2, unknown=("a webhook takes no dry run",))).is_current


@pytest.mark.parametrize("status", ["pending-upgrade", "failed"])
def test_is_not_current_while_a_later_record_is_not_deployed(status: str) -> None:
    later = Record("divvy", 2, status, "divvy")
    assert not look(Preview(unchanged=3), later).is_current


@pytest.mark.parametrize(
    ("deployed", "before", "expected"),
    [
        (None, None, False),
        (DEPLOYED, cluster({}), False),
        (DEPLOYED, cluster({"claims": {"shares": {}}}), True),
        # A newer Divvy, or a damaged configuration: what it had is not known.
        (DEPLOYED, None, True),
    ],
)
def test_takes_a_deployment_that_cannot_be_read_for_one_with_claims(
    deployed: Record | None, before: Cluster | None, expected: bool
) -> None:
    assert may_have_claims(deployed, before) is expected
