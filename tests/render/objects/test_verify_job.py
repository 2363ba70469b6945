"""The Job that runs the suite in a cluster."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from conformance import runner
from divvy.model import parse_document
from divvy.render.objects.cluster import objects
from divvy.render.objects.verify_job import (
    stack_of_pod,
    verify_job,
)
from lab.cluster.paths import REPOSITORY
from lab.driver_clients.driver_root import eventually

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


def test_writes_no_variable_that_a_kubelet_puts_in() -> None:
    devices = [{"resource": "example.com/x", "paths": ["/dev/$(DIVVY_STACK)", "/dev/$$x"]}]
    document = parse_document({**VALUE, "devices": devices})
    rendered = verify_job(document, "$(HOME)", IMAGE, ["--seed=$(DIVVY_STACK)"])
    (container,) = rendered[-1]["spec"]["template"]["spec"]["containers"]
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


def test_ends_like_the_run(tmp_path: Path) -> None:
    variables = {"DIVVY_STACK": "prod", "DIVVY_STACK_FILE": "config: {}\n"}
    done = run_program(tmp_path, "echo 'error: no rights' >&2", variables, *ARGUMENTS)
    assert (done.returncode, done.stderr) == (3, "error: no rights\n")
    assert (tmp_path / "Pulumi.prod.yaml").read_text() == "config: {}\n"
    assert f"--file {tmp_path}/Pulumi.prod.yaml --out {tmp_path}/results --compare=last" in (
        (tmp_path / "called").read_text()
    )


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
    grace = job()["Job"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= 120


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
