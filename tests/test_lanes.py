"""Parts of the suite that run at once: all of them count, and all are read."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.cluster.paths import REPOSITORY
from tests.continued import VARIABLE

SHELL = ("sh", "-c")


def run(*scripts: str, at_once: int | None = None) -> subprocess.CompletedProcess[str]:
    words = command(*scripts, at_once=at_once)
    return subprocess.run(words, capture_output=True, text=True, check=False)


def command(*scripts: str, at_once: int | None = None) -> list[str]:
    commands = [[*SHELL, script] for script in scripts]
    program = f"from tests.lanes import run; print(run({commands!r}, {at_once!r}))"
    return [sys.executable, "-c", program]


def test_runs_lanes_at_once_and_prints_them_in_order(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # One after the other they would wait for each other forever.
    done = run(f"cat {pipe}; echo first", f"echo begun > {pipe}; echo second")
    assert (done.returncode, done.stdout) == (0, "begun\nfirst\nsecond\n[0, 0]\n")


def test_starts_the_next_lane_when_another_ends(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Both ends of the pipe at once: the third lane starts when the first one has ended.
    scripts = (f"cat {pipe}", f"test ! -e {tmp_path}/third && echo go > {pipe}; sleep 0.3")
    done = run(*scripts, f"touch {tmp_path}/third; echo third", at_once=2)
    assert done.stdout == "go\nthird\n[0, 0, 0]\n"


def test_gives_the_first_lane_a_lower_priority() -> None:
    first, second = run("nice", "nice").stdout.split()[:2]
    assert int(first) == int(second) + 5


def test_returns_the_exit_code_of_each_lane() -> None:
    assert run("echo one failed; exit 1", "true", "exit 5").stdout == "one failed\n[1, 0, 5]\n"


LANES = """
import pathlib
import time
import pytest

@pytest.mark.shared_lab
def test_needs_a_quiet_machine():
    run = pathlib.Path("runs").stat().st_size
    with open("runs", "a") as runs:
        runs.write("x")
    assert run > 0

@pytest.mark.shared_lab
def test_passes(): pass

