"""The Job that runs the suite in a cluster, and the same for Sonobuoy and hydrophone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance import runner
from divvy.lab.paths import REPOSITORY
from divvy.model import parse_document
from divvy.render.objects import objects
from divvy.render.verify_job import (
    hydrophone_configuration,
    sonobuoy_plugin,
    stack_of_pod,
    verify_job,
)
from tests.simulator.driver_root import eventually

VALUE: dict[str, Any] = {
    "kubeconfig": "/home/me/.kube/config",
    "context": "prod",
    "imagePullSecrets": ["pull"],
    "profiles": {"whole": {}, "sized": {"claims": {"shares": {}}}},
    "pools": {
        "p": {"select": {"a": "b"}, "profile": "whole"},
        "q": {"select": {"a": "c"}, "profile": "sized"},
    },
}
DOCUMENT = parse_document(VALUE)
IMAGE = f"registry.example/divvy/verify@sha256:{'0' * 64}"
ARGUMENTS = ["--compare=last", "--sample=5%"]
PROGRAM = Path(runner.__path__[0]) / "divvy-verify-job"


def job() -> dict[str, Any]:
    return {obj["kind"]: obj for obj in verify_job(DOCUMENT, "prod", IMAGE, ARGUMENTS)}


def test_gives_a_pod_the_stack_file_without_its_clusters_address() -> None:
    (container,) = job()["Job"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["args"]) == (IMAGE, ARGUMENTS)
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["DIVVY_STACK"] == "prod"
    cluster = yaml.safe_load(variables["DIVVY_STACK_FILE"])["config"]["divvy:cluster"]
    assert cluster == {k: v for k, v in VALUE.items() if k not in ("kubeconfig", "context")}
    assert "kubeconfig" not in stack_of_pod(DOCUMENT)


@pytest.mark.parametrize("render", [verify_job, sonobuoy_plugin])
def test_writes_no_variable_that_a_kubelet_puts_in(render: Callable[..., Any]) -> None:
    devices = [{"resource": "example.com/x", "paths": ["/dev/$(DIVVY_STACK)", "/dev/$$x"]}]
    document = parse_document({**VALUE, "devices": devices})
    rendered = render(document, "$(HOME)", IMAGE, ["--seed=$(DIVVY_STACK)"])
    container = (
        rendered["spec"]
        if isinstance(rendered, dict)
        else rendered[-1]["spec"]["template"]["spec"]["containers"][0]
    )
    texts = [*container["args"], *(variable["value"] for variable in container["env"])]
    # As a kubelet reads them: $$ is $.
    assert "$(" not in "".join(texts).replace("$$", "")
    assert [text.replace("$$", "$") for text in texts] == [
        "--seed=$(DIVVY_STACK)", "$(HOME)", stack_of_pod(document),
    ]  # fmt: skip


def test_gives_the_pod_no_privileges() -> None:
    spec = job()["Job"]["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


def test_reads_no_secret_but_image_pull_secrets() -> None:
    (rule,) = (rule for rule in job()["Role"]["rules"] if "secrets" in rule["resources"])
    assert (rule["resourceNames"], rule["verbs"]) == (["pull"], ["get"])
    without = parse_document({**VALUE, "imagePullSecrets": []})
    (role,) = (o for o in verify_job(without, "prod", IMAGE, ()) if o["kind"] == "Role")
    assert "secrets" not in {name for rule in role["rules"] for name in rule["resources"]}


def test_execs_and_reads_secrets_in_divvys_namespace_only() -> None:
    objects = job()
    everywhere = {(rule["apiGroups"][0], resource): rule["verbs"]
                  for rule in objects["ClusterRole"]["rules"] for resource in rule["resources"]
                  if "resourceNames" not in rule}  # fmt: skip
    assert ("", "pods/exec") not in everywhere
    assert everywhere["", "secrets"] == ["create"]
    assert objects["Role"]["metadata"]["namespace"] == "divvy-system"
    assert {resource for rule in objects["Role"]["rules"] for resource in rule["resources"]} == {
        "pods/exec", "secrets", "configmaps",
    }  # fmt: skip


def test_pages_say_what_pods_of_any_namespace_can_be_used_for() -> None:
    everywhere = [rule for rule in job()["ClusterRole"]["rules"] if "resourceNames" not in rule]
    (pods,) = (rule for rule in everywhere if rule["resources"] == ["pods"])
    assert "create" in pods["verbs"]
    for page in ("security", "conformance"):
        text = " ".join((REPOSITORY / f"docs/{page}.md").read_text().split())
        assert "as any ServiceAccount of the cluster and with any Secret" in text


def test_changes_no_config_map_but_its_own() -> None:
    rules = [
        (tuple(rule["verbs"]), rule.get("resourceNames"))
        for rule in job()["Role"]["rules"]
        if rule["resources"] == ["configmaps"]
    ]
    # The name of what is created is not asked for.
    assert rules == [(("create",), None), (("get", "patch"), ["divvy-conformance"])]


def test_reads_installed_objects_by_name() -> None:
    rules = [rule for rule in job()["ClusterRole"]["rules"] if "resourceNames" in rule]
    readable = {name for rule in rules for name in rule["resourceNames"]}
    assert readable == {obj["metadata"]["name"] for obj in objects(DOCUMENT, IMAGE)}
    resources = {resource for rule in rules for resource in rule["resources"]}
    assert {"daemonsets", "validatingadmissionpolicies", "deviceclasses", "services"} <= resources


def test_has_no_right_that_the_page_on_security_does_not_name() -> None:
    page = (REPOSITORY / "docs/security.md").read_text()
    (paragraph,) = re.findall(r"\*\*Whoever runs `divvy verify`\*\*.*?\n\n", page, re.DOTALL)
    rules = [rule for kind in ("ClusterRole", "Role") for rule in job()[kind]["rules"]]
    own = [rule for rule in rules if "resourceNames" not in rule]
    resources = {resource for rule in own for resource in rule["resources"]}
    assert {resource for resource in resources if resource not in paragraph.lower()} == set()


def test_reports_junit_from_a_plugin_whose_pod_never_fails() -> None:
    plugin = sonobuoy_plugin(DOCUMENT, "prod", IMAGE, ARGUMENTS)
    assert plugin["sonobuoy-config"]["result-format"] == "junit"
    assert plugin["sonobuoy-config"]["result-files"] == ["junit.xml"]
    assert plugin["spec"]["volumeMounts"] == [{"name": "results", "mountPath": "/tmp/results"}]
    command = [*plugin["spec"]["command"], *plugin["spec"]["args"]]
    program = command[2].replace("divvy-verify-job", "printf '%s\\n'")
    command_line = [*command[:2], program, *command[3:]]
    done = subprocess.run(command_line, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ARGUMENTS


def test_passes_the_end_of_a_plugins_pod_on_to_the_run(tmp_path: Path) -> None:
    script = tmp_path / "divvy-verify-job"
    script.write_text(
        f"""#!/bin/sh
