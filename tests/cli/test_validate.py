"""divvy validate: stack files, and policies for them."""

import pytest

from lab.cluster.paths import REPOSITORY
from tests.divvy_command import invoke
from tests.plan.stacks import FOLDER


def test_names_what_a_policy_does_not_allow(project):
    page = (REPOSITORY / "docs/review-in-ci.md").read_text()
    (example,) = (block for block in page.split("```yaml\n") if block.startswith("memory:"))
    (project / "policy.yaml").write_text(example.partition("```")[0])
    result = invoke("validate", "-s", "a", "--policy", "policy.yaml")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[:3] == [
        f"error: {project}/stacks/Pulumi.a.yaml has 3 errors:",
        "  line 4: profiles.slice-4: promises memory that is none",
        "      the policy's `memory` is prevented or stronger",
    ]
    (project / "policy.yaml").write_text("maxContainersPerDevice: 4\n")
    assert invoke("validate", "-s", "a", "--policy", "policy.yaml").exit_code == 0
    (project / "policy.yaml").write_text("memory: hard\nmemory: hard\n")
    assert "line 2: memory: is defined twice" in (
        invoke("validate", "-s", "a", "--policy", "policy.yaml").stderr
    )


def test_warns_of_what_an_advisory_rule_does_not_allow(project):
    policy = "memory: prevented\nmaxContainersPerDevice: 2\nadvisory: [memory]\n"
    (project / "policy.yaml").write_text(policy)
    result = invoke("validate", "-s", "a", "--policy", "policy.yaml")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"warning: {project}/stacks/Pulumi.a.yaml: line 4: profiles.slice-4: promises memory that "
        "is none; the policy's `memory` is prevented or stronger",
        f"error: {project}/stacks/Pulumi.a.yaml has 1 error:",
        "  line 4: profiles.slice-4: lets 4 containers share a device",
        "      the policy's `maxContainersPerDevice` is 2",
    ]
    (project / "policy.yaml").write_text("memory: prevented\nadvisory: [memory]\n")
    result = invoke("validate", "-s", "a", "--policy", "policy.yaml")
    assert (result.exit_code, result.stderr.count("warning: ")) == (0, 1)


def test_validates_all_files_and_fails_if_one_is_wrong(project):
    result = invoke("validate", "-s", "a", "-s", "wrong")
    assert result.exit_code == 1
    assert "Pulumi.a.yaml: valid (1 pool, 2 profiles)" in result.stdout
    assert "Pulumi.wrong.yaml has 3 errors" in result.stderr
    assert invoke("validate", "--file", f"{project}/stacks/Pulumi.a.yaml").exit_code == 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("Pulumi.*.yaml")), ids=lambda path: path.stem)
def test_validates_the_stacks_of_this_project(path):
    result = invoke("validate", "--file", str(path))
    assert result.exit_code == 0, result.stderr