def test_of_the_other_lane():
    assert not pathlib.Path("broken").exists()
    if pathlib.Path("hanging").exists():
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def outside_a_run_to_be_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes of these tests are their own: what passes in them belongs to no commit."""
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.fixture
def lanes(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    (tmp_path / "test_lanes.py").write_text(LANES)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = shared_lab\n")
    (tmp_path / "runs").touch()

    def run_both(*expressions: str) -> tuple[int, list[str]]:
        arguments = expressions or ("-m", "shared_lab", "-m", "not shared_lab")
        done = subprocess.run(
            [sys.executable, "-m", "tests.lanes", *arguments, "--timeout", "2"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if re.match("== [0-9pf]|=.* in ", line)]
        return done.returncode, [re.sub(" in .*|=+ (?=[0-9].* in )", "", line) for line in lines]

    return run_both


def test_reruns_a_failure_alone_and_keeps_it_in_the_output(
    lanes: Callable[..., tuple[int, list[str]]],
) -> None:
    assert lanes() == (
        0,
        [
            "1 failed, 1 passed, 1 deselected",
            "1 passed, 2 deselected",
            "== 1 failed beside the other lanes; once more, alone",
            "1 passed",
            "== passed alone: test_lanes.py::test_needs_a_quiet_machine",
        ],
    )


def test_fails_when_a_failure_in_either_lane_stays(
    lanes: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "broken").touch()
    code, lines = lanes()
    assert code == 1
    assert lines[-2:] == [
        "== passed alone: test_lanes.py::test_needs_a_quiet_machine",
        "== failed: test_lanes.py::test_of_the_other_lane",
    ]


def test_fails_a_test_that_hangs(
    lanes: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "hanging").touch()
    code, lines = lanes()
    assert code == 1
    assert lines[-1] == "== failed: test_lanes.py::test_of_the_other_lane"


def test_reruns_nothing_that_did_not_run_to_its_end(
    lanes: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    code, lines = lanes()
    assert code == 2
    assert not [line for line in lines if line.startswith("==")]


def test_passes_an_interrupt_to_each_running_lane_once_and_starts_no_other(tmp_path: Path) -> None:
    script = (
        f"trap 'echo x >> {tmp_path}/NAME; sleep 0.5; echo clean; exit 2' INT;"
        f" touch {tmp_path}/ready-NAME; while true; do sleep 0.1; done"
    )
    scripts = [script.replace("NAME", name) for name in ("a", "b", "c")]
    words = command(*scripts, at_once=2)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as both:
        while not all((tmp_path / f"ready-{name}").exists() for name in ("a", "b")):
            time.sleep(0.05)
        both.send_signal(signal.SIGINT)
        output, _ = both.communicate(timeout=20)
    assert output == "clean\nclean\n[2, 2, 2]\n"
    assert not (tmp_path / "ready-c").exists()
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["x\n", "x\n"]


def test_takes_an_interrupt_that_no_lane_has_heard_for_its_own(tmp_path: Path) -> None:
    """They have just ended, and nothing may run after them: what began it has been interrupted."""
    script = f"touch {tmp_path}/ended"
    with subprocess.Popen(
        [sys.executable, "-c", _SLOW_LOOK + command(script, "exit 1")[-1]],
        stdout=subprocess.PIPE,
        text=True,
    ) as both:
        while not (tmp_path / "ended").exists():
            time.sleep(0.05)
        time.sleep(0.3)
        both.send_signal(signal.SIGINT)
        output, _ = both.communicate(timeout=20)
    assert output == "[2, 2]\n"


_SLOW_LOOK = "from tests import lanes; lanes._PERIOD = 4; "


def test_can_be_interrupted_between_two_runs() -> None:
    begun, raised = "run([['true']])", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    program = f"from tests.lanes import run; {begun}; {raised}; print('goes on')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "KeyboardInterrupt" in done.stderr
    assert done.stdout == ""


def test_ends_its_lanes_when_its_output_is_closed(tmp_path: Path) -> None:
    """As behind `make test | head`: they would go on, and nothing would say so."""
    script = f"trap 'touch {tmp_path}/clean; exit 2' INT; echo x; while true; do sleep 0.1; done"
    with subprocess.Popen(command(script), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as lane:
        assert lane.stdout
        lane.stdout.close()
        assert lane.stderr
        assert b"BrokenPipeError" in lane.stderr.read()
    assert (tmp_path / "clean").exists()


ON_SECOND_LAB = """
import os
from dataclasses import astuple
from pathlib import Path
import pytest
from lab.cluster.paths import REPOSITORY
from lab.cluster.section import read_lab
from divvy.stack.file import read_path

@pytest.mark.shared_lab
def test_describes():
    lab = read_lab(read_path(Path(os.environ["DIVVY_LAB_STACK"])))
    first = read_lab(read_path(REPOSITORY / 'stacks/Pulumi.lab.yaml'))
    assert os.environ["DIVVY_LAB"] == "second"
    assert not lab.network.overlaps(first.network)
    assert not {*astuple(lab.ports)} & {*astuple(first.ports)}
    assert lab.nodes == first.nodes

@pytest.mark.shared_lab
def test_runs_again_on_the_same_lab():
    again = Path("again").exists()
    Path("again").touch()
    assert again and os.environ["DIVVY_LAB"] == "second"

def test_has_the_first_lab():
    assert os.environ.get("DIVVY_LAB") != "second"
"""


INTERRUPTED = """
import pathlib
import pytest

def runs(name):
    ran = name in pathlib.Path("runs").read_text()
    with open("runs", "a") as file:
        file.write(name + ", ")
    return ran

@pytest.mark.shared_lab
def test_is_interrupted_in_its_second_run():
    if runs("first"):
        raise KeyboardInterrupt
    raise AssertionError

def test_fails():
    runs("second")
    raise AssertionError
