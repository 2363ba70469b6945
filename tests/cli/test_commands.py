"""plan, diff, validate, schema and import as scripts use them."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from divvy.cli.main import COMMANDS, app
from divvy.model import parse_cluster
from divvy.version_info import install_command
from lab.cluster.paths import REPOSITORY
from tests.divvy_command import divvy_command, divvy_environment
from tests.plan.stacks import FOLDER

STACK = """\
config:
  divvy:cluster:
    profiles:
      slice-4: {timeSlicing: {replicas: 4}}
      seven: {mig: {1g.5gb: 7}}
    pools:
      notebooks:
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 2}
        profile: slice-4
"""
CUT = STACK.replace("profile: slice-4", "profile: seven")
WRONG = STACK.replace("replicas: 4", "replicas: 1").replace("gpus: 4", "gpu: 4")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Give a project in git whose stack was committed sliced and is now cut."""
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    (stacks / "Pulumi.a.yaml").write_text(STACK)
    for command in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (stacks / "Pulumi.a.yaml").write_text(CUT)
    (stacks / "Pulumi.wrong.yaml").write_text(WRONG)
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, arguments)


def test_plans_a_stack_and_its_file_alike(project, monkeypatch):
    by_name = run("plan", "-s", "a", "-o", "json")
    by_file = run("plan", "--file", "stacks/Pulumi.a.yaml", "-o", "json")
    assert (by_name.exit_code, by_file.exit_code) == (0, 0)
    assert json.loads(by_name.stdout)["totals"] == {"nvidia.com/mig-1g.5gb": 56}
    assert by_name.stdout == by_file.stdout
    monkeypatch.chdir(project / "below")
    assert run("plan", "-s", "a", "-o", "json").stdout == by_name.stdout


def test_plans_the_stack_of_the_environment_if_nothing_is_named(project, monkeypatch):
    by_name = run("plan", "-s", "a")
    monkeypatch.setenv("PULUMI_STACK", "a")
    assert run("plan").stdout == by_name.stdout
    assert run("plan", "-s", "wrong").exit_code == 1
    assert "--live supports -o text" in run("diff", "--live", "-o", "html").stderr
    assert run("validate").stdout == f"{project}/stacks/Pulumi.a.yaml: valid (1 pool, 2 profiles)\n"
    monkeypatch.setenv("PULUMI_STACK", "wrong")
    assert run("plan", "--file", "stacks/Pulumi.a.yaml").stdout == by_name.stdout


@pytest.mark.parametrize(
    ("form", "start"), [("text", "a: 1 pool"), ("md", "## GPU plan"), ("html", "<!doctype html>")]
)
def test_writes_plans_in_every_format_to_stdout_and_files(project, form, start):
    result = run("plan", "-s", "a", "-o", form)
    assert result.exit_code == 0
    assert result.stdout.startswith(start)
    assert run("plan", "-s", "a", "-o", form, "--out", "out").exit_code == 0
    assert (project / "out").read_text().startswith(start)


