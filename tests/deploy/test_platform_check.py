"""An image that nodes cannot run is refused before a run; what is not known is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.deploy import platform_check
from divvy.deploy.platform_check import check_platforms
from divvy.errors import CommandError
from divvy.image.build import BuildFailed
from divvy.kube.errors import Unreachable
from divvy.kube.objects import Page

DIGEST = f"r.example/agent@sha256:{'0' * 64}"
BUILT = {"registry": "r.example/gpus", "base": "r.example/base"}
GRACE = {
    "metadata": {"name": "gh-0", "labels": {}},
    "status": {"nodeInfo": {"architecture": "arm64"}},
}


class Nodes:
    """The API's nodes; ``asked`` are the selectors that were asked with."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.asked: list[str] = []

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None: ...

    def pages(self, path: str, query: dict[str, str]) -> list[Page]:
        assert path == "/api/v1/nodes"
        self.asked.append(query["labelSelector"])
        return [Page(self.nodes, "", "")]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    nodes = Nodes([GRACE])
    monkeypatch.setattr(platform_check, "cluster_config", lambda *_: None)
    monkeypatch.setattr(platform_check, "Client", lambda *_, **__: nodes)
    return nodes


def check(folder: Path, image: dict[str, Any], **pool: Any) -> None:
    pools = {"all": {"profile": "p", **pool}}
    cluster = {"profiles": {"p": {}}, "pools": pools, "plugin": {"image": image}}
    path = folder / "Pulumi.any.yaml"
    path.write_text(yaml.safe_dump({"config": {"divvy:cluster": cluster}}))
    check_platforms(path, cluster)


def publish(monkeypatch: pytest.MonkeyPatch, *platforms: str) -> None:
    monkeypatch.setattr(platform_check, "published_platforms", lambda _: platforms)


def test_refuses_a_build_that_lacks_the_platform_of_a_node(api: Nodes, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nodes gh-0: .* add linux/arm64 to plugin\.image"):
        check(tmp_path, BUILT)
    assert api.asked == ["kubernetes.io/arch,kubernetes.io/arch notin (amd64)"]
    check(tmp_path, {**BUILT, "platforms": ["linux/amd64", "linux/arm64"]})
    assert api.asked[1:] == ["kubernetes.io/arch,kubernetes.io/arch notin (amd64, arm64)"]


def test_asks_the_registry_what_a_given_image_is_for(
    api: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, "linux/amd64")
    with pytest.raises(CommandError, match=r"for linux/arm64, too, in plugin\.image\.reference"):
        check(tmp_path, {"reference": DIGEST})
    publish(monkeypatch, "linux/amd64", "linux/arm64")
    check(tmp_path, {"reference": DIGEST})
    api.nodes = []
    publish(monkeypatch, "linux/amd64")
    with pytest.raises(CommandError, match="GB200: need an image for linux/arm64"):
        check(tmp_path, {"reference": DIGEST}, hardware={"model": "GB200", "gpus": 4, "count": 1})


def test_looks_for_nodes_that_a_given_image_is_not_for(
    api: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for arm64 alone suits the node that asked for it, and none of the others."""
    publish(monkeypatch, "linux/arm64")
    check(tmp_path, {"reference": DIGEST})
    assert api.asked[1:] == ["kubernetes.io/arch,kubernetes.io/arch notin (arm64)"]
    usual = {"metadata": {"name": "a-0"}, "status": {"nodeInfo": {"architecture": "amd64"}}}
    api.nodes = [GRACE, usual]
    with pytest.raises(CommandError, match=r"nodes a-0: need an image for linux/amd64"):
        check(tmp_path, {"reference": DIGEST})


def test_asks_no_registry_if_all_nodes_are_for_amd64(
    api: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.nodes = []
    monkeypatch.setattr(platform_check, "published_platforms", pytest.fail)
    check(tmp_path, {"reference": DIGEST})


def test_warns_if_a_registry_does_not_say_what_an_image_is_for(
    api: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: str) -> None:
        raise BuildFailed("skopeo inspect failed: no such host")

    monkeypatch.setattr(platform_check, "published_platforms", refuse)
    check(tmp_path, {"reference": DIGEST})
    assert capsys.readouterr().err == (
        "warning: it is not known whether the agent's image is for all nodes: "
        "skopeo inspect failed: no such host\n"
    )
    assert len(api.asked) == 1


def test_warns_and_goes_on_if_the_nodes_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise Unreachable("no answer")

    monkeypatch.setattr(platform_check, "cluster_config", refuse)
    check(tmp_path, BUILT)
    assert capsys.readouterr().err == (
        "warning: it is not known whether the agent's image is for all nodes: no answer\n"
    )


@pytest.mark.parametrize("cluster", [{"plugin": 5}, {"plugin": {"image": []}}, {}])
def test_leaves_a_wrong_file_to_the_run(api: Nodes, tmp_path: Path, cluster: Any) -> None:
    api.nodes = []
    path = tmp_path / "Pulumi.any.yaml"
    path.write_text("config: {}\n")
    check_platforms(path, cluster)


def test_swallows_no_error_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: object) -> None:
        raise TypeError("a fault of this program")

    monkeypatch.setattr(platform_check, "_other_nodes", wrong)
    with pytest.raises(TypeError, match="a fault of this program"):
        check(tmp_path, BUILT)
