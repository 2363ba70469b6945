"""The divvy command: what it loads, how it reports mistakes, and what it does without its parts."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from divvy.cli.main import COMMANDS
from divvy.version_info import install_command
from lab.cluster.paths import REPOSITORY
from tests.divvy_command import divvy_command, divvy_environment, invoke
from tests.plan.stacks import FOLDER


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
    result = invoke(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


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
    result = invoke(*arguments)
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
        invoke("lab", *words.split())
        if words != "up"
        else invoke("lab", "up", "--file", str(FOLDER / "Pulumi.lab.yaml"))
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