def test_prints_errors_as_one_block_on_stderr_with_lines(project):
    result = run("plan", "-s", "wrong")
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
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan",), "name a stack with -s"),
        (("plan", "a", "wrong"), "Got unexpected extra argument"),
        (("plan", "nope"), "does not exist; known: a, wrong"),
        (("diff", "HEAD", "nope"), "does not exist; known: a, wrong"),
        (("plan", "-s", "nope"), "does not exist; known: a, wrong"),
        (("plan", "--file", "nope.yaml"), "cannot read nope.yaml"),
        (("plan", "--file", "Pulumi.yaml"), "which describes the cluster"),
        (("diff", "a"), "give two sides"),
        (("diff", "a", "nope"), "not a file, a stack, or a git revision"),
        (("diff", "HEAD", "HEAD"), "write HEAD:<path>"),
        (("diff", "HEAD:nope.yaml", "a"), "git has no HEAD:nope.yaml"),
        (("diff", "a", "wrong"), "has 3 errors"),
        (("diff", "--live"), "--live compares one stack file"),
        (("diff", "--live", "-s", "a", "-o", "html"), "--live supports -o text and json, not html"),
        (("validate",), "name a stack"),
        (("import", "mig-parted", "nope"), "cannot read nope"),
    ],
)
def test_reports_each_mistake_in_one_sentence_with_exit_code_1(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("before", [(), ("-o", "json"), ("--out", "a")])
def test_takes_a_stacks_name_without_an_option(before):
    bare, named = run("plan", *before, "a"), run("plan", *before, "-s", "a")
    assert (bare.exit_code, bare.stdout) == (0, named.stdout)
    assert run("validate", "a").exit_code == 0
    assert "wrong" in run("validate", "a", "wrong").stderr


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    "sides",
    [
        ("HEAD", "a"),
        ("HEAD", "stacks/Pulumi.a.yaml"),
        ("HEAD:stacks/Pulumi.a.yaml", "a"),
        ("HEAD", "-s", "a"),
    ],
)
def test_diffs_against_a_revision(sides):
    result = run("diff", *sides, "-o", "json")
    assert result.exit_code == 2
    totals = json.loads(result.stdout)["totals"]
    assert totals == {
        "nvidia.com/gpu.shared": {"before": 32, "after": 0},
        "nvidia.com/mig-1g.5gb": {"before": 0, "after": 56},
    }


def test_says_how_to_diff_a_stack_file_that_the_revision_lacks(project: Path) -> None:
    new = "stacks/Pulumi.new.yaml"
    (project / new).write_text((project / "stacks/Pulumi.a.yaml").read_text())
    result = run("diff", "HEAD", new)
    assert result.exit_code == 1
    assert "a new stack file has no older side" in result.stderr
    assert run(*result.stderr.partition("divvy ")[2].split()[:3]).exit_code == 0


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("sides", [("a", "a"), ("HEAD", "HEAD", "-s", "a")])
def test_exits_0_for_a_diff_without_a_change(sides):
    result = run("diff", *sides)
    assert (result.exit_code, "no change" in result.stdout) == (0, True)


@pytest.mark.usefixtures("project")
def test_writes_diffs_in_every_format():
    for form, start in (("text", "a@HEAD"), ("md", "## GPU topology"), ("html", "<!doctype")):
        result = run("diff", "HEAD", "a", "-o", form)
        assert result.exit_code == 2
        assert result.stdout.startswith(start)


def test_names_what_a_policy_does_not_allow(project):
    page = (REPOSITORY / "docs/review-in-ci.md").read_text()
    (example,) = (block for block in page.split("```yaml\n") if block.startswith("memory:"))
    (project / "policy.yaml").write_text(example.partition("```")[0])
    result = run("validate", "-s", "a", "--policy", "policy.yaml")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[:3] == [
        f"error: {project}/stacks/Pulumi.a.yaml has 3 errors:",
        "  line 4: profiles.slice-4: promises memory that is none",
        "      the policy's `memory` is prevented or stronger",
    ]
    (project / "policy.yaml").write_text("maxContainersPerDevice: 4\n")
    assert run("validate", "-s", "a", "--policy", "policy.yaml").exit_code == 0
    (project / "policy.yaml").write_text("memory: hard\nmemory: hard\n")
    assert "line 2: memory: is defined twice" in (
        run("validate", "-s", "a", "--policy", "policy.yaml").stderr
    )


def test_warns_of_what_an_advisory_rule_does_not_allow(project):
    policy = "memory: prevented\nmaxContainersPerDevice: 2\nadvisory: [memory]\n"
    (project / "policy.yaml").write_text(policy)
    result = run("validate", "-s", "a", "--policy", "policy.yaml")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"warning: {project}/stacks/Pulumi.a.yaml: line 4: profiles.slice-4: promises memory that "
        "is none; the policy's `memory` is prevented or stronger",
        f"error: {project}/stacks/Pulumi.a.yaml has 1 error:",
        "  line 4: profiles.slice-4: lets 4 containers share a device",
        "      the policy's `maxContainersPerDevice` is 2",
    ]
    (project / "policy.yaml").write_text("memory: prevented\nadvisory: [memory]\n")
    result = run("validate", "-s", "a", "--policy", "policy.yaml")
    assert (result.exit_code, result.stderr.count("warning: ")) == (0, 1)