trap 'sleep 0.5; touch {tmp_path}/cleaned; exit 130' TERM
touch {tmp_path}/begun
while true; do sleep 0.1; done
"""
    )
    script.chmod(0o755)
    spec = sonobuoy_plugin(DOCUMENT, "prod", IMAGE, ARGUMENTS)["spec"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    with subprocess.Popen([*spec["command"], *spec["args"]], env=environment) as run:
        assert eventually((tmp_path / "begun").exists, 20)
        run.terminate()
        assert run.wait(timeout=20) == 0
    assert (tmp_path / "cleaned").exists()


@pytest.mark.parametrize("begins", [True, False])
def test_ends_like_the_run_and_names_its_archive(tmp_path: Path, begins: bool) -> None:
    """Where no run began, what it said instead is the result."""
    results = tmp_path / "results"
    archive = f"touch {results}/conformance.tar.gz" if begins else "echo 'error: no rights' >&2"
    variables = {"DIVVY_STACK": "prod", "DIVVY_STACK_FILE": "config: {}\n"}
    done = run_program(tmp_path, archive, variables, *ARGUMENTS)
    assert done.returncode == 3
    named = Path((results / "done").read_text())
    assert named == results / ("conformance.tar.gz" if begins else "errors.txt")
    assert named.exists()
    assert ("error: no rights" in done.stderr) != begins
    assert "Ginkgo" not in done.stdout
    assert (tmp_path / "Pulumi.prod.yaml").read_text() == "config: {}\n"
    assert f"--file {tmp_path}/Pulumi.prod.yaml --out {results} --compare=last" in (
        (tmp_path / "called").read_text()
    )


def test_leaves_hydrophone_what_it_fetches(tmp_path: Path) -> None:
    arguments = [*ARGUMENTS, "--seed=a b", "--exclusive"]
    configuration = hydrophone_configuration(DOCUMENT, "our prod*", IMAGE, arguments)
    assert configuration["conformanceImage"] == IMAGE
    # As hydrophone checks them, and joins them.
    assert all(pair.startswith("--") and "=" in pair for pair in configuration["extraArgs"])
    variables = {"E2E_EXTRA_ARGS": " ".join(configuration["extraArgs"])}
    suite = f"touch {tmp_path}/results/junit.xml; echo 12 passed; echo a warning >&2"
    done = run_program(tmp_path, suite, variables)
    assert done.returncode == 3
    passed, ended = done.stdout.splitlines()
    assert passed == "12 passed"
    # Without it, hydrophone reads the log again and again.
    assert re.search(r"Ginkgo ran (00|[1-9]\d{0,2}) suite", ended)
    written = (tmp_path / "Pulumi.our prod*.yaml").read_text()
    assert written == stack_of_pod(DOCUMENT).rstrip()
    assert (tmp_path / "called").read_text().endswith(f"{' '.join(arguments)}\n")
    assert (tmp_path / "results/e2e.log").read_text() == "12 passed\na warning\n"
    assert (tmp_path / "results/junit_01.xml").exists()


def test_lets_a_run_clean_up_when_its_pod_is_deleted(tmp_path: Path) -> None:
    suite = f"""trap 'echo cleaning up; touch {tmp_path}/cleaned; exit 130' TERM
