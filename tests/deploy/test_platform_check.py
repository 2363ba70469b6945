"""An image that nodes cannot run is refused before a run; what is not known is said."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.deploy import platform_check
from divvy.deploy.platform_check import check_platforms
from divvy.errors import CommandError
from divvy.image.build import BuildFailed
from divvy.kube.errors import KubeError, Unreachable
from divvy.kube.objects import Page
from divvy.model import parse_cluster

DIGEST = f"r.example/agent@sha256:{'0' * 64}"
BUILT = {"registry": "r.example/gpus", "base": "r.example/base"}
GRACE = {
    "metadata": {"name": "gh-0", "labels": {}},
    "status": {"nodeInfo": {"architecture": "arm64"}},
}


class Nodes:
    """The API's nodes; ``asked`` are the selectors that were asked with."""

    def __init__(self) -> None:
        self.nodes = [GRACE]
        self.asked: list[str] = []
        self.refusal: KubeError | None = None
        self.unread: dict[str, str] = {}

    def pages(self, path: str, query: dict[str, str]) -> list[Page]:
        assert path == "/api/v1/nodes"
        self.asked.append(query["labelSelector"])
        if self.refusal:
            raise self.refusal
        return [Page(self.nodes, "", "", self.unread)]


@pytest.fixture
def api() -> Nodes:
    return Nodes()


def check(api: Nodes, image: dict[str, Any], **pool: Any) -> None:
    pools = {"all": {"profile": "p", **pool}}
    cluster = {"profiles": {"p": {}}, "pools": pools, "plugin": {"image": image}}
    client: Any = api
    check_platforms(client, parse_cluster(cluster))


def publish(monkeypatch: pytest.MonkeyPatch, *platforms: str) -> None:
    monkeypatch.setattr(platform_check, "published_platforms", lambda _: platforms)


def test_refuses_a_build_that_lacks_the_platform_of_a_node(api: Nodes) -> None:
    with pytest.raises(CommandError, match=r"nodes gh-0: .* add linux/arm64 to plugin\.image"):
        check(api, BUILT)
    assert api.asked == ["kubernetes.io/arch,kubernetes.io/arch notin (amd64)"]
    check(api, {**BUILT, "platforms": ["linux/amd64", "linux/arm64"]})
    assert api.asked[1:] == ["kubernetes.io/arch,kubernetes.io/arch notin (amd64, arm64)"]


def test_asks_the_registry_what_a_given_image_is_for(
    api: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, "linux/amd64")
    with pytest.raises(CommandError, match=r"for linux/arm64, too, in plugin\.image\.reference"):
        check(api, {"reference": DIGEST})
    publish(monkeypatch, "linux/amd64", "linux/arm64")
    check(api, {"reference": DIGEST})
    api.nodes = []
    publish(monkeypatch, "linux/amd64")
    with pytest.raises(CommandError, match="GB200: need an image for linux/arm64"):
        check(api, {"reference": DIGEST}, hardware={"model": "GB200", "gpus": 4, "count": 1})


def test_looks_for_nodes_that_a_given_image_is_not_for(
    api: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for arm64 alone suits the node that asked for it, and none of the others."""
    publish(monkeypatch, "linux/arm64")
    check(api, {"reference": DIGEST})
    assert api.asked[1:] == ["kubernetes.io/arch,kubernetes.io/arch notin (arm64)"]
    usual = {"metadata": {"name": "a-0"}, "status": {"nodeInfo": {"architecture": "amd64"}}}
    api.nodes = [GRACE, usual]
    with pytest.raises(CommandError, match=r"nodes a-0: need an image for linux/amd64"):
        check(api, {"reference": DIGEST})


def test_asks_no_registry_if_all_nodes_are_for_amd64(
    api: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.nodes = []
    monkeypatch.setattr(platform_check, "published_platforms", pytest.fail)
    check(api, {"reference": DIGEST})


def test_warns_if_a_registry_does_not_say_what_an_image_is_for(
    api: Nodes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: str) -> None:
        raise BuildFailed("skopeo inspect failed: no such host")

    monkeypatch.setattr(platform_check, "published_platforms", refuse)
    check(api, {"reference": DIGEST})
    assert capsys.readouterr().err == (
        "warning: it is not known whether the agent's image is for all nodes: "
        "skopeo inspect failed: no such host\n"
    )
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("refusal", "unread", "why"),
    [
        (Unreachable("no answer"), {}, "no answer"),
        (None, {"gh-1": "odd"}, "not read: gh-1"),
    ],
    ids=["none", "one of them"],
)
def test_warns_and_goes_on_if_the_nodes_cannot_be_read(
    api: Nodes,
    capsys: pytest.CaptureFixture[str],
    refusal: KubeError | None,
    unread: dict[str, str],
    why: str,
) -> None:
    api.nodes, api.refusal, api.unread = [], refusal, unread
    check(api, BUILT)
    assert capsys.readouterr().err == (
        f"warning: it is not known whether the agent's image is for all nodes: {why}\n"
    )


def test_leaves_a_stack_without_an_image_to_the_run(api: Nodes) -> None:
    client: Any = api
    check_platforms(
        client, parse_cluster({"profiles": {"p": {}}, "pools": {"a": {"profile": "p"}}})
    )
