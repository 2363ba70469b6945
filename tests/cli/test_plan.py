"""divvy plan: by name, file and environment, in every format."""

import json

import pytest

from tests.divvy_command import invoke


def test_plans_a_stack_and_its_file_alike(project, monkeypatch):
    by_name = invoke("plan", "-s", "a", "-o", "json")
    by_file = invoke("plan", "--file", "stacks/Pulumi.a.yaml", "-o", "json")
    assert (by_name.exit_code, by_file.exit_code) == (0, 0)
    assert json.loads(by_name.stdout)["totals"] == {"nvidia.com/mig-1g.5gb": 56}
    assert by_name.stdout == by_file.stdout
    monkeypatch.chdir(project / "below")
    assert invoke("plan", "-s", "a", "-o", "json").stdout == by_name.stdout


def test_plans_the_stack_of_the_environment_if_nothing_is_named(project, monkeypatch):
    by_name = invoke("plan", "-s", "a")
    monkeypatch.setenv("PULUMI_STACK", "a")
    assert invoke("plan").stdout == by_name.stdout
    assert invoke("plan", "-s", "wrong").exit_code == 1
    assert "--live supports -o text" in invoke("diff", "--live", "-o", "html").stderr
    assert (
        invoke("validate").stdout == f"{project}/stacks/Pulumi.a.yaml: valid (1 pool, 2 profiles)\n"
    )
    monkeypatch.setenv("PULUMI_STACK", "wrong")
    assert invoke("plan", "--file", "stacks/Pulumi.a.yaml").stdout == by_name.stdout


@pytest.mark.parametrize(
    ("form", "start"), [("text", "a: 1 pool"), ("md", "## GPU plan"), ("html", "<!doctype html>")]
)
def test_writes_plans_in_every_format_to_stdout_and_files(project, form, start):
    result = invoke("plan", "-s", "a", "-o", form)
    assert result.exit_code == 0
    assert result.stdout.startswith(start)
    assert invoke("plan", "-s", "a", "-o", form, "--out", "out").exit_code == 0
    assert (project / "out").read_text().startswith(start)


def test_prints_errors_as_one_block_on_stderr_with_lines(project):
    result = invoke("plan", "-s", "wrong")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"error: {project}/stacks/Pulumi.wrong.yaml has 3 errors:",
        "  line 4: profiles.slice-4.timeSlicing.replicas: is 1",
        "      2 or more is expected",
        "  line 8: pools.notebooks.hardware.gpus: is missing",
        "      what it says: GPUs of each node",
        "  line 8: pools.notebooks.hardware.gpu: unknown key",
        "      did you mean gpus?",
    ]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("before", [(), ("-o", "json"), ("--out", "a")])
def test_takes_a_stacks_name_without_an_option(before):
    bare, named = invoke("plan", *before, "a"), invoke("plan", *before, "-s", "a")
    assert (bare.exit_code, bare.stdout) == (0, named.stdout)
    assert invoke("validate", "a").exit_code == 0
    assert "wrong" in invoke("validate", "a", "wrong").stderr