touch {tmp_path}/begun
while true; do sleep 0.1; done"""
    command, environment = program(tmp_path, suite, {"DIVVY_STACK": "prod"})
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert eventually((tmp_path / "begun").exists, 20)
        run.terminate()
        assert run.communicate(timeout=20)[0] == "cleaning up\n"
    assert run.returncode == 130
    assert (tmp_path / "cleaned").exists()
    assert (tmp_path / "results/e2e.log").read_text() == "cleaning up\n"
    assert (tmp_path / "results/done").exists()
    grace = job()["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= 120


def test_begins_no_run_in_a_pod_that_is_deleted_before(tmp_path: Path) -> None:
    command, environment = program(tmp_path, "exec sleep 60", {"DIVVY_STACK": "prod"})
    slow = tmp_path / "bin/mkfifo"
    slow.write_text(f'#!/bin/sh\ntouch {tmp_path}/laid-out\nsleep 1\nexec /usr/bin/mkfifo "$@"\n')
    slow.chmod(0o755)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert eventually((tmp_path / "laid-out").exists, 20)
        run.terminate()
        run.communicate(timeout=20)
    assert run.returncode == 143
    assert not (tmp_path / "called").exists()


def run_program(
    folder: Path, python: str, variables: dict[str, str], *arguments: str
) -> subprocess.CompletedProcess[str]:
    command, environment = program(folder, python, variables, *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def program(
    folder: Path, python: str, variables: dict[str, str], *arguments: str
) -> tuple[list[str], dict[str, str]]:
    """Return how the image's program runs in a folder, with these lines in place of the suite."""
    interpreter = folder / "bin/python3"
    interpreter.parent.mkdir()
    interpreter.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\n{python}\nexit 3\n')
    interpreter.chmod(0o755)
    script = folder / "program"
    script.write_text(PROGRAM.read_text().replace("/tmp/", f"{folder}/"))
    environment = {"PATH": f"{interpreter.parent}:/usr/bin:/bin", **variables}
    return ["/bin/sh", str(script), *arguments], environment