def test_validates_all_files_and_fails_if_one_is_wrong(project):
    result = run("validate", "-s", "a", "-s", "wrong")
    assert result.exit_code == 1
    assert "Pulumi.a.yaml: valid (1 pool, 2 profiles)" in result.stdout
    assert "Pulumi.wrong.yaml has 3 errors" in result.stderr
    assert run("validate", "--file", f"{project}/stacks/Pulumi.a.yaml").exit_code == 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("Pulumi.*.yaml")), ids=lambda path: path.stem)
def test_validates_the_stacks_of_this_project(path):
    result = run("validate", "--file", str(path))
    assert result.exit_code == 0, result.stderr


def test_describes_the_examples_by_its_schema():
    result = run("schema")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["$schema"].endswith("2020-12/schema")
    validator = jsonschema.Draft202012Validator(document)
    for path in FOLDER.glob("Pulumi.*.yaml"):
        validator.validate(yaml.safe_load(path.read_text()))
    # What the section of the lab holds is for divvy-lab to check.
    validator.validate({"config": {"divvy:lab": {"nodes": [{"name": "a", "models": "T4"}]}}})
    wrong = {"config": {"divvy:cluster": {"profiles": {}, "pools": {}, "node": {}}}}
    assert "additionalProperties" in [error.validator for error in validator.iter_errors(wrong)]
    assert not validator.is_valid({"config": {}})


def test_schema_refuses_keys_that_nothing_reads():
    validator = jsonschema.Draft202012Validator(json.loads(run("schema").stdout))
    right = {"config": {"divvy:lab": {"nodes": [{"name": "a"}]}, "aws:region": "x", "owner": "me"}}
    validator.validate(right | {"encryptionsalt": "v1"})
    for wrong in (
        right | {"pools": {}},
        {"config": right["config"] | {"divvy:clutser": {}}},
        {"config": right["config"] | {"pools": {}}},
    ):
        assert not validator.is_valid(wrong), wrong


CONFIG_MAP = """\
kind: ConfigMap
data:
  slice-4: |
    version: v1
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
  nothing: |
    sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}
"""


def test_imports_a_whole_configmap_and_lists_what_it_cannot_express(tmp_path):
    file = tmp_path / "map.yaml"
    file.write_text(CONFIG_MAP)
    result = run("import", "nvidia-config", str(file))
    assert result.exit_code == 0
    profiles = yaml.safe_load(result.stdout)["config"]["divvy:cluster"]["profiles"]
    assert profiles == {
        "slice-4": {
            "timeSlicing": {
                "replicas": 4,
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
            }
        }
    }
    assert "not imported: nothing: sharing.timeSlicing" in result.stderr
    assert result.stdout.startswith("# not imported: nothing: sharing.timeSlicing")
    stack = yaml.safe_load(result.stdout)
    stack["config"]["divvy:cluster"]["pools"] = {"p": {"profile": "slice-4"}}
    parse_cluster(stack["config"]["divvy:cluster"])


def test_imports_mig_parted_files(tmp_path):
    file = tmp_path / "mig.yaml"
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    document = {"version": "v1", "mig-configs": {"all-1g.5gb": [entry]}}
    file.write_text(yaml.safe_dump(document))
    result = run("import", "mig-parted", str(file))
    assert "all-1g.5gb:\n        mig: {1g.5gb: 7}" in result.stdout
    file.write_text("version: v2\n")
    result = run("import", "mig-parted", str(file))
    assert result.exit_code == 1
    assert "version: is 'v2'; v1 is expected" in result.stderr


HEAVY = {"pydantic", "httpx2", "yaml", "jinja2", "pulumi", "grpc", "rich.console", "ruamel.yaml"}


