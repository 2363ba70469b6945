"""divvy init against an API server of a test: what it writes, asks and refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner, Result

import divvy.cli.cluster_survey
import divvy.cli.init
from divvy.cli.main import app
from divvy.kube.kubeconfig import ClusterConfig
from divvy.model.nvidia import ImportResult
from divvy.stack.file import StackFile
from divvy.stack.sections import read_cluster
from divvy.version_info import version
from tests.cli.cluster_api import ClusterApi
from tests.divvy_command import divvy_environment
from tests.init.nodes import gfd, node, status

GPU = "nvidia.com/gpu"
SHARED = gfd("Tesla-T4-SHARED", 2, 15360, replicas=4)


def daemon_set(name: str, image: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": image}]
    return {
        "metadata": {"name": name, "namespace": "gpu-operator"},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


class Api(ClusterApi):
    """A cluster with NVIDIA's device plugin, and what its user may see of it."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = {
            "/api/v1/nodes": [
                node("gpu-1", {GPU: 8}, SHARED),
                node("gpu-2", {GPU: 8}, SHARED, kubelet="v1.31.4"),
                node("cpu-1", {}, machine="cpu"),
            ],
            "/apis/apps/v1/daemonsets": [
                daemon_set("nvidia-device-plugin", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"),
                daemon_set("driver", "nvcr.io/nvidia/driver:550.163.01-ubuntu22.04"),
            ],
            "/apis/apps/v1/deployments": 403,
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": [
                {"metadata": {"name": "queues.scheduling.run.ai"}},
                {"metadata": {"name": "clusterpolicies.nvidia.com"}},
            ],
        }


