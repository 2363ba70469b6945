"""Every command in README.md and docs/ is one that exists, with options that exist; some are run.

What only looks at files is run. What needs a cluster, or changes one, is parsed by the program it
calls: tests on the lab run those.
"""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divvy.cli.main import app
from tests.divvy_command import read_by_divvy

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Other people's programs, as they are called in these pages; and lines that are no command.
FOREIGN = (
    "skopeo",
    "kubectl",
    "pulumi",
    "helm",
    "promtool",
    "export",
    "cp",
    "curl",
    "git",
    "pip",
    "nvidia-smi",
    "pip",
    "ptxas",
    "sha256sum",
    "ssh-keygen",
)
# Looks at files alone, and quickly: run as written.
RUN = re.compile(r"divvy (plan|validate|schema|diff HEAD)\b(?!.*--live)")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands() -> list[tuple[str, str]]:
    """Return (page, command) of every line in a fenced block and every `divvy …` in a sentence."""
    pairs = []
    for page in PAGES:
        text = page.read_text()
        for block in re.findall(r"^ *```sh\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            pairs += [(page.name, re.sub(r"\s+#.*", "", line).strip()) for line in lines]
        rest = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        pairs += [
            (page.name, command) for command in re.findall(r"`((?:divvy|make) [a-z][^`]*)`", rest)
        ]
    named = [(page, command) for page, command in pairs if command and not command.startswith("#")]
    return list(dict.fromkeys(named))


COMMANDS = commands()


def divvy_words(command: str) -> list[str]:
    """Return the words after `divvy`; what pages leave open gets a value."""
    command = command.split(" > ")[0].split(" | ")[0].removeprefix(".venv/bin/")
    command = re.sub(r"\s*\[--[^]]*\]|\s*…$", "", command)
    return [word.replace("…", "x") for word in shlex.split(command)[1:]]


def test_documents_commands() -> None:
    assert len(COMMANDS) > 40


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[": ".join(pair) for pair in COMMANDS])
def test_documents_only_existing_commands(page: str, command: str) -> None:
    words = shlex.split(command, comments=True)
    program = words[0].rpartition("/")[2]
    if program == "make":
        assert words[1] in TARGETS, f"{page}: the Makefile has no target {words[1]}"
    elif program in ("python", "python3"):
        module = words[2].replace(".", "/")
        assert words[1] == "-m"
        ours = (ROOT / f"{module}.py").exists() or (ROOT / module).is_dir()
        assert ours or module in sys.stdlib_module_names
    elif program == "divvy":
        complaint = read_by_divvy(divvy_words(command))
        assert not complaint, f"{page}: {command}: {complaint}"
    else:
        assert program in FOREIGN, f"{page}: it is unknown whether `{command}` works"


@pytest.mark.parametrize(
    "command",
    sorted(
        {command for _, command in COMMANDS if RUN.match(command) and "-s lab" in f"{command} "}
        | {"divvy diff HEAD lab"}
    ),
)
def test_documents_commands_on_files_that_work(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, divvy_words(command))
    assert result.exit_code == 0, result.output
    assert result.output.strip()