@pytest.mark.parametrize("arguments", [["--version"], ["--nonsense"]])
def test_loads_only_the_command_that_is_called(arguments: list[str]) -> None:
    code = (
        "import sys; from divvy.cli.main import main\n"
        f"sys.argv[1:] = {arguments}\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    loaded = completed.stdout.split()
    assert "divvy.cli.main" in loaded
    assert not (HEAVY | {f"divvy.cli.{module}" for module, _ in COMMANDS.values()}) & set(loaded)


def test_lists_every_command_and_exit_code_in_the_help() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name, (_, summary) in COMMANDS.items():
        assert re.search(rf"\b{name}\b", result.stdout)
        assert summary.split()[0] in result.stdout
    assert (
        "0: done; `preview`, `diff`: no difference; `fit`: all pods fit; "
        "`status`: nothing is wrong 1: an error" in " ".join(result.stdout.split())
    )
    assert run().stdout == result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_has_every_command(name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["plan", "--fil", "x"],
            "No such option: --fil (Possible options: --file); see `divvy plan --help`",
        ),
        (["plna"], "No such command 'plna'. Did you mean 'plan'?; see `divvy --help`"),
        (["lab"], "Missing command; see `divvy lab --help`"),
        (["preview"], "Missing option '--stack'"),
        (["diff", "-o", "pdf"], "Invalid value for '-o' / '--output'"),
    ],
)
def test_exits_1_on_a_usage_error_not_with_the_code_of_changes(
    arguments: list[str], words: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: {words}")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("package", "run", "message"),
    [
        ("typer", "main", f"divvy's commands need the package typer: {install_command('cli')}"),
        ("httpx2", "main", f"this needs the package httpx2: {install_command('cli')}"),
        ("pulumi", "pulumi_plugin",
         f"Pulumi's plugin of Divvy needs the package pulumi: {install_command('pulumi')}"),
    ],
)  # fmt: skip
def test_names_a_package_that_is_not_installed(
    package: str, run: str, message: str, project: Path
) -> None:
    # None in sys.modules is a package that cannot be found.
    program = f"import sys; sys.modules['{package}'] = None\n"
    program += f"from divvy.cli.command import {run}; {run}()"
    ended = subprocess.run(
        [sys.executable, "-c", program, "preview", "-s", "a"],
        cwd=project,
        env=divvy_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (1, f"error: {message}\n")


def test_reports_a_deleted_working_folder_in_one_sentence(tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *divvy_command("plan", "-s", "a")],
        cwd=tmp_path,
        env=divvy_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: the current directory has been removed; change to another\n"


@pytest.mark.parametrize("command", [("validate",), ("plan",), ("plan", "-o", "json")])
def test_reports_a_full_disk_behind_the_output_in_one_sentence(command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            divvy_command(*command, "--file", str(REPOSITORY / "stacks/Pulumi.lab.yaml")),
            env=divvy_environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", ["up", "exec gpu-t4 -- true", "restart gpu-t4", "kill gpu-t4"])
def test_says_that_lab_needs_the_sources(tmp_path, monkeypatch, words):
    """As in an installed package, also beside a lab that a checkout has up."""
    (tmp_path / "description.json").write_text("{}")
    monkeypatch.setattr("lab.cluster.lifecycle._DESCRIPTION", tmp_path / "description.json")
    monkeypatch.setattr("lab.cluster.lifecycle.LAB", tmp_path)
    ended = (
        run("lab", *words.split())
        if words != "up"
        else run("lab", "up", "--file", str(FOLDER / "Pulumi.lab.yaml"))
    )
    assert ended.exit_code == 1
    assert "the lab is built from Divvy's sources" in ended.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-"])
def test_runs_with_streams_closed_by_the_caller(project: Path, closed: str) -> None:
    """A file that is opened next would become the closed stream."""
    program = "from divvy.cli.command import main; main()"
    divvy = shlex.join([sys.executable, "-c", program, "schema"])
    done = subprocess.run(
        ["sh", "-c", f"{divvy} --out schema.json {closed} && {divvy} {closed}"],
        cwd=project, env=divvy_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((project / "schema.json").read_text())["$schema"]
