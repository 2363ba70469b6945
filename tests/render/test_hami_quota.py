"""The objects of HAMi's quotas, as `divvy import hami-quota` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from divvy.cli.main import app

# The example of HAMi's page, with a limit of cores.
HARD = {
    "limits.nvidia.com/gpu": 2,
    "limits.nvidia.com/gpumem": 2000,
    "limits.nvidia.com/gpucores": 100,
}


def quota(namespace: str, **hard: Any) -> dict[str, Any]:
    metadata = {"name": "gpu-quota", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
    }


def run(path: Path, *items: dict[str, Any]) -> Any:
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return CliRunner().invoke(app, ["import", "hami-quota", str(path)])


def test_writes_a_queue_for_each_namespace(tmp_path: Path) -> None:
    result = run(
        tmp_path / "q.yaml",
        quota("team", **HARD),
        quota("none", **{"limits.nvidia.com/gpumem": "0"}),
    )
    assert result.exit_code == 0
    documents = list(yaml.safe_load_all(result.stdout))
    kinds = [f"{document['kind']} {document['metadata']['name']}" for document in documents[1:]]
    assert kinds == [
        "ResourceFlavor all-pools",
        *("ClusterQueue team", "LocalQueue default"),
        *("ClusterQueue none", "LocalQueue default"),
        "ResourceQuota gpu-quota",
    ]
    assert documents[1]["spec"] == {}
    limits = [
        resource["nominalQuota"]
        for document in documents[2:6:2]
        for resource in document["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    ]
    assert limits == ["2000Mi", "0"]
    assert [documents[at]["metadata"]["namespace"] for at in (3, 5)] == ["team", "none"]
    own = {"matchLabels": {"kubernetes.io/metadata.name": "team"}}
    assert documents[2]["spec"]["namespaceSelector"] == own


def test_reads_the_list_that_the_api_server_gives(tmp_path: Path) -> None:
    item = quota("team", **{"limits.nvidia.com/gpumem": 2000})
    del item["apiVersion"], item["kind"]
    path = tmp_path / "q.yaml"
    path.write_text(yaml.safe_dump({"kind": "ResourceQuotaList", "items": [item]}))
    result = CliRunner().invoke(app, ["import", "hami-quota", str(path)])
    assert result.exit_code == 0
    assert "nominalQuota: 2000Mi" in result.stdout


def test_names_the_wrong_item_of_a_list(tmp_path: Path) -> None:
    wrong = quota("team", **{"limits.nvidia.com/gpumem": "much"})
    result = run(tmp_path / "q.yaml", quota("team", pods="2"), wrong)
    assert result.exit_code == 1
    assert "document 1: items[1]: spec.hard" in result.stderr


def test_says_what_differs_in_the_file_and_on_the_terminal(tmp_path: Path) -> None:
    result = run(tmp_path / "q.yaml", quota("team", **HARD))
    differences = [line.removeprefix("differs: ") for line in result.stderr.splitlines()]
    assert len(differences) == 3
    assert [f"# differs: {line}" for line in differences] == result.stdout.splitlines()[:3]


def test_names_quotas_that_can_be_deleted(tmp_path: Path) -> None:
    result = run(tmp_path / "q.yaml", quota("team", **{"limits.nvidia.com/gpumem": 2000}))
    assert result.stderr == ""
    assert result.stdout.splitlines()[0] == (
        "# Delete these ResourceQuotas, which count nothing: team/gpu-quota"
    )


def test_needs_no_kueue_for_numbers(tmp_path: Path) -> None:
    result = run(tmp_path / "q.yaml", quota("team", **{"requests.nvidia.com/gpu": "2"}))
    (document,) = yaml.safe_load_all(result.stdout)
    assert document["kind"] == "ResourceQuota"


def test_refuses_files_without_a_quota_of_hami(tmp_path: Path) -> None:
    result = run(tmp_path / "q.yaml", quota("team", pods="2"))
    assert result.exit_code == 1
    assert "limits.nvidia.com/gpumem is expected" in result.stderr