@pytest.fixture(autouse=True)
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Give the cluster, and an empty folder to work in."""
    served = Api()
    served.serve(monkeypatch, divvy.cli.cluster_survey)
    (tmp_path / "my gpus").mkdir()
    monkeypatch.chdir(tmp_path / "my gpus")
    return served


def init(*arguments: str, expect: int = 0, typed: str = "") -> Result:
    result = CliRunner().invoke(app, ["init", *arguments], input=typed)
    assert result.exit_code == expect, result.output
    return result


def cluster() -> dict[str, Any]:
    document = yaml.safe_load(Path("stacks/Pulumi.prod.yaml").read_text())
    return dict(document["config"]["divvy:cluster"])


def test_writes_a_project_that_the_next_commands_accept() -> None:
    output = init("prod", "--context", "prod-admin").stdout
    assert cluster() == {
        "context": "prod-admin",
        "profiles": {
            "slice-4": {
                "timeSlicing": {
                    "replicas": 4,
                    "renameByDefault": False,
                    "failRequestsGreaterThanOne": False,
                }
            }
        },
        "pools": {
            "gpu": {
                "select": {"node.kubernetes.io/instance-type": "gpu"},
                "hardware": {"model": "T4", "gpus": 2, "count": 2},
                "profile": "slice-4",
            }
        },
        "driver": {"version": "550.163.01", "root": "/run/nvidia/driver"},
    }
    assert yaml.safe_load(Path("Pulumi.yaml").read_text())["name"] == "my-gpus"
    assert len(Path("__main__.py").read_text().splitlines()) == 5
    assert "divvy verify" in Path(".github/workflows/divvy.yaml").read_text()
    for command in ("plan", "validate"):
        assert CliRunner().invoke(app, [command, "-s", "prod"]).exit_code == 0
    assert [line.split("  #")[0].strip() for line in output.splitlines()[-4:]] == [
        "divvy plan -s prod",
        "then say where the agent's image comes from: uncomment line 31 and line 32 or 33 of "
        "stacks/Pulumi.prod.yaml",
        "divvy preview -s prod",
        "divvy up -s prod",
    ]


def test_shows_where_to_write_the_agents_image() -> None:
    """What the comment says, without its marks, is a stack file that names an image."""
    output = init("prod").stdout
    (number,) = re.findall(r"uncomment line (\d+) and line", output)
    lines = Path("stacks/Pulumi.prod.yaml").read_text().splitlines()
    assert lines[int(number) - 1] == "    #plugin:"
    for way in ("registry", "reference"):
        wanted = [line.replace("    # ", "    ") for line in lines if f"image: {{{way}" in line]
        assert len(wanted) == 1
        text = "\n".join([*lines, "    plugin:", *wanted]).replace("DIGEST", "0" * 64)
        assert way in read_cluster(StackFile("x", text, "x")).model_dump()["plugin"]["image"]


def test_ends_with_the_next_commands_when_the_image_is_named() -> None:
    output = init("prod", "--image", f"registry.example/agent@sha256:{'0' * 64}").stdout
    assert [line.split("  #")[0].strip() for line in output.splitlines()[-4:]] == [
        "next:",
        "divvy plan -s prod",
        "divvy preview -s prod",
        "divvy up -s prod",
    ]
    assert "# plugin:" not in Path("stacks/Pulumi.prod.yaml").read_text()


def test_writes_a_gitignore_and_what_editors_check_with() -> None:
    init("prod")
    assert Path(".gitignore").read_text().split() == [".pulumi/", "out/", "__pycache__/"]
    stack = Path("stacks/Pulumi.prod.yaml").read_text()
    (schema,) = re.findall(r"\A# yaml-language-server: \$schema=(.+)\n", stack)
    document = json.loads((Path("stacks") / schema).read_text())
    jsonschema.Draft202012Validator(document).validate(yaml.safe_load(stack))
    assert document == json.loads(CliRunner().invoke(app, ["schema"]).stdout)


def test_keeps_a_gitignore_and_says_what_it_lacks() -> None:
    Path(".gitignore").write_text("/.venv/\nout/\n")
    assert "add to .gitignore: .pulumi/, __pycache__/\n" in init("prod").stdout
    assert Path(".gitignore").read_text() == "/.venv/\nout/\n"


def test_writes_only_the_stack_file() -> None:
    init("prod", "--stack-only")
    assert [path for path in Path().rglob("*") if path.is_file()] == [
        Path("stacks/Pulumi.prod.yaml")
    ]
    assert "$schema" not in Path("stacks/Pulumi.prod.yaml").read_text()


def test_reports_and_writes_what_else_works_on_the_gpus() -> None:
    output = init("prod").stdout
    text = " ".join(Path("stacks/Pulumi.prod.yaml").read_text().replace("# ", "").split())
    for sentence in (
        "At work: NVIDIA's device plugin (DaemonSet gpu-operator/nvidia-device-plugin): take it "
        "off a pool's nodes before `divvy up`",
        "At work: KAI Scheduler (CustomResourceDefinition queues.scheduling.run.ai)",
        "nvidia.com/gpu.deploy.gpu-feature-discovery=false nvidia.com/gpu.deploy.mig-manager=false",
        "Divvy needs Kubernetes 1.32 or later; there are kubelets v1.31.4.",
    ):
        assert sentence in output
        assert sentence in text
    assert "You may not list deployments" in output


@pytest.mark.parametrize(
    ("ci", "path"), [("github", ".github/workflows/divvy.yaml"), ("gitlab", ".gitlab-ci.yml")]
)
def test_says_where_ci_needs_a_wheel_of_this_machine(
    ci: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divvy.cli.init, "is_installed_from_a_path", lambda: True)
    output = init("prod", f"--ci={ci}").stdout
    lines = Path(path).read_text().splitlines()
    first, second = (number for number, line in enumerate(lines, 1) if "pip install" in line)
    assert (
        f"  CI installs divvy-gpu {version()} from the package index; until it is there, put the "
        f"wheel where CI finds it: lines {first} and {second} of {path}\n"
    ) in output
    assert "CI installs" not in init("second", f"--ci={ci}").stdout


def test_names_no_wheel_if_the_index_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divvy.cli.init, "is_installed_from_a_path", lambda: False)
    assert "CI installs" not in init("prod").stdout


def test_overwrites_nothing() -> None:
    Path("stacks").mkdir()
    Path("stacks/Pulumi.prod.yaml").write_text("mine")
    Path("__main__.py").write_text("mine")
    error = init("prod", expect=1).stderr
    assert error == (
        "error: stacks/Pulumi.prod.yaml, __main__.py exist already; nothing is overwritten. Choose "
        "another name\n"
    )
    error = init("other", expect=1).stderr
    assert "__main__.py exists already; nothing is overwritten. --stack-only leaves" in error
    assert sorted(map(str, Path().rglob("*.*"))) == ["__main__.py", "stacks/Pulumi.prod.yaml"]
    init("other", "--stack-only")
    assert Path("__main__.py").read_text() == "mine"
    assert Path("stacks/Pulumi.other.yaml").exists()


def test_refuses_to_overwrite_a_binary_file() -> None:
    Path("Pulumi.yaml").write_bytes(b"\xff")
    assert "Pulumi.yaml exists already" in init("prod", expect=1).output
    assert not Path("stacks").exists()


def test_writes_nothing_that_cannot_be_written_whole() -> None:
    Path(".github").write_text("in the way")
    assert init("prod", expect=1).output.startswith("error: cannot write .github/workflows/divvy")
    assert [path for path in Path().rglob("*") if path.is_file()] == [Path(".github")]
    Path(".github").unlink()
    init("prod")


@pytest.mark.parametrize("folder", ["2024", "null", "2026-11-22", "1e3", "on"])
def test_names_the_project_after_the_folder(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(folder).mkdir()
    monkeypatch.chdir(folder)
    init("prod")
    assert yaml.safe_load(Path("Pulumi.yaml").read_text())["name"] == folder


def test_shares_the_project_in_a_clone_of_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init("prod")
    clone = shutil.copytree(Path.cwd(), tmp_path / "clone")
    monkeypatch.chdir(clone)
    assert init("second").stdout.startswith("written: stacks/Pulumi.second.yaml\n")


def test_shares_the_project_with_a_second_cluster() -> None:
    init("prod")
    assert "written: stacks/Pulumi.other.yaml\n" in init("other").stdout


def test_takes_by_options_what_it_cannot_see(api: Api) -> None:
    api.lists["/api/v1/nodes"] = [node("a-1", {GPU: 8}), node("a-2", {GPU: 8})]
    error = init("prod", expect=1).stderr
    assert "GPU model of a-1, a-2 (they offer 8 × nvidia.com/gpu): --model 'a-1=MODEL'" in error
    error = init("prod", "--model", "T4", expect=1).stderr
    assert "GPUs in each of a-1, a-2 (they offer 8 × nvidia.com/gpu): --gpus 'a-1=8'" in error
    assert not list(Path().iterdir())
    init("prod", "--model", "T4", "--gpus", "a-*=2")
    assert cluster()["pools"]["gpu"]["hardware"] == {"model": "T4", "gpus": 2, "count": 2}


def test_asks_in_a_terminal_for_what_it_cannot_see(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.lists["/api/v1/nodes"] = [node("a-1", {GPU: 8}), node("a-2", {GPU: 8})]
    monkeypatch.setattr(divvy.cli.init, "_is_terminal", lambda: True)
    typed = "T5\nT4\n0\n\nregistry.example/gpus\nregistry.example/python\n"
    output = init("prod", typed=typed).stdout
    assert "unknown GPU model 'T5'; did you mean T4?" in output
    assert "'0' is not a number of GPUs from 1 to 64" in output
    assert cluster()["pools"]["gpu"]["hardware"]["gpus"] == 8
    image = {"registry": "registry.example/gpus", "base": "registry.example/python"}
    assert cluster()["plugin"] == {"image": image}


@pytest.mark.parametrize(
    ("others", "platforms"),
    [
        ((), ["linux/arm64"]),
        (("amd64", "amd64"), ["linux/amd64", "linux/arm64"]),
    ],
)
def test_has_the_image_built_for_processors_of_all_nodes_if_some_are_unusual(
    api: Api, others: tuple[str, ...], platforms: list[str]
) -> None:
    grace = node("gh-1", {GPU: 1}, gfd("NVIDIA-GH200-480GB", 1, 97871))
    nodes = [grace, *(node(f"cpu-{number}", {}) for number in range(len(others)))]
    for listed, architecture in zip(nodes, ("arm64", *others), strict=True):
        listed["status"].setdefault("nodeInfo", {})["architecture"] = architecture
    api.lists["/api/v1/nodes"] = nodes
    init("prod", "--registry", "r.example/gpus", "--base", "r.example/python")
    image = {"registry": "r.example/gpus", "base": "r.example/python", "platforms": platforms}
    assert cluster()["plugin"] == {"image": image}
    init("given", "--image", f"r.example/agent@sha256:{'0' * 64}")


def test_imports_profiles_from_files(tmp_path: Path) -> None:
    plugin = tmp_path / "notebooks.yaml"
    shared = {"failRequestsGreaterThanOne": True, "resources": [{"name": GPU, "replicas": 4}]}
    plugin.write_text(yaml.safe_dump({"version": "v1", "sharing": {"timeSlicing": shared}}))
    parted = tmp_path / "mig.yaml"
    layouts = {
        "all-1g.5gb": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    }
    parted.write_text(yaml.safe_dump({"version": "v1", "mig-configs": layouts}))
    init("prod", "--file", str(plugin), "--file", str(parted))
    value = cluster()
    assert value["pools"]["gpu"]["profile"] == "notebooks"
    assert value["profiles"]["notebooks"]["timeSlicing"]["failRequestsGreaterThanOne"] is True
    assert value["profiles"]["all-1g.5gb"] == {"mig": {"1g.5gb": 7}}


def test_makes_no_default_pool_beside_a_node_that_cannot_be_read(api: Api) -> None:
    """A default pool would be that node's, too, whatever it has."""
    for seen in api.lists["/api/v1/nodes"]:
        seen["metadata"]["labels"].pop("node.kubernetes.io/instance-type", None)
    api.lists["/api/v1/nodes"].pop()
    init("first")
    sound = yaml.safe_load(Path("stacks/Pulumi.first.yaml").read_text())["config"]
    assert [pool.get("select") for pool in sound["divvy:cluster"]["pools"].values()] == [None]
    api.lists["/api/v1/nodes"].append({"metadata": {"name": "odd", "labels": 5}})
    output = init("prod").output
    assert "Left out: odd: cannot be read, and may have GPUs." in " ".join(output.split())
    assert all(pool["select"] for pool in cluster()["pools"].values())