"""


def test_gives_a_lane_a_second_lab(
    lanes: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "test_lanes.py").write_text(ON_SECOND_LAB)
    code, lines = lanes("-m", "not shared_lab", "--second-lab", "shared_lab")
    assert code == 0
    assert lines[-1] == "== passed alone: test_lanes.py::test_runs_again_on_the_same_lab"


def test_refuses_the_second_labs_name_for_the_first(
    lanes: Callable[..., tuple[int, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIVVY_LAB", "second")
    assert lanes("-m", "not shared_lab", "--second-lab", "shared_lab") == (2, [])


@pytest.mark.parametrize("at_once", ["0", "-1"])
def test_refuses_to_run_fewer_lanes_than_one(
    lanes: Callable[..., tuple[int, list[str]]], at_once: str
) -> None:
    assert lanes("-m", "not shared_lab", "--at-once", at_once) == (2, [])


def test_ends_at_an_interrupt_of_a_second_run(
    lanes: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    (tmp_path / "test_lanes.py").write_text(INTERRUPTED)
    assert lanes()[0] == 2
    assert sorted((tmp_path / "runs").read_text().split(", ")) == ["", "first", "first", "second"]


_LINE = "marked "
_MARKED = f"""
import sys, pytest
class Marks:
    def pytest_collection_finish(self, session):
        for item in session.items:
            marks = ",".join(mark.name for mark in item.iter_markers())
            print("{_LINE}" + item.nodeid, marks, sep="\\t")
pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Marks()])
"""


def lanes_of(target: str) -> list[str]:
    """Return the expressions of a make target: what runs first, and the lanes."""
    command = ["make", "--dry-run", target]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r'(?:-m|--first|--second-lab) "([^"]+)"', shown)


@pytest.mark.parametrize(
    ("target", "all_tests", "lanes_of_files"),
    [
        (
            "test",
            "not hardware and not thorough",
            [
                ["test_words.py"],
                ["cli/test_fit.py"],
                ["test_lanes.py"],
                [
                    "../lab/tests/cluster/test_lifecycle.py",
                    "deploy/test_deployment_on_api_server.py",
                ],
                ["../lab/tests/cluster/test_cluster.py", "conformance/test_on_lab.py"],
                ["agent/test_held.py"],
                ["agent/mps/test_daemons.py"],
            ],
        ),
        (
            "test-all",
            "not hardware",
            [
                ["test_words.py"],
                ["cli/test_fit.py"],
                ["test_lanes.py"],
                ["conformance/test_on_lab.py"],
                ["../lab/tests/cluster/test_cluster.py"],
                ["../lab/tests/cluster/test_lifecycle.py"],
                ["deploy/test_deployment_on_api_server.py"],
                ["agent/test_held.py"],
                ["agent/mps/test_daemons.py"],
            ],
        ),
    ],
)
def test_puts_every_test_in_one_lane(
    target: str, all_tests: str, lanes_of_files: list[list[str]]
) -> None:
    files = itertools.chain.from_iterable(lanes_of_files)
    collect = [sys.executable, "-c", _MARKED, *(f"tests/{file}" for file in files)]
    done = subprocess.run(collect, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    marked = {
        name: {*marks.split(",")}
        for name, _, marks in (
            line.removeprefix(_LINE).partition("\t")
            for line in done.stdout.splitlines()
            if line.startswith(_LINE)
        )
    }

    def chosen(expression: str) -> set[str]:
        """Return the tests that pytest chooses: an expression is one of Python's."""
        words = {*re.findall(r"\w+", expression)} - {"and", "or", "not"}
        return {
            name
            for name, marks in marked.items()
            if eval(expression, {word: word in marks for word in words})
        }

    lanes = [chosen(expression) for expression in lanes_of(target)]
    assert set().union(*lanes) == chosen(all_tests)
    assert sum(map(len, lanes)) == len(chosen(all_tests))
    assert [{name.partition("::")[0] for name in lane} for lane in lanes] == [
        {f"tests/{file}".removeprefix("tests/../") for file in files_of_lane}
        for files_of_lane in lanes_of_files
    ]