def test_names_what_of_files_is_not_in_the_stack_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no model can be given, what has no counterpart, what suits none of the pools."""
    files = tmp_path / "configs.yaml"
    shared = {"timeSlicing": {"resources": [{"name": GPU, "replicas": 4}]}, "mode": "fair"}
    layouts = {"odd": [{"devices": "all", "mig-enabled": True, "mig-devices": {"9g.34gb": 7}}]}
    data = {
        "config.yaml": yaml.safe_dump({"version": "v1", "mig-configs": layouts}),
        "four": yaml.safe_dump({"version": "v1", "sharing": shared}),
        "notes.txt": "ask Kim first",
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    files.write_text(yaml.safe_dump({**config_map, "data": data}))
    output = init("prod", "--file", str(files)).stdout
    assert "four" in cluster()["profiles"]
    assert "odd" not in cluster()["profiles"]
    assert "Not imported: odd.mig: fits no GPU model: none has 9g.34gb.\n" in output
    assert "Not imported: four: sharing.mode has no counterpart.\n" in output
    assert "data.notes.txt: is no configuration" in output

    read = ImportResult({"four": cluster()["profiles"]["four"], "nine": {"mig": {"9g.34gb": 7}}})
    monkeypatch.setattr(divvy.cli.init, "operator_profiles", lambda _: read)
    output = init("other", "--file", "any.yaml").stdout
    assert "Not imported: nine: not for the GPUs of these pools.\n" in output
    assert "four" not in output.partition("Not imported")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a/b",), "'a/b' is not a stack's name"),
        (("x", "--model", "T5"), "--model T5: unknown GPU model 'T5'; did you mean T4?"),
        (("x", "--gpus", "n=0"), "--gpus n=0: '0' is not a number of GPUs from 1 to 64"),
        (("x", "--gpus", "=4"), "--gpus =4: names no nodes before ="),
        (("x", "--registry", "r"), "--registry and --base go together"),
        (("x", "--image", "i", "--registry", "r"), "--image names an image that exists"),
        (("x", "--image", "i:latest"), "--image is 'i:latest'; an image by digest is expected"),
        (("x", "--file", "absent.yaml"), "cannot read absent.yaml: No such file"),
    ],
)
def test_refuses_a_wrong_option_and_writes_nothing(
    arguments: tuple[str, ...], message: str
) -> None:
    error = init(*arguments, expect=1).stderr
    assert message in error
    assert error.startswith("error: ")
    assert not list(Path().iterdir())


def test_refuses_a_cluster_without_gpus_unless_described(api: Api) -> None:
    api.lists["/api/v1/nodes"] = [node("cpu-1", {}), node("cpu-2", {})]
    error = init("prod", expect=1).stderr
    assert "no node shows a GPU" in error
    assert "(cpu-1, cpu-2)" in error
    init("prod", "--gpus", "cpu-1=2", "--model", "cpu-1=T4")
    assert cluster()["profiles"] == {"whole": {}}


def test_names_the_nodes_for_a_pattern_that_matches_none(api: Api) -> None:
    api.lists["/api/v1/nodes"] = [node("gpu-t4-1", {}), node("gpu-t4-2", {})]
    error = init("prod", "--gpus", "gpu-t4=2", "--model", "gpu-t4-*=T4", expect=1).stderr
    assert "--gpus 'gpu-t4=2' matches no node" in error
    assert "Nodes: gpu-t4-1, gpu-t4-2" in error
    assert "--model" not in error


def test_writes_the_context_by_which_it_read_the_cluster(api: Api) -> None:
    api.config = ClusterConfig("https://api.example", "current")
    init("prod")
    assert cluster()["context"] == "current"


@pytest.mark.parametrize("context", ["", "service account"])
def test_writes_no_context_of_a_pod(context: str, api: Api) -> None:
    api.config = ClusterConfig("https://api.example", context)
    init("prod")
    assert "context" not in cluster()


def test_reports_a_cluster_that_denies_access(api: Api) -> None:
    api.lists["/api/v1/nodes"] = 403
    assert "this user may not read /api/v1/nodes" in init("prod", expect=1).stderr


def test_chooses_the_ci_by_the_git_remote() -> None:
    subprocess.run(["git", "init", "--quiet"], check=True)
    remote = ["git", "remote", "add", "origin", "git@gitlab.example:team/gpus.git"]
    subprocess.run(remote, check=True)
    init("prod")
    assert "CI_MERGE_REQUEST_IID" in Path(".gitlab-ci.yml").read_text()
    assert not Path(".github").exists()


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_posts_the_diff_in_ci(ci: str, tmp_path: Path) -> None:
    """Run the snippet's own lines, over a branch that changes one stack and adds another."""

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example")
        command = ["git", *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    init("prod", f"--ci={ci}")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=first")
    base = git("rev-parse", "HEAD")
    stack = Path("stacks/Pulumi.prod.yaml")
    Path("stacks/Pulumi.new.yaml").write_text(stack.read_text())
    stack.write_text(stack.read_text().replace("replicas: 4", "replicas: 6"))
    if ci == "github":
        workflow = yaml.safe_load(Path(".github/workflows/divvy.yaml").read_text())
        steps = workflow["jobs"]["diff"]["steps"]
        (script,) = [step["run"] for step in steps if step.get("name") == "Diff"]
    else:
        workflow = yaml.safe_load(Path(".gitlab-ci.yml").read_text())
        script = workflow["divvy diff"]["script"][1]
    program = tmp_path / "divvy"
    program.write_text(
        "#!/bin/sh\nexec python -c 'from divvy.cli.main import main; main()' \"$@\"\n"
    )
    program.chmod(0o755)
    environment = divvy_environment({"BASE": base, "CI_MERGE_REQUEST_DIFF_BASE_SHA": base})
    environment["PATH"] = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-e", "-c", script], check=True, env=environment)
    posted = Path("diff.md").read_text()
    assert "16" in posted
    assert "24" in posted
    assert posted.count("## ") >= 1
    assert "new" in posted


LEFT = {
    **gfd("Tesla-T4-SHARED", 2, 15360, replicas=4),
    "nvidia.com/mig.strategy": "mixed",
}


def agents(name: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "agent"}
    workload = daemon_set(name, "registry.example/divvy/agent@sha256:0")
    workload["metadata"]["labels"] = labels
    return workload


def test_takes_what_a_removed_divvy_left_for_no_divvy(api: Api) -> None:
    """After `helm uninstall` the labels and the status stay: nobody serves these GPUs."""
    api.lists["/api/v1/nodes"] = [
        node("gpu-1", {}, LEFT, annotations=status(2)),
        node("gpu-2", {}, gfd("Tesla-T4", 2, 15360), annotations=status(2)),
    ]
    api.lists["/apis/apps/v1/daemonsets"] = []
    api.lists["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] = []
    output = init("prod").stdout
    assert "A Divvy that is gone left labels and a status on gpu-1, gpu-2" in output
    assert "`divvy up` and then `divvy destroy`" in output
    assert "No label tells" not in output
    (pool,) = cluster()["pools"].values()
    assert cluster()["profiles"] == {"whole": {}}
    assert pool["hardware"] == {"model": "T4", "gpus": 2, "count": 2}


def test_keeps_the_labels_of_feature_discovery_beside_what_a_divvy_left(api: Api) -> None:
    api.lists["/api/v1/nodes"] = [node("gpu-1", {GPU: 8}, SHARED, annotations=status(2))]
    api.lists["/apis/apps/v1/daemonsets"] = [
        daemon_set("gfd", "nvcr.io/nvidia/k8s-device-plugin/gpu-feature-discovery:v0.20.0")
    ]
    init("prod")
    (profile,) = cluster()["profiles"].values()
    assert profile["timeSlicing"]["replicas"] == 4
    # NVIDIA's default, since nothing of this is Divvy's.
    assert profile["timeSlicing"]["failRequestsGreaterThanOne"] is False


@pytest.mark.parametrize(
    "seen",
    [[agents("divvy-agent")], 403, [{"metadata": {"name": "odd", "labels": 5}}]],
    ids=["runs", "not allowed", "cannot be read"],
)
def test_takes_no_divvy_for_gone_that_runs_or_may_run(api: Api, seen: Any) -> None:
    api.lists["/api/v1/nodes"] = [node("gpu-1", {}, LEFT, annotations=status(2))]
    api.lists["/apis/apps/v1/daemonsets"] = seen
    output = init("prod", expect=1).output
    assert "is served by Divvy already" in output
    assert "that is gone" not in output
